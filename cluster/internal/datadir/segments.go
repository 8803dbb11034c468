package datadir

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/hashicorp/raft-wal/types"
)

// segmentFiles is the file system on which raft-wal keeps its segments. It differs
// from raft-wal's own in when it reserves disk space for a file.
//
// raft-wal writes a new segment to its list first and makes the file afterwards,
// while it closes a full segment or cuts back a log. If the disk has no space for
// the file then, the list on disk and the list in memory differ, and raft-wal
// accepts no entries any more. So making a file cannot fail here for lack of space:
// the first write to a file makes it. And each write reserves its space before it
// begins, so a write without space changes nothing and can be tried again.
//
// A segment reserves its space in steps and not all at once, because a log that is cut
// back often has many segments with little in them. It reserves each step ahead of
// time, because a leader writes an entry synchronously if the reserved space may not
// suffice for it (asyncWrites).
type segmentFiles struct {
	disk Files
	dir  string
	// cached means that all writes go through the kernel's page cache.
	cached bool
	// spare means that a file with room for the beginning of a segment exists.
	spare bool
	// limit is the size of a full segment. entries is at least the number of entries in the newest segment, without the batch that
	// began the segment (index adds room for that batch).
	limit   int64
	entries atomic.Int64
	// left is how many bytes can be appended to the newest segment, because their room is
	// reserved and they do not fill the segment.
	left atomic.Int64
}

const (
	// segmentSize is the size of a full segment. The last entries may exceed it, up to
	// the longest possible entry.
	segmentSize = 16 << 20
	// roomStep is how much room a segment reserves at a time.
	roomStep = 256 << 10
	// fillLimit is the length of a write from which its room is not filled with zeros first. For such
	// a write, zeros cost more than the journal does (measured: as much as the journal with
	// 64 KiB, half as much again with 256 KiB).
	fillLimit = 64 << 10
	spareFile = "spare"
)

// errNoRoom means that a write to the log has not begun, because the disk is full.
var errNoRoom = errors.New("no room on the disk for the log")

var _ types.VFS = (*segmentFiles)(nil)

// ListDir implements types.VFS.
func (s *segmentFiles) ListDir(dir string) ([]string, error) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names, nil
}

// Create implements types.VFS.
func (s *segmentFiles) Create(dir, name string, _ uint64) (types.WritableFile, error) {
	s.left.Store(0)
	s.entries.Store(0)
	return &segmentFile{fs: s, path: filepath.Join(dir, name)}, nil
}

// Delete implements types.VFS. A segment that was never written to has no file.
func (s *segmentFiles) Delete(dir, name string) error {
	if err := s.disk.Remove(filepath.Join(dir, name)); err != nil {
		return err
	}
	return s.disk.SyncDir(dir)
}

// OpenReader implements types.VFS.
func (s *segmentFiles) OpenReader(dir, name string) (types.ReadableFile, error) {
	return os.Open(filepath.Join(dir, name))
}

// OpenWriter implements types.VFS. It syncs the file, because raft-wal takes everything
// in it for stored, and writes of an earlier process may not be on the disk yet.
func (s *segmentFiles) OpenWriter(dir, name string) (types.WritableFile, error) {
	f := &segmentFile{fs: s, path: filepath.Join(dir, name)}
	info, err := os.Stat(f.path)
	if err != nil {
		return nil, err
	}
	f.room, f.filled = info.Size(), info.Size()
	s.entries.Store(f.room / 32) // an entry takes more than 32 bytes
	if f.file, err = s.disk.Open(f.path); err != nil {
		return nil, err
	}
	f.file = s.direct(f.file, f.path)
	if err := f.Sync(); err != nil {
		return nil, errors.Join(err, f.file.Close())
	}
	return f, nil
}

// prepare makes sure that the next segment has room to begin.
func (s *segmentFiles) prepare() error {
	if s.spare {
		return nil
	}
	f, err := s.disk.Create(filepath.Join(s.dir, spareFile))
	if err == nil {
		err = errors.Join(f.Reserve(0, roomStep, true), f.Close())
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errNoRoom, err)
	}
	s.spare = true
	return nil
}

// direct returns a file whose appends go past the cache, if they may.
func (s *segmentFiles) direct(f File, path string) File {
	if s.cached {
		return f
	}
	return direct(f, path)
}

// segmentFile is one segment. It needs no lock: only the goroutine that writes makes
// the file, and readers read only what was written.
type segmentFile struct {
	fs     *segmentFiles
	path   string
	file   File  // nil until the first write
	room   int64 // bytes for which the file has disk space
	filled int64 // bytes of that space that were written, if only with zeros
	tight  bool  // the last reserveAhead failed, and no write has reserved room since
	named  bool  // the directory entry is on the disk
}

func (f *segmentFile) make() (err error) {
	if f.fs.spare {
		f.fs.spare = false
		if err := f.fs.disk.Rename(filepath.Join(f.fs.dir, spareFile), f.path); err != nil {
			return err
		}
		if f.file, err = f.fs.disk.Open(f.path); err == nil {
			f.file, f.room, f.filled = f.fs.direct(f.file, f.path), roomStep, roomStep
		}
		return err
	}
	if f.file, err = f.fs.disk.Create(f.path); err == nil {
		f.file = f.fs.direct(f.file, f.path)
	}
	return err
}

// WriteAt implements types.WritableFile.
func (f *segmentFile) WriteAt(p []byte, at int64) (int, error) {
	if f.file == nil {
		if err := f.make(); err != nil {
			return 0, wantsRoom(err)
		}
	}
	end := at + int64(len(p))
	if err := f.reserve(end, len(p)); err != nil {
		return 0, wantsRoom(err)
	}
	f.filled = max(f.filled, min(steps(end), f.room))
	n, err := f.file.WriteAt(p, at)
	if err == nil {
		f.reserveAhead(end, len(p))
	}
	f.fs.left.Store(min(f.room, f.fs.limit-f.fs.index()) - at - int64(n))
	return n, err
}

// reserve reserves room up to an offset for a write of n bytes. For a short write it fills that room with zeros.
func (f *segmentFile) reserve(upTo int64, n int) error {
	fill := n < fillLimit
	if to := min(steps(upTo), f.room); fill && f.filled < to { // longer writes took that room without zeros
		_ = f.file.Reserve(f.filled, to-f.filled, true) // an error only leaves out the zeros
		f.filled = to
	}
	if upTo <= f.room {
		return nil
	}
	room := steps(upTo)
	if err := f.file.Reserve(f.room, room-f.room, fill); err != nil {
		return err
	}
	f.room, f.tight = room, false
	if fill {
		f.filled = room
	}
	return nil
}

// reserveAhead reserves room for the writes that may follow a write of n bytes. It reports no
// error: if there is no room, the write that needs it fails.
func (f *segmentFile) reserveAhead(end int64, n int) {
	next := min(end+min(max(roomStep/4, 2*int64(n)), asyncSize), f.fs.limit)
	if !f.tight && f.reserve(next, n) != nil {
		f.tight = true
	}
}

func steps(n int64) int64 { return (n + roomStep - 1) / roomStep * roomStep }

// index returns an upper bound of the bytes that raft-wal needs for the index of the newest segment.
func (s *segmentFiles) index() int64 { return (s.entries.Load()+2*asyncCount)*4 + EntryOverhead }

// wantsRoom adds errNoRoom to the error of a full disk; the caller has changed nothing yet.
func wantsRoom(err error) error {
	if isFull(err) {
		return fmt.Errorf("%w: %w", errNoRoom, err)
	}
	return err
}

// ReadAt implements types.ReadableFile.
func (f *segmentFile) ReadAt(p []byte, at int64) (int, error) {
	if f.file == nil {
		return 0, io.EOF
	}
	return f.file.ReadAt(p, at)
}

// Sync implements types.WritableFile.
func (f *segmentFile) Sync() error {
	if f.file == nil {
		return nil
	}
	if err := f.file.SyncData(); err != nil || f.named {
		return err
	}
	if err := f.fs.disk.SyncDir(filepath.Dir(f.path)); err != nil {
		return err
	}
	f.named = true
	return nil
}

// Close implements io.Closer.
func (f *segmentFile) Close() error {
	if f.file == nil {
		return nil
	}
	return f.file.Close()
}
