package datadir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/hashicorp/go-hclog"
)

// Open repairs what a crash may leave, and notes what it finds. So a command that must not change a directory opens a copy of it. The copy
// has links in the place of the snapshots, which nothing changes once they are complete.

// Viewed is an open copy of a directory.
type Viewed struct {
	*Dir
	path, copy string
	id         string
	lock       *os.File // of the directory itself; nil: it has no LOCK, or the caller holds it
	stop       func() bool
}

// View opens a copy of the directory at path. held says that the caller holds its LOCK. When ctx ends, the copy is removed.
func View(ctx context.Context, path string, lines hclog.Logger, held bool) (v *Viewed, err error) {
	v = &Viewed{path: path, stop: func() bool { return true }}
	defer func() {
		if err != nil {
			err = errors.Join(v.Blame(err), v.Close())
		}
	}()
	if !held {
		if v.lock, err = lockShared(path); err != nil {
			return v, err
		}
	}
	if err := v.check(); err != nil {
		return v, err
	}
	if v.copy, err = os.MkdirTemp("", "lockstep-view-"); err != nil {
		return v, err
	}
	v.stop = context.AfterFunc(ctx, func() { _ = os.RemoveAll(v.copy) }) // fails only if it is gone already
	if err := v.fill(); err != nil {
		return v, err
	}
	v.Dir, err = Open(v.copy, Options{Disk: SystemDisk(), ID: v.id, Lines: lines})
	return v, err
}

// lockShared locks a directory against a node, but not against others that look. It returns nil if the directory has no LOCK.
func lockShared(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, fmt.Errorf("data directory %s: %w", path, err)
	}
	f, err := os.OpenFile(filepath.Join(path, lockFile), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("data directory %s: %w", path, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("data directory %s is in use by a lockstep process: stop that one, or ask it (lockstep status, lockstep backup)", path)
		}
		return nil, fmt.Errorf("data directory %s cannot be locked: %w", path, err)
	}
	return f, nil
}

// check refuses a directory that no node could start with, or whose start would begin anew.
func (v *Viewed) check() error {
	if err := errors.Join(checkPlain(v.path), checkRestored(v.path), checkRecovered(v.path)); err != nil {
		return err
	}
	b, err := readSmall(filepath.Join(v.path, nodeFile))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("data directory %s has no %s: no node has used it, or it is another directory", v.path, nodeFile)
	}
	if err != nil {
		return fmt.Errorf("data directory %s: %w", v.path, err)
	}
	rec, ok := decodeRecord(b)
	switch {
	case !ok:
		return fmt.Errorf("data directory %s: %s is damaged: %s", v.path, nodeFile, AdviceRejoin)
	case rec.Format == dataFormat && rec.New:
		return fmt.Errorf("data directory %s holds nothing: the first start of node %q with it was interrupted", v.path, rec.ID)
	}
	v.id = rec.ID
	return nil
}

// fill makes the copy.
func (v *Viewed) fill() error {
	var files, links []string
	for _, name := range ownFiles {
		info, err := os.Stat(filepath.Join(v.path, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if !info.IsDir() {
			files = append(files, name)
			continue
		}
		err = fs.WalkDir(os.DirFS(filepath.Join(v.path, name)), ".", func(at string, e fs.DirEntry, err error) error {
			switch {
			case err != nil || e.IsDir():
			case name == snapshotDir:
				links = append(links, filepath.Join(name, at))
			default:
				files = append(files, filepath.Join(name, at))
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	if err := v.hasRoom(files); err != nil {
		return err
	}
	for _, name := range links {
		from, err := filepath.Abs(filepath.Join(v.path, name))
		if err == nil {
			err = os.MkdirAll(filepath.Dir(filepath.Join(v.copy, name)), 0o700)
		}
		if err == nil {
			err = os.Symlink(from, filepath.Join(v.copy, name))
		}
		if err != nil {
			return err
		}
	}
	for _, name := range files {
		if err := copyFile(filepath.Join(v.path, name), filepath.Join(v.copy, name)); err != nil {
			return err
		}
	}
	return nil
}

// hasRoom fails if the files would fill the file system of the copy.
func (v *Viewed) hasRoom(files []string) error {
	total := int64(0)
	for _, name := range files {
		info, err := os.Stat(filepath.Join(v.path, name))
		if err != nil {
			return err
		}
		total += info.Size()
	}
	if room, err := free(v.copy); err == nil && total > room-room/8 {
		return fmt.Errorf("the log has %d bytes, and %s has room for %d: it is read from a copy; name a larger directory by TMPDIR", total, os.TempDir(), room)
	}
	return nil
}

func copyFile(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// viewError is an error about a copy that names the directory itself.
type viewError struct {
	error
	text string
}

func (e viewError) Error() string { return e.text }
func (e viewError) Unwrap() error { return e.error }

// Blame lets an error about the copy name the directory itself.
func (v *Viewed) Blame(err error) error {
	if err == nil || v.copy == "" {
		return err
	}
	return viewError{err, strings.ReplaceAll(err.Error(), v.copy, v.path)}
}

// Close removes the copy.
func (v *Viewed) Close() error {
	v.stop()
	if v.Dir != nil {
		v.Dir.Close()
	}
	if v.lock != nil {
		v.lock.Close() // releases the lock
	}
	if v.copy == "" {
		return nil
	}
	return os.RemoveAll(v.copy)
}

// ID returns the id of the node to which the directory belongs.
func (d *Dir) ID() string { return d.rec.ID }

// LogKind returns LogWAL or LogBolt.
func (d *Dir) LogKind() string { return d.rec.Log }

// Term returns the latest term that the node has known.
func (d *Dir) Term() (uint64, error) {
	term, err := d.votes.GetUint64([]byte(currentTerm))
	if err != nil && isNotFound(err) {
		return 0, nil
	}
	return term, err
}

// Unsound returns the ids of snapshots that are damaged, or could not be read.
func (s *Snapshots) Unsound() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.spoiled...)
}
