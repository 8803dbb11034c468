package datadir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// CheckEmpty fails if the directory at path holds anything: a backup is restored into a new
// directory.
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

// Make calls fill to make a directory under a temporary name, and then renames it to path, so
// that path is a whole directory or none.
func Make(disk Disk, path string, fill func(path string) error) error {
	making := filepath.Clean(path) + ".restoring"
	if err := disk.Remove(making); err != nil {
		return err
	}
	if err := fill(making); err != nil {
		return errors.Join(fmt.Errorf("data directory %s: %w", path, err), disk.Remove(making))
	}
	// An empty directory may be in the way; if it is not empty, this fails.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := disk.Rename(making, path); err != nil {
		return err
	}
	return disk.SyncDir(filepath.Dir(filepath.Clean(path)))
}

// Begin records the term of a new directory, and that its log begins behind the snapshot of
// entry index: Open refuses the directory without that snapshot.
func (d *Dir) Begin(index, term uint64) error {
	if err := d.Stable.SetUint64([]byte(currentTerm), term); err != nil {
		return err
	}
	return d.Log.begin(index)
}
