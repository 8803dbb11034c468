package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// processorTime returns the processor time of all threads of this process.
func processorTime() (busy time.Duration, ok bool) {
	var t unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t)
	return time.Duration(t.Nano()), err == nil
}
