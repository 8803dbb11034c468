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

// segmentFiles is the types.VFS for raft-wal's segments. raft-wal lists a segment before it calls Create, and would accept no entries if
// Create failed for lack of space. So the first write makes the file. Each write first reserves its space, so that a failure changes
// nothing.
//
// A segment reserves space in steps, because many segments stay short. It reserves ahead, because asyncWrites takes only entries with
// reserved space.
type segmentFiles struct {
	disk Files
	dir  string
	// cached means that all writes go through the kernel's page cache.
	cached bool
	// spare means that prepare has made spareFile, with room for the beginning of a segment, and no segment has used it yet.
	spare bool
	// limit is the size of a full segment. entries bounds the entries of the newest segment, without its first batch if Create came
	// after it.
	limit   int64
	entries atomic.Int64
	// left is how many bytes can be appended to the newest segment in the room that is reserved, before the segment is full.
	left atomic.Int64
	// lacked is how many bytes of disk space were missing when a write or prepare last failed. Log.mu guards it.
	lacked int64
}

const (
	// segmentSize is the size of a full segment. The last batch of entries may make the
	// segment longer.
	segmentSize = 16 << 20
	// roomStep is the unit in which a segment reserves room.
	roomStep = 256 << 10
	// fillLimit is the length from which on a write gets room without zeros: they would cost more than they save (reserve).
	fillLimit = 64 << 10
	spareFile = "spare"
)

// ErrNoRoom means that the disk is full, and that therefore a change of the log has not begun.
var ErrNoRoom = errors.New("no room on the disk for the log")

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

// OpenWriter implements types.VFS. It syncs the file, because raft-wal relies on all of it, and an earlier process may not have synced
// it.
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

// prepare makes spareFile, so that the next segment has room for its beginning.
func (s *segmentFiles) prepare() error {
	if s.spare {
		return nil
	}
	f, err := s.disk.Create(filepath.Join(s.dir, spareFile))
	if err == nil {
		err = errors.Join(f.Reserve(0, roomStep, true), f.Close())
	}
	if err != nil {
		s.lacked = roomStep
		return fmt.Errorf("%w: %w", ErrNoRoom, err)
	}
	s.spare = true
	return nil
}

// direct returns a file whose appends go past the page cache; if cached is set, it returns f.
func (s *segmentFiles) direct(f File, path string) File {
	if s.cached {
		return f
	}
	return direct(f, path)
}

// segmentFile is one segment. It needs no lock: only one goroutine writes, and others read only what was written before.
type segmentFile struct {
	fs     *segmentFiles
	path   string
	file   File  // nil until the first write
	room   int64 // bytes for which the file has disk space
	filled int64 // bytes of that space that were written, at least with zeros
	tight  bool  // reserveAhead found no room, and no write has reserved room since
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
		f.fs.lacked = steps(end) - f.room
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

// reserve reserves room up to the offset upTo for a write of n bytes. For a short write it fills that room with zeros.
func (f *segmentFile) reserve(upTo int64, n int) error {
	fill := n < fillLimit
	if to := min(steps(upTo), f.room); fill && f.filled < to { // longer writes reserved the room from f.filled on without zeros
		_ = f.file.Reserve(f.filled, to-f.filled, true) // after an error only the zeros are missing
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

// reserveAhead reserves room behind a write of n bytes up to the offset end. Without room, the write that needs it will fail.
func (f *segmentFile) reserveAhead(end int64, n int) {
	next := min(end+min(max(roomStep/4, 2*int64(n)), asyncSize), f.fs.limit)
	if !f.tight && f.reserve(next, n) != nil {
		f.tight = true
	}
}

func steps(n int64) int64 { return (n + roomStep - 1) / roomStep * roomStep }

// index returns an upper bound of the bytes that raft-wal needs for the index that it writes at the end of the newest segment.
func (s *segmentFiles) index() int64 { return (s.entries.Load()+2*asyncCount)*4 + EntryOverhead }

// wantsRoom adds ErrNoRoom to the error of a full disk. Call it only if the failed operation has changed nothing.
func wantsRoom(err error) error {
	if isFull(err) {
		return fmt.Errorf("%w: %w", ErrNoRoom, err)
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
