package environ

import (
	"fmt"
	"syscall"
)

// RaiseFiles raises the limit of open files for this process and those that it starts, if the limit is less than want.
func RaiseFiles(want uint64) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	if limit.Cur >= want {
		return nil
	}
	limit.Cur = want
	limit.Max = max(limit.Max, want)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("cannot raise the limit of open files to %d: %w (ulimit -n)", want, err)
	}
	return nil
}
