// Package clock tells the time: the clock of the machine, the lease clock that decides expiry, and how late leases were
// acknowledged.
package clock

import (
	"time"
)

// Source is where time comes from. This file is the only one that asks
// the operating system; everywhere else time is an argument.
type Source interface {
	// Monotonic never runs back and does not follow the wall clock.
	Monotonic() time.Duration
	// Wall is the time of day.
	Wall() time.Time
}

// System is the machine's clock.
type System struct{ start time.Time }

// NewSystem returns the machine's clock, its monotonic part at zero.
func NewSystem() *System { return &System{start: time.Now()} }

// Monotonic returns the time since the source was made.
func (s *System) Monotonic() time.Duration { return time.Since(s.start) }

// Wall returns the time of day.
func (s *System) Wall() time.Time { return time.Now() }

// ForRaft is the time for Raft, which reads the clock of the machine.
type ForRaft struct{ Source }

// At converts the time at which Raft heard of something to the monotonic clock. Raft's times have a
// monotonic part, so no jump of the wall clock, here or elsewhere, makes a difference.
func (t ForRaft) At(at time.Time) time.Duration { return t.Monotonic() - time.Since(at) }
