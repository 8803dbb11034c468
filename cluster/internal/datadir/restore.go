package datadir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// CheckEmpty refuses a path where a directory holds anything: a backup is restored into a
// new one.
func CheckEmpty(path string) error {
	list, err := os.ReadDir(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("data directory %s: %w", path, err)
	case len(list) > 0:
		return fmt.Errorf("data directory %s is not empty: a backup is restored into a new one; name another with --data", path)
	}
	return nil
}

// Make has fill make a directory under another name and gives it its name then, so that
// there is a whole one or none.
func Make(disk Disk, path string, fill func(path string) error) error {
	making := filepath.Clean(path) + ".restoring"
	if err := disk.Remove(making); err != nil {
		return err
	}
	if err := fill(making); err != nil {
		return errors.Join(fmt.Errorf("data directory %s: %w", path, err), disk.Remove(making))
	}
	// Renaming takes the place of a directory only if it is empty.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := disk.Rename(making, path); err != nil {
		return err
	}
	return disk.SyncDir(filepath.Dir(filepath.Clean(path)))
}

// Begin notes the term of a new directory and that its log begins with the snapshot of an
// entry: a start without that snapshot is refused.
func (d *Dir) Begin(index, term uint64) error {
	if err := d.Stable.SetUint64([]byte(currentTerm), term); err != nil {
		return err
	}
	return d.Log.begin(index)
}
