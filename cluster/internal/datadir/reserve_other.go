//go:build !linux

package datadir

import (
	"os"
	"syscall"
)

// damagedFS is empty: on other systems than Linux, a damaged file system has no error of its own.
var damagedFS []syscall.Errno

// reserve does nothing, so only the write itself finds out whether there is room.
func reserve(*os.File, int64, int64, bool) error { return nil }

// free knows no limit: an append finds out whether there is room.
func free(string) (int64, error) { return plenty, nil }

func syncData(f *os.File) error { return f.Sync() }
