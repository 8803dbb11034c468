package datadir

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/hashicorp/raft"
	"github.com/hashicorp/raft-wal/types"
)

// Disk has the file operations of this package, and wraps the stores of others. A test passes a Disk that stops at any step.
type Disk struct {
	Files
	SegmentSize int                                     // the size of a full segment of the log (raft-wal)
	PageCache   bool                                    // all writes of the log go through the kernel's page cache
	Meta        func(types.MetaStore) types.MetaStore   // wraps raft-wal's list of segments
	Stable      func(raft.StableStore) raft.StableStore // wraps the store of the term and the vote
}

// Files changes files and directories.
type Files interface {
	// Create makes a file, or empties it if it exists, and opens it.
	Create(path string) (File, error)
	// Open opens a file that exists, for reading and writing.
	Open(path string) (File, error)
	Mkdir(path string) error // no error if the directory exists; but the one above it must exist
	Rename(from, to string) error
	Remove(path string) error // also everything in a directory; no error if path does not exist
	SyncDir(path string) error
	// Free returns how many bytes the file system of a directory has room for.
	Free(dir string) (int64, error)
}

// File is an open file.
type File interface {
	io.ReaderAt
	io.Writer
	io.WriterAt
	// Reserve reserves disk space, and extends the file, for length bytes without data. If fill is true, it writes zeros: later small
	// writes cost less.
	Reserve(from, length int64, fill bool) error
	Sync() error
	// SyncData is like Sync, but leaves out metadata that a reader of the file does not need.
	SyncData() error
	Close() error
}

// SystemDisk returns the machine's real disk.
func SystemDisk() Disk {
	return Disk{
		Files:       systemFiles{},
		SegmentSize: segmentSize,
		Meta:        func(m types.MetaStore) types.MetaStore { return m },
		Stable:      func(s raft.StableStore) raft.StableStore { return s },
	}
}

type systemFiles struct{}

func (systemFiles) Create(path string) (File, error) {
	return openFile(path, os.O_CREATE|os.O_TRUNC)
}

func (systemFiles) Open(path string) (File, error) { return openFile(path, 0) }
func (systemFiles) Rename(from, to string) error   { return os.Rename(from, to) }
func (systemFiles) Remove(path string) error       { return os.RemoveAll(path) }

func (systemFiles) Mkdir(path string) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil
	}
	return os.Mkdir(path, 0o700)
}

func (systemFiles) SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (systemFiles) Free(dir string) (int64, error) { return free(dir) }

type systemFile struct{ *os.File }

func openFile(path string, flags int) (File, error) {
	f, err := os.OpenFile(path, flags|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	return systemFile{f}, nil
}

func (f systemFile) SyncData() error { return syncData(f.File) }

func (f systemFile) Reserve(from, length int64, fill bool) error {
	return reserve(f.File, from, length, fill)
}

// isFull reports whether err comes from a full disk.
func isFull(err error) bool { return comesFrom(err, syscall.ENOSPC, syscall.EDQUOT) }

// isBroken reports whether err comes from a disk that does not work, or from a file system that has found itself damaged.
func isBroken(err error) bool {
	return comesFrom(err, syscall.EIO, syscall.EROFS) || comesFrom(err, damagedFS...)
}

// isBarred: this process may not open the files. isScarce: a limit was reached, such as that of open files.
func isBarred(err error) bool { return comesFrom(err, syscall.EACCES, syscall.EPERM) }
func isScarce(err error) bool {
	return comesFrom(err, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EFBIG)
}

// isRefused reports whether the system has refused a call. A missing file, or one of another kind, is damage instead.
func isRefused(err error) bool {
	number, refused := errors.AsType[syscall.Errno](err)
	return refused && number != syscall.ENOENT && number != syscall.ENOTDIR && number != syscall.EISDIR
}

// notWritten returns the error with which the process ends when it could not write to disk. The parameter what names the data.
func notWritten(what string, err error) error {
	if comesFrom(err, syscall.EFBIG) {
		return fmt.Errorf("%s could not be written to disk: %w; raise the limit of file sizes (ulimit -f, LimitFSIZE=) and start again", what, err)
	}
	return fmt.Errorf("%s could not be written to disk: %w; free or repair the disk and start again", what, err)
}

// comesFrom reports whether one of the numbers is the cause of err. Some errors of bbolt hold only the text of their cause.
func comesFrom(err error, numbers ...syscall.Errno) bool {
	return err != nil && slices.ContainsFunc(numbers, func(n syscall.Errno) bool {
		return errors.Is(err, n) || strings.Contains(err.Error(), n.Error())
	})
}

// replaceFile replaces the file at path so that a crash leaves the old file or the new one.
func replaceFile(d Files, path string, b []byte) error {
	tmp := path + ".tmp"
	if err := writeFile(d, tmp, b); err != nil {
		return err
	}
	if err := d.Rename(tmp, path); err != nil {
		return err
	}
	return d.SyncDir(filepath.Dir(path))
}

// writeFile writes a file and syncs it, but not its directory.
func writeFile(d Files, path string, b []byte) error {
	f, err := d.Create(path)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
