package lock

import (
	"time"
)

// Clock measures leases. It may not stand still while the machine is asleep, as Go's own monotonic clock does on Linux.
type Clock interface {
	// Now is the time since some moment in the past.
	Now() time.Duration
	// NewAlarm returns an alarm that is not set.
	NewAlarm() (Alarm, error)
}

// Alarm sends on a channel when a time has come. It may also send too early, so its user looks at the clock again.
type Alarm interface {
	C() <-chan struct{}
	Set(at time.Duration)
	Close()
}

// never is a time that does not come.
const never = time.Duration(1<<63 - 1)

// lease is how long the lock is ours. Renewals begin after a third of it, and there is a third for them. If they fail, the rest is for
// the command to end in: it gets SIGTERM, and SIGKILL a tenth of the lease before the end, because processes take time to die, and
// because this clock may be slower than the server's.
type lease struct {
	from time.Duration // before the request was sent that began it
	ttl  time.Duration
}

func (l lease) renewAt() time.Duration { return l.from + l.ttl/3 }
func (l lease) termAt() time.Duration  { return l.from + l.ttl/3*2 }
func (l lease) killAt() time.Duration  { return l.from + l.ttl/10*9 }
func (l lease) end() time.Duration     { return l.from + l.ttl }

// attempt is how long one renewal may take before another server is asked: a third of the lease has room for three.
func (l lease) attempt(most time.Duration) time.Duration { return min(l.ttl/9, most) }

// pause is the time between two renewals that fail at once.
func (l lease) pause() time.Duration { return min(l.ttl/60, time.Second) }
