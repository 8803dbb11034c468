//go:build unix

package server

import (
	"syscall"
	"time"
)

// cpuTime returns how much processor time this process has used.
func cpuTime() (user, system time.Duration) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, 0
	}
	return time.Duration(u.Utime.Nano()), time.Duration(u.Stime.Nano())
}
