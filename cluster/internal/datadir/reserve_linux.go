package datadir

import (
	"errors"
	"os"
	"syscall"
)

// damagedFS has the errors of a file system that has found itself damaged, such as ext4 and xfs.
var damagedFS = []syscall.Errno{syscall.EUCLEAN, syscall.EBADMSG}

// reserve reserves room on the disk for length bytes of a file that begin at the offset from, and extends
// the file to hold them. On file systems that have no fallocate, it always writes zeros, because only a
// write finds out whether there is room.
//
// If fill is true, reserve also writes zeros to the room. The first write to a block that was only allocated makes the file system
// mark the block as used, and the next sync must commit that mark to the journal, too. Without the zeros, a sync cost one and a
// half times as much. For writes of fillLimit bytes or more the zeros would cost at least what they save, so the caller leaves them
// out. If such writes leave a part of the room unused, the next short write fills that part with zeros (segmentFile.reserve).
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

// free returns how many bytes this process may still write to the file system of a directory. The true number may be lower, because free
// does not know the quotas of users.
func free(dir string) (int64, error) {
	var s syscall.Statfs_t
	if err := retried(func() error { return syscall.Statfs(dir, &s) }); err != nil {
		return 0, os.NewSyscallError("statfs", err)
	}
	blocks := s.Bavail
	if os.Geteuid() == 0 {
		blocks = s.Bfree // root may use the blocks that are kept for it
	}
	return int64(min(blocks, plenty/uint64(s.Bsize))) * int64(s.Bsize), nil
}

// syncData waits until the data of a file is on the disk, and the metadata without which the data cannot
// be read. Other metadata, such as timestamps, may not be on the disk.
func syncData(f *os.File) error {
	return os.NewSyscallError("fdatasync", retried(func() error { return syscall.Fdatasync(int(f.Fd())) }))
}

// retried repeats a system call until no signal interrupts it.
func retried(call func() error) error {
	for {
		if err := call(); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
