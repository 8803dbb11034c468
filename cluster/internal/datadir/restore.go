package datadir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// restoringFile marks a directory during a restore. It is made first, except for LOCK, and removed last.
const restoringFile = "RESTORING"

const restoringText = "lockstep restore has not finished here. Run it again, or name another directory.\n"

// lostAndFound is a directory in the root of some file systems, so a new volume may have it.
const lostAndFound = "lost+found"

// ownFiles are the names of the files and directories in a data directory, without LOCK and RESTORING.
var ownFiles = []string{nodeFile, boltFile, votesFile, walDir, markFile, settledPath, snapshotDir}

// CheckEmpty fails if the directory at path is not empty, apart from lost+found, LOCK, and the files of an interrupted restore.
func CheckEmpty(path string) error {
	list, err := os.ReadDir(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("data directory %s: %w", path, err)
	}
	restoring := slices.ContainsFunc(list, func(e os.DirEntry) bool { return e.Name() == restoringFile })
	for _, e := range list {
		name := e.Name()
		switch {
		case name == lostAndFound && e.IsDir(), name == lockFile, name == restoringFile:
		case restoring && slices.Contains(ownFiles, strings.TrimSuffix(name, ".tmp")):
		default:
			return fmt.Errorf("data directory %s is not empty, it has %q: a backup is restored into a new one; name another with --data", path, name)
		}
	}
	return nil
}

// Make creates a data directory, which fill writes in place, because path may be a mount point. Until fill has succeeded, only
// Options.Unfinished opens it.
func Make(disk Disk, path string, fill func(path string) error) error {
	fail := func(err error) error { return fmt.Errorf("data directory %s: %w", path, err) }
	_, err := os.Stat(path)
	made := errors.Is(err, os.ErrNotExist)
	if err := makePlace(disk, path); err != nil {
		return fail(err)
	}
	lock, err := acquire(path)
	if err != nil {
		return err
	}
	defer lock.Close() // releases the lock
	if err := CheckEmpty(path); err != nil {
		return err
	}
	if err := beginRestore(disk, path); err != nil {
		return fail(err)
	}
	if err := clearOut(disk, path); err != nil {
		return fail(err)
	}
	err = fill(path)
	if err == nil && made {
		err = disk.SyncDir(filepath.Dir(filepath.Clean(path)))
	}
	if err == nil {
		return endRestore(disk, path)
	}
	err = fail(err)
	if left := clearOut(disk, path); left != nil {
		return errors.Join(err, left) // RESTORING stays
	}
	return errors.Join(err, endRestore(disk, path))
}

// beginRestore marks a directory by restoringFile: a backup is being restored into it.
func beginRestore(disk Disk, path string) error {
	if err := writeFile(disk, filepath.Join(path, restoringFile), []byte(restoringText)); err != nil {
		return err
	}
	return disk.SyncDir(path)
}

// clearOut removes the files that a restore may have made in a directory (ownFiles).
func clearOut(disk Disk, path string) error {
	for _, name := range ownFiles {
		if err := errors.Join(disk.Remove(filepath.Join(path, name)), disk.Remove(filepath.Join(path, name+".tmp"))); err != nil {
			return err
		}
	}
	return disk.SyncDir(path)
}

// endRestore removes restoringFile. It must be called only when the directory is complete, or has none of the ownFiles any more.
func endRestore(disk Disk, path string) error {
	if err := disk.Remove(filepath.Join(path, restoringFile)); err != nil {
		return err
	}
	return disk.SyncDir(path)
}

// checkRestored fails if a directory has restoringFile, because then a restore into it was interrupted.
func checkRestored(path string) error {
	_, err := os.Lstat(filepath.Join(path, restoringFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("data directory %s: %w", path, err)
	}
	return fmt.Errorf("data directory %s has %s: lockstep restore was interrupted there, so it lacks a part of the backup; run lockstep restore again with it, or name another directory with --data", path, restoringFile)
}

// Begin records a new directory's term, and that its log begins behind the snapshot of the entry at index. Open then needs that or a
// newer snapshot.
func (d *Dir) Begin(index, term uint64) error {
	if err := d.Stable.SetUint64([]byte(currentTerm), term); err != nil {
		return err
	}
	return d.Log.begin(index)
}
