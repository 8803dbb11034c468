package datadir

import (
	"errors"
	"os"
	"syscall"
)

// reserve takes room on the disk for a part of a file, and extends the file to hold it. On file systems
// that cannot do that, it writes zeros in any case, because only a write finds out whether there is room.
//
// With fill, reserve writes zeros to the room. The first write to a block that was only allocated makes
// the file system mark the block as used, and the next sync must commit that mark to the journal, too.
// Without the zeros a sync cost half as much again. A write of 64 KiB or more gets no zeros, because
// they would cost more than they save; if such writes leave a part of the room unused, the next short
// write fills it (segmentFile.reserve). Syncs write only the data (syncData).
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

// syncData waits until the data of a file is on the disk, with the metadata that reading the data
// needs, but without timestamps.
func syncData(f *os.File) error {
	return os.NewSyscallError("fdatasync", retried(func() error { return syscall.Fdatasync(int(f.Fd())) }))
}

// retried repeats a system call that a signal has interrupted.
func retried(call func() error) error {
	for {
		if err := call(); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
