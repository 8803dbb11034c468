package datadir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// restoringFile is the name of a file that marks a directory while a backup is restored into it. It is on the disk before any other file
// except LOCK is made. It is removed when the restore has made all files, or when a failed restore has removed them.
const restoringFile = "RESTORING"

const restoringText = "lockstep restore has not finished here. Run it again, or name another directory.\n"

// lostAndFound is a directory that some file systems have in their root, so a new volume in a container or in Kubernetes may
// have it from the start.
const lostAndFound = "lost+found"

// ownFiles are the names of the files and directories in a data directory, without LOCK and RESTORING.
var ownFiles = []string{nodeFile, boltFile, votesFile, walDir, markFile, settledPath, snapshotDir}

// CheckEmpty fails if the directory at path is not empty: a backup is restored only into a new directory. It ignores the lost+found
// of a file system, a LOCK, and the files that an interrupted restore has left.
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

// Make creates a data directory at path and calls the function fill to write its files. It fails if there is a directory at path
// that is not empty (CheckEmpty). The path may be a mount point or a link, so fill writes directly there; no finished directory
// is moved there by a rename. Open refuses the directory until fill has succeeded, or until Make has removed the files of a
// failed fill. Therefore fill itself opens the directory with Options.Unfinished.
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

// Begin records the term of a new directory, and that its log is empty and begins behind the snapshot
// of the entry at index. From then on Open refuses the directory without that snapshot or a newer one.
func (d *Dir) Begin(index, term uint64) error {
	if err := d.Stable.SetUint64([]byte(currentTerm), term); err != nil {
		return err
	}
	return d.Log.begin(index)
}
