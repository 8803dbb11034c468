package datadir

import (
	"errors"
	"io/fs"
	"path/filepath"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/metadb"
	segments "github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
)

// These are the kinds of log store.
const (
	// LogWAL is hashicorp/raft-wal: segment files, one disk sync per append.
	LogWAL = "wal"
	// LogBolt is raft-boltdb: a B+tree in raft.db, two disk syncs per append.
	LogBolt = "bolt"
)

// logStore is Raft's log on disk.
type logStore interface {
	raft.LogStore
	// IsMonotonic reports whether the store refuses gaps between entries; see
	// raft.MonotonicLogStore.
	IsMonotonic() bool
	// prepare reserves the disk space that the first append after a cut of the log's end needs.
	prepare() error
	// room returns how many bytes can be appended in the disk space that is already reserved.
	room() int64
	// lacked returns how many bytes of disk space were missing when an append or prepare last failed; 0 if that is not known.
	lacked() int64
	Close() error
}

// walLog is raft-wal as a log store. Its Close also closes the list of segments, which raft-wal leaves open.
type walLog struct {
	*wal.WAL
	meta  *metadb.BoltMetaDB
	list  rotatedMeta
	files *segmentFiles
}

// openWAL opens the log whose segment files are in dir. The parameter reached is the index of the last entry that the log
// should have.
func openWAL(d Disk, dir string, reached uint64, logs hclog.Logger) (logStore, error) {
	if err := d.Mkdir(dir); err != nil {
		return nil, err
	}
	if err := checkBolt(filepath.Join(dir, metadb.FileName)); err != nil {
		return nil, err
	}
	l := walLog{meta: new(metadb.BoltMetaDB), files: &segmentFiles{disk: d.Files, dir: dir, cached: d.PageCache, limit: int64(d.SegmentSize)}}
	filer := segments.NewFiler(dir, l.files)
	l.list = rotatedMeta{MetaStore: d.Meta(l.meta), files: d.Files, filer: filer, reached: reached, failed: new(atomic.Pointer[error])}
	var err error
	l.WAL, err = wal.Open(dir, wal.WithLogger(logs), wal.WithMetaStore(l.list), wal.WithSegmentFiler(leanFiler{filer}), wal.WithSegmentSize(d.SegmentSize))
	if err != nil {
		return nil, errors.Join(err, l.meta.Close())
	}
	return l, nil
}

// rotatedMeta is raft-wal's list of segments. If a process ended before it listed the next segment, raft-wal would accept no entries, so
// Load adds that segment. Load also checks the segments, and clears torn writes (seal.go).
type rotatedMeta struct {
	types.MetaStore
	files Files
	filer types.SegmentFiler
	// reached is the index of the last entry that the log should have.
	reached uint64
	// failed is the error of the last write of the list. raft-wal may write the list after StoreLogs; the next StoreLogs reports the
	// error.
	failed *atomic.Pointer[error]
}

// CommitState implements types.MetaStore.
func (m rotatedMeta) CommitState(state types.PersistentState) error {
	err := m.MetaStore.CommitState(state)
	m.failed.Store(&err)
	return err
}

// StoreLogs implements raft.LogStore.
func (l walLog) StoreLogs(logs []*raft.Log) error {
	l.files.entries.Add(int64(len(logs)))
	err := l.WAL.StoreLogs(logs)
	if errors.Is(err, wal.ErrSealed) {
		if why := l.list.failed.Load(); why != nil {
			err = errors.Join(err, *why)
		}
	}
	return err
}

func (l walLog) prepare() error { return l.files.prepare() }
func (l walLog) room() int64    { return l.files.left.Load() }
func (l walLog) lacked() int64  { return l.files.lacked }

func (m rotatedMeta) Load(dir string) (types.PersistentState, error) {
	state, err := m.MetaStore.Load(dir)
	if err != nil || len(state.Segments) == 0 {
		return state, err
	}
	tail := &state.Segments[len(state.Segments)-1]
	for _, segment := range state.Segments {
		if segment.SealTime.IsZero() {
			continue
		}
		if err := checkFull(filepath.Join(dir, segments.FileName(segment)), segment); err != nil {
			return state, err
		}
	}
	if !tail.SealTime.IsZero() {
		return state, nil
	}
	path := filepath.Join(dir, segments.FileName(*tail))
	good, err := checkTail(path, tail.BaseIndex, m.reached)
	if errors.Is(err, fs.ErrNotExist) {
		return state, nil // nothing was written to the segment
	}
	if err != nil || good.last(tail.BaseIndex) < m.reached {
		return state, err // a log that is too short stays as it is, because Open refuses it
	}
	if err := clearTail(m.files, path, good.end); err != nil {
		return state, err
	}
	w, err := m.filer.RecoverTail(*tail)
	if err != nil {
		return state, err
	}
	sealed, indexStart, err := w.Sealed()
	last := max(w.LastIndex(), tail.BaseIndex-1)
	if err = errors.Join(err, w.Close()); err != nil || !sealed {
		return state, err
	}
	tail.SealTime, tail.MaxIndex, tail.IndexStart = tail.CreateTime, last, indexStart
	state.Segments = append(state.Segments, types.SegmentInfo{
		ID: state.NextSegmentID, BaseIndex: last + 1, MinIndex: last + 1,
		Codec: tail.Codec, CreateTime: tail.CreateTime, SizeLimit: tail.SizeLimit,
	})
	state.NextSegmentID++
	return state, m.CommitState(state)
}

// Close implements logStore.
func (l walLog) Close() error { return errors.Join(l.WAL.Close(), l.meta.Close()) }

// touchEnds reads the first and the last entry, so that the start finds damage there. It returns the last index.
func touchEnds(log raft.LogStore) (last uint64, err error) {
	var l raft.Log
	first, err := log.FirstIndex()
	if err == nil && first > 0 {
		err = readSound(log, first, &l)
	}
	last, err2 := log.LastIndex()
	if err2 == nil && last > 0 {
		err2 = readSound(log, last, &l)
	}
	return last, errors.Join(err, err2)
}
