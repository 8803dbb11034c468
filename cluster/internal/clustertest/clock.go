package clustertest

import "time"

// Clock reads the machine's clock, or in a bubble of testing/synctest the bubble's clock.
type Clock struct{ start time.Time }

// NewClock returns a clock whose monotonic time begins at zero.
func NewClock() Clock { return Clock{time.Now()} }

// Monotonic returns the time since NewClock.
func (c Clock) Monotonic() time.Duration { return time.Since(c.start) }

// Busy returns what Monotonic returns: in a bubble, work takes the bubble's time and no processor time.
func (c Clock) Busy() time.Duration { return c.Monotonic() }

// Wall returns the time of day.
func (c Clock) Wall() time.Time { return time.Now() }

// At converts a time from time.Now to the clock's monotonic time.
func (c Clock) At(at time.Time) time.Duration { return at.Sub(c.start) }
