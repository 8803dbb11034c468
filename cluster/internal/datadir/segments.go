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

// segmentFiles is the file system that raft-wal has its segments on. It differs
// from raft-wal's own in when a file gets its room.
//
// raft-wal notes a new segment in its list first and makes the file afterwards,
// both while it does something else: closes a full segment, cuts back a log. If
// there is no room for the file then, list and memory differ, and it takes no
// entry any more. So here making a file cannot fail for want of room: it is made
// by the first write to it. And a write gets its room before it begins, so one
// for which there is none has changed nothing and may be tried again.
//
// Room is taken in steps, and not for a whole segment: a log that is cut back
// often has many segments with little in them. It is taken before it is needed:
// a leader writes first what may not find its room (asyncWrites).
type segmentFiles struct {
	disk Files
	dir  string
	// spare says that there is a file with room for the beginning of a segment.
	spare bool
	// limit is how long a segment becomes, entries how many the newest one has at most.
	limit   int64
	entries atomic.Int64
	// left is how much can be appended to the newest segment: it has the room, and is
	// not full then.
	left atomic.Int64
}

const (
	// segmentSize is how long a segment becomes: with its last entries longer, up
	// to one that is as long as an entry may be.
	segmentSize = 16 << 20
	// roomStep is how much room a segment takes at a time.
	roomStep = 256 << 10
	// fillLimit is from what length on a write fills its room itself. Writing zeros first
	// would cost it more than the journal does (measured: the same with 64 KiB, half as
	// much again with 256 KiB).
	fillLimit = 64 << 10
	spareFile = "spare"
)

// errNoRoom is a write to the log that has not begun, because the disk is full.
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

// OpenWriter implements types.VFS. What an earlier process has written may not be
// on the disk yet, and raft-wal counts as stored what it finds.
func (s *segmentFiles) OpenWriter(dir, name string) (types.WritableFile, error) {
	f := &segmentFile{fs: s, path: filepath.Join(dir, name)}
	info, err := os.Stat(f.path)
	if err != nil {
		return nil, err
	}
	f.room, f.filled = info.Size(), info.Size()
	s.entries.Store(f.room / 32) // an entry is longer
	if f.file, err = s.disk.Open(f.path); err != nil {
		return nil, err
	}
	f.file = direct(f.file, f.path)
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

// segmentFile is one segment. Only its writer's goroutine makes the file, and
// readers look only for what was written.
type segmentFile struct {
	fs     *segmentFiles
	path   string
	file   File  // nil until the first write
	room   int64 // so much of it is on the disk
	filled int64 // so much of that was written, if only with zeros
	tight  bool  // room could not be taken ahead, and none was needed since
	named  bool  // its name is on the disk
}

func (f *segmentFile) make() (err error) {
	if f.fs.spare {
		f.fs.spare = false
		if err := f.fs.disk.Rename(filepath.Join(f.fs.dir, spareFile), f.path); err != nil {
			return err
		}
		if f.file, err = f.fs.disk.Open(f.path); err == nil {
			f.file, f.room, f.filled = direct(f.file, f.path), roomStep, roomStep
		}
		return err
	}
	if f.file, err = f.fs.disk.Create(f.path); err == nil {
		f.file = direct(f.file, f.path)
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

// reserve takes room up to a place, for writes of n bytes.
func (f *segmentFile) reserve(upTo int64, n int) error {
	fill := n < fillLimit
	if to := min(steps(upTo), f.room); fill && f.filled < to { // longer writes took that room
		_ = f.file.Reserve(f.filled, to-f.filled, true) // it is there in any case
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

// reserveAhead takes room for what may come after a write of n bytes. Who needs that
// room is told if there is none.
func (f *segmentFile) reserveAhead(end int64, n int) {
	next := min(end+min(max(roomStep/4, 2*int64(n)), asyncSize), f.fs.limit)
	if !f.tight && f.reserve(next, n) != nil {
		f.tight = true
	}
}

func steps(n int64) int64 { return (n + roomStep - 1) / roomStep * roomStep }

// index is how much of a segment raft-wal keeps for its index, at most.
func (s *segmentFiles) index() int64 { return (s.entries.Load()+2*asyncCount)*4 + EntryOverhead }

// wantsRoom marks the error of what comes before a write.
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
