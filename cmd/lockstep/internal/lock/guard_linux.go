package lock

import (
	"time"

	"golang.org/x/sys/unix"
)

// guardTimer lets the guard wait for its pipe and for a time. It is a timer of the kernel, because a timeout of poll stands still while the
// machine is asleep.
type guardTimer struct{ fd int }

func newGuardTimer() (guardTimer, error) {
	fd, err := newTimer()
	return guardTimer{fd}, err
}

// wait reports whether the file is readable.
func (t guardTimer) wait(file int, until time.Duration) (readable bool, err error) {
	if err := setTimer(t.fd, until); err != nil {
		return false, err
	}
	return poll([]unix.PollFd{{Fd: int32(file), Events: unix.POLLIN}, {Fd: int32(t.fd), Events: unix.POLLIN}}, never)
}
