package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/metadb"
)

// The kinds of log store.
const (
	// LogWAL is hashicorp/raft-wal: segment files, one disk sync per append.
	LogWAL = "wal"
	// LogBolt is raft-boltdb: a B+tree in raft.db, two disk syncs per append.
	LogBolt = "bolt"
)

// logStore is Raft's log on disk.
type logStore interface {
	raft.LogStore
	// IsMonotonic reports that the store takes no gaps; see
	// raft.MonotonicLogStore.
	IsMonotonic() bool
	Close() error
}

// walLog is raft-wal as a log store. raft-wal leaves the database of its
// segments open; we close it.
type walLog struct {
	*wal.WAL
	meta *metadb.BoltMetaDB
}

// openWAL opens the segment files in dir.
func openWAL(dir string, logs hclog.Logger) (logStore, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := checkBolt(filepath.Join(dir, metadb.FileName)); err != nil {
		return nil, err
	}
	l := walLog{meta: new(metadb.BoltMetaDB)}
	var err error
	if l.WAL, err = wal.Open(dir, wal.WithLogger(logs), wal.WithMetaStore(l.meta)); err != nil {
		return nil, errors.Join(err, l.meta.Close())
	}
	return l, nil
}

// Close implements logStore.
func (l walLog) Close() error { return errors.Join(l.WAL.Close(), l.meta.Close()) }

// boltLog is raft-boltdb as a log store; the term and the vote share its file.
type boltLog struct{ raft.LogStore }

func (boltLog) IsMonotonic() bool { return false }
func (boltLog) Close() error      { return nil } // closed as the stable store

// touchEnds reads the first and the last entry of a log: damage shows at the
// start, not under load.
func touchEnds(log raft.LogStore) (last uint64, err error) {
	var l raft.Log
	first, err := log.FirstIndex()
	if err == nil && first > 0 {
		err = log.GetLog(first, &l)
	}
	last, err2 := log.LastIndex()
	if err2 == nil && last > 0 {
		err2 = log.GetLog(last, &l)
	}
	return last, errors.Join(err, err2)
}

// guardedLog remembers, in a file of its own, how far the log reached. A log
// store takes a damaged end for a write that a crash has torn, and goes on with
// a shorter log: right if the write was the last one, a broken promise if the
// entries behind the damage were acknowledged. The file tells the two apart. It
// is written after the log and not synced, so after a power failure it may say
// less than is there, never more.
type guardedLog struct {
	logStore

	first atomic.Uint64 // entries below it are gone

	mu   sync.Mutex
	file *os.File
	last uint64
}

// markLen is the length of the file: index of the last entry, checksum.
const markLen = 12

var markTable = crc32.MakeTable(crc32.Castagnoli)

var errNoMark = errors.New("it does not say how far the log reached")

// openGuarded checks the log against the file at path. A directory that is new
// has no such file yet.
func openGuarded(log logStore, path string, isNew bool) (*guardedLog, error) {
	last, err := touchEnds(log)
	if err != nil {
		return nil, err
	}
	mark, err := readMark(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && isNew:
	case err != nil:
		return nil, fmt.Errorf("%s: %w", filepath.Base(path), err)
	case last < mark:
		return nil, fmt.Errorf("it ends at entry %d and has reached %d", last, mark)
	}
	first, err := log.FirstIndex()
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	g := &guardedLog{logStore: log, file: f}
	g.first.Store(first)
	if err := errors.Join(g.write(last), f.Sync()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return g, nil
}

func readMark(path string) (uint64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	if len(b) != markLen || crc32.Checksum(b[:8], markTable) != binary.LittleEndian.Uint32(b[8:]) {
		return 0, errNoMark
	}
	return binary.LittleEndian.Uint64(b), nil
}

func (g *guardedLog) write(last uint64) error {
	var b [markLen]byte
	binary.LittleEndian.PutUint64(b[:], last)
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b[:8], markTable))
	if _, err := g.file.WriteAt(b[:], 0); err != nil {
		return err
	}
	g.last = last
	return nil
}

// StoreLog implements raft.LogStore.
func (g *guardedLog) StoreLog(l *raft.Log) error { return g.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore.
func (g *guardedLog) StoreLogs(logs []*raft.Log) error {
	if err := g.logStore.StoreLogs(logs); err != nil || len(logs) == 0 {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.write(logs[len(logs)-1].Index)
}

// DeleteRange implements raft.LogStore. Entries at the end go when another
// leader's log replaces them; the mark goes first, so that a crash in between
// leaves no entry missing that it promises.
func (g *guardedLog) DeleteRange(first, last uint64) error {
	g.mu.Lock()
	if last >= g.last {
		left, err := g.left(first)
		if err == nil {
			err = errors.Join(g.write(left), g.file.Sync())
		}
		if err != nil {
			g.mu.Unlock()
			return err
		}
	}
	g.mu.Unlock()
	if err := g.logStore.DeleteRange(first, last); err != nil {
		return err
	}
	low, err := g.FirstIndex()
	g.first.Store(low)
	return err
}

// GetLog implements raft.LogStore. raft-wal goes on to return deleted entries
// that still lie in its newest segment.
func (g *guardedLog) GetLog(index uint64, l *raft.Log) error {
	if index < g.first.Load() {
		return raft.ErrLogNotFound
	}
	return g.logStore.GetLog(index, l)
}

// left is the last index when everything from first on is gone.
func (g *guardedLog) left(first uint64) (uint64, error) {
	low, err := g.FirstIndex()
	if err != nil || first <= low {
		return 0, err
	}
	return first - 1, nil
}

// Close implements logStore.
func (g *guardedLog) Close() error {
	return errors.Join(g.logStore.Close(), g.file.Close())
}
