package datadir

import (
	"errors"
	"os"
	"syscall"
)

// reserve takes room on the disk for a part of a file, which grows to hold it.
// Not every file system can do that; then a write finds out whether there is
// room. The first write to a block that was only allocated has the file system note
// that it holds data, and makes the sync behind it a commit of its journal, too: so
// room for small writes is filled with zeros.
//
// Without the zeros a sync cost half as much again. A write of 64 KiB or more fills its room itself,
// because zeros before it would cost more than they save. What such writes have left of the room is
// filled when a short write comes. Syncs are of the data alone (syncData).
func reserve(f *os.File, from, length int64, fill bool) error {
	err := retried(func() error { return syscall.Fallocate(int(f.Fd()), 0, from, length) })
	switch {
	case errors.Is(err, syscall.EOPNOTSUPP), errors.Is(err, syscall.ENOSYS):
	case err != nil:
		return os.NewSyscallError("fallocate", err)
	case !fill:
		return nil
	}
	_, err = f.WriteAt(make([]byte, length), from)
	return err
}

// syncData waits until what was written to a file is on the disk, and as much about the
// file as it takes to read that: not when it was written.
func syncData(f *os.File) error {
	return os.NewSyscallError("fdatasync", retried(func() error { return syscall.Fdatasync(int(f.Fd())) }))
}

// retried makes a call again that a signal has interrupted.
func retried(call func() error) error {
	for {
		if err := call(); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
