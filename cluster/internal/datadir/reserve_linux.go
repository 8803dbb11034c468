package datadir

import (
	"errors"
	"os"
	"syscall"
)

// damagedFS has the errors of a file system that has found itself damaged, such as ext4 and xfs.
var damagedFS = []syscall.Errno{syscall.EUCLEAN, syscall.EBADMSG}

// reserve implements File.Reserve. Without fallocate it always writes zeros, to find out whether there is room. fill spares later syncs
// a commit to the journal.
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

// free returns how many bytes this process may still write to a file system, apart from quotas, which free does not know.
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

// syncData syncs a file's data, and the metadata that reading them needs.
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
