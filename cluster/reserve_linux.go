package cluster

import (
	"errors"
	"os"
	"syscall"
)

// reserve takes room on the disk for a part of a file, which grows to hold it.
// Not every file system can do that; then a write finds out whether there is
// room.
func reserve(f *os.File, from, length int64) error {
	for {
		err := syscall.Fallocate(int(f.Fd()), 0, from, length)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EOPNOTSUPP), errors.Is(err, syscall.ENOSYS):
			return nil
		default:
			return os.NewSyscallError("fallocate", err)
		}
	}
}
