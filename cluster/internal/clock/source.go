// Package clock has the machine's clock, and the lease clock, by which leases expire. It also remembers how late the leader
// acknowledged leases.
package clock

import (
	"time"
)

// Source is where lockstep gets the time from. Apart from tests, their fixtures and the
// benchmarks, only this file calls time.Now and time.Since.
type Source interface {
	// Monotonic never runs back and does not follow the wall clock.
	Monotonic() time.Duration
	// Wall is the time of day.
	Wall() time.Time
	// Busy is the processor time that this process has used, if the system tells; else the same as Monotonic.
	Busy() time.Duration
}

// System is the machine's clock.
type System struct{ start time.Time }

// NewSystem returns the machine's clock. Its monotonic time begins at zero.
func NewSystem() *System { return &System{start: time.Now()} }

// Monotonic returns the time since NewSystem.
func (s *System) Monotonic() time.Duration { return time.Since(s.start) }

// Wall returns the time of day.
func (s *System) Wall() time.Time { return time.Now() }

// Busy returns the processor time that this process has used, or what Monotonic returns if the system does not tell that time.
func (s *System) Busy() time.Duration {
	if busy, ok := processorTime(); ok {
		return busy
	}
	return s.Monotonic()
}

// ForRaft is a Source that can also convert the times that hashicorp/raft reports: Raft takes them from the machine's clock.
type ForRaft struct{ Source }

// At converts a time.Now of Raft to the monotonic time of the Source. Jumps of the wall clock make no difference.
func (t ForRaft) At(at time.Time) time.Duration { return t.Monotonic() - time.Since(at) }
