package datadir

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/hashicorp/raft"
	"github.com/hashicorp/raft-wal/types"
)

// Disk has the file operations of this package, and wrappers for the stores whose files other
// packages write. A test replaces it with a disk that stops at any step and forgets what was not
// synced.
type Disk struct {
	Files
	SegmentSize int                                     // of raft-wal
	PageCache   bool                                    // all writes go through the kernel's page cache
	Meta        func(types.MetaStore) types.MetaStore   // wraps raft-wal's list of segments
	Stable      func(raft.StableStore) raft.StableStore // wraps the store of the term and the vote
}

// Files changes files and directories.
type Files interface {
	// Create makes or empties a file.
	Create(path string) (File, error)
	// Open opens a file that exists, for writing.
	Open(path string) (File, error)
	Mkdir(path string) error // one that exists is fine
	Rename(from, to string) error
	Remove(path string) error // and everything in it
	SyncDir(path string) error
}

// File is an open file.
type File interface {
	io.ReaderAt
	io.Writer
	io.WriterAt
	// Reserve takes disk space for a part of the file and extends the file to hold it. The
	// new part reads as zeros. With fill, Reserve writes those zeros, so that small writes
	// there later cost no more than overwriting old data.
	Reserve(from, length int64, fill bool) error
	Sync() error
	// SyncData is Sync without the metadata that reading the file does not need.
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
func (systemFiles) Mkdir(path string) error        { return os.MkdirAll(path, 0o700) }
func (systemFiles) Rename(from, to string) error   { return os.Rename(from, to) }
func (systemFiles) Remove(path string) error       { return os.RemoveAll(path) }

func (systemFiles) SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

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

// isFull reports whether err comes from a full disk. bbolt passes on only the text
// of that error.
func isFull(err error) bool {
	return err != nil && (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || strings.Contains(err.Error(), syscall.ENOSPC.Error()))
}

// isBroken reports whether err comes from a disk that does not work.
func isBroken(err error) bool {
	return errors.Is(err, syscall.EIO) || errors.Is(err, syscall.EROFS)
}

// replaceFile writes a file so that a crash leaves the old one or the new one.
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

// writeFile writes a file and waits until it is on the disk.
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
