package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// A process keeps its open files when their directory is moved, removed or covered by a mount. No later start would find what it writes.

// makePlace makes a data directory, and the directories above it, if they do not exist.
func makePlace(disk Disk, path string) error {
	if err := os.MkdirAll(filepath.Dir(filepath.Clean(path)), 0o700); err != nil {
		return err
	}
	return disk.Mkdir(path)
}

// Moved reports whether another directory, or none, is now at the path. The error says so, or why Moved cannot know.
func (d *Dir) Moved() (moved bool, err error) {
	if d.lock == nil {
		return false, nil // only a restore opens a directory that another function has locked
	}
	now, err := os.Stat(filepath.Join(d.path, lockFile))
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		err = errors.New("its file " + lockFile + " is not there")
	case err != nil:
		return false, err
	case os.SameFile(now, d.locked):
		return false, nil
	default:
		err = errors.New("another file " + lockFile + " is there")
	}
	return true, fmt.Errorf("data directory %s was removed, moved or replaced while this node used it (%w), so the next start would not find what the node stores; if it was moved, move it back and start again; otherwise %s", d.path, err, AdviceRejoin)
}
