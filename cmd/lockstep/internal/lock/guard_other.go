//go:build !linux

package lock

import (
	"time"

	"golang.org/x/sys/unix"
)

// guardTimer lets the guard wait for its pipe and for a time.
type guardTimer struct{}

func newGuardTimer() (guardTimer, error) { return guardTimer{}, nil }

// wait reports whether the file is readable. It returns early, because a timeout may stand still while the machine is asleep.
func (guardTimer) wait(file int, until time.Duration) (readable bool, err error) {
	return poll([]unix.PollFd{{Fd: int32(file), Events: unix.POLLIN}}, min(until-System{}.Now(), nap))
}
