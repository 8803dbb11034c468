package lock

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// System is the machine's clock. CLOCK_MONOTONIC, and so Go's timers, stand still while the machine is asleep; CLOCK_BOOTTIME does not.
type System struct{}

// Now returns the time since the machine was started.
func (System) Now() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return never // every lease is over: no command runs without a clock
	}
	return time.Duration(t.Nano())
}

// NewAlarm makes a timer of the kernel by this clock.
func (System) NewAlarm() (Alarm, error) {
	fd, err := newTimer()
	if err != nil {
		return nil, err
	}
	a := &bootAlarm{fd: fd, f: os.NewFile(uintptr(fd), "timer"), c: make(chan struct{}, 1)}
	go a.run()
	return a, nil
}

func newTimer() (fd int, err error) {
	fd, err = unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	return fd, os.NewSyscallError("timerfd_create", err)
}

// setTimer lets a timer become readable at a time of the clock.
func setTimer(fd int, at time.Duration) error {
	// A value of zero would turn the timer off.
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(int64(at), 1))}
	return os.NewSyscallError("timerfd_settime", unix.TimerfdSettime(fd, unix.TFD_TIMER_ABSTIME, &spec, nil))
}

type bootAlarm struct {
	fd int
	f  *os.File // by which Go's poller waits for the timer
	c  chan struct{}
}

func (a *bootAlarm) run() {
	var times [8]byte
	for {
		if _, err := a.f.Read(times[:]); err != nil {
			return // closed
		}
		a.ring()
	}
}

func (a *bootAlarm) ring() {
	select {
	case a.c <- struct{}{}:
	default:
	}
}

func (a *bootAlarm) C() <-chan struct{} { return a.c }

func (a *bootAlarm) Set(at time.Duration) {
	if setTimer(a.fd, at) != nil {
		a.ring() // better often than never
	}
}

func (a *bootAlarm) Close() { _ = a.f.Close() }
