package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A recovery gives a directory new contents. It keeps the old ones in a directory inside, because the directory may be a mount point:
//
//  1. The new contents are made in recovered.tmp. Until here a node starts with the old ones.
//  2. RECOVERING is made, with the name of the directory for the old contents. No node starts with the directory until step 5.
//  3. The old files are moved there, and RECOVERING says so.
//  4. The new files are moved to their places.
//  5. recovered.tmp and RECOVERING are removed.
//
// After step 2 a recovery that was interrupted is only completed.
const (
	recoveringFile = "RECOVERING"
	recoveredDir   = "recovered.tmp"
	keptPrefix     = "before-recover-"

	// These are the first words of RECOVERING.
	movingOld = "old"
	movingNew = "new"

	// mostKept is how many directories with the contents before a recovery a directory may have.
	mostKept = 1000
)

// Recovery is a data directory whose contents are to be replaced. No other process uses it meanwhile.
type Recovery struct {
	disk Disk
	path string
	lock *os.File
}

// BeginRecovery locks the directory at path, which must exist.
func BeginRecovery(disk Disk, path string) (*Recovery, error) {
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("there is no data directory %s: name one with --data (%w)", path, errors.Join(err, fs.ErrNotExist))
	}
	lock, err := acquire(path)
	if err != nil {
		return nil, err
	}
	return &Recovery{disk, path, lock}, nil
}

// Close lets other processes use the directory.
func (r *Recovery) Close() error { return r.lock.Close() }

// Interrupted reports whether a recovery was interrupted that only needs to be completed.
func (r *Recovery) Interrupted() (bool, error) {
	_, _, err := r.phase()
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Replace replaces the contents of the directory by those that the function fill writes into the directory at the path that it gets. kept
// is where the old contents are.
func (r *Recovery) Replace(fill func(path string) error) (kept string, err error) {
	fresh := filepath.Join(r.path, recoveredDir)
	if err := errors.Join(r.disk.Remove(fresh), r.disk.Mkdir(fresh)); err != nil {
		return "", r.fail(err)
	}
	err = fill(fresh)
	if err == nil {
		err = r.disk.SyncDir(fresh)
	}
	if err != nil {
		return "", errors.Join(r.fail(err), r.disk.Remove(fresh))
	}
	name := ""
	for n := 1; n <= mostKept && name == ""; n++ {
		if _, err := os.Lstat(filepath.Join(r.path, keptPrefix+strconv.Itoa(n))); errors.Is(err, fs.ErrNotExist) {
			name = keptPrefix + strconv.Itoa(n)
		}
	}
	if name == "" {
		return "", r.fail(fmt.Errorf("it has %d directories %s…: remove those that are not needed", mostKept, keptPrefix))
	}
	if err := r.mark(movingOld, name); err != nil {
		return "", r.fail(err)
	}
	return r.Complete()
}

// Complete completes a recovery from step 2 on.
func (r *Recovery) Complete() (kept string, err error) {
	phase, name, err := r.phase()
	if err != nil {
		return "", r.fail(err)
	}
	kept, fresh := filepath.Join(r.path, name), filepath.Join(r.path, recoveredDir)
	if phase == movingOld {
		if err := r.disk.Mkdir(kept); err != nil {
			return "", r.fail(err)
		}
		if err := errors.Join(r.move(r.path, kept), r.disk.SyncDir(kept), r.disk.SyncDir(r.path)); err != nil {
			return "", r.fail(err)
		}
		if err := r.mark(movingNew, name); err != nil {
			return "", r.fail(err)
		}
	}
	if err := errors.Join(r.move(fresh, r.path), r.disk.SyncDir(r.path)); err != nil {
		return "", r.fail(err)
	}
	err = errors.Join(r.disk.Remove(fresh), r.disk.Remove(filepath.Join(r.path, recoveringFile)), r.disk.SyncDir(r.path))
	return kept, r.fail(err)
}

// move moves the files of a node from one directory to another; it leaves those that it does not find.
func (r *Recovery) move(from, to string) error {
	for _, name := range ownFiles {
		if _, err := os.Lstat(filepath.Join(from, name)); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		// After a power failure a file system may show a file that was moved in both places.
		err := r.disk.Remove(filepath.Join(to, name))
		if err == nil {
			err = r.disk.Rename(filepath.Join(from, name), filepath.Join(to, name))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *Recovery) mark(phase, kept string) error {
	text := phase + " " + kept + "\nlockstep recover has not finished here. Run it again.\n"
	return replaceFile(r.disk, filepath.Join(r.path, recoveringFile), []byte(text))
}

// phase reads RECOVERING.
func (r *Recovery) phase() (phase, kept string, err error) {
	b, err := readSmall(filepath.Join(r.path, recoveringFile))
	if err != nil {
		return "", "", err
	}
	line, _, _ := strings.Cut(string(b), "\n")
	phase, kept, _ = strings.Cut(line, " ")
	number, err := strconv.Atoi(strings.TrimPrefix(kept, keptPrefix))
	if err != nil || kept != keptPrefix+strconv.Itoa(number) || phase != movingOld && phase != movingNew {
		return "", "", fmt.Errorf("%s is damaged: the old files are in the directory %s… with the highest number, or still in their places; copy all, move the old ones back, remove %s and %s, and run lockstep recover again", recoveringFile, keptPrefix, recoveringFile, recoveredDir)
	}
	return phase, kept, nil
}

func (r *Recovery) fail(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("data directory %s: %w", r.path, err)
}

// checkRecovered fails if a directory has RECOVERING.
func checkRecovered(path string) error {
	_, err := os.Lstat(filepath.Join(path, recoveringFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("data directory %s: %w", path, err)
	}
	return fmt.Errorf("data directory %s has %s: lockstep recover was interrupted there; run it again with the same directory, which completes it", path, recoveringFile)
}
