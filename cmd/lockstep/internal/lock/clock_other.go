//go:build !linux

package lock

import (
	"time"

	"golang.org/x/sys/unix"
)

// System is the machine's clock. Outside Linux, CLOCK_MONOTONIC counts on while the machine is asleep (macOS), or the machine does not
// sleep.
type System struct{}

// Now returns the time since some moment.
func (System) Now() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return never // every lease is over: no command runs without a clock
	}
	return time.Duration(t.Nano())
}

// nap is how late an alarm may be, because Go's timers stand still while the machine is asleep.
const nap = 100 * time.Millisecond

// NewAlarm makes an alarm that looks at the clock again and again.
func (System) NewAlarm() (Alarm, error) {
	a := pollAlarm{make(chan time.Duration), make(chan struct{}, 1)}
	go a.run()
	return a, nil
}

type pollAlarm struct {
	set chan time.Duration
	c   chan struct{}
}

func (a pollAlarm) run() {
	at := never
	for open := true; open; {
		left := at - System{}.Now()
		if left <= 0 {
			select {
			case a.c <- struct{}{}:
			default:
			}
			at, left = never, nap
		}
		select {
		case at, open = <-a.set:
		case <-time.After(min(left, nap)):
		}
	}
}

func (a pollAlarm) C() <-chan struct{}   { return a.c }
func (a pollAlarm) Set(at time.Duration) { a.set <- at }
func (a pollAlarm) Close()               { close(a.set) }
