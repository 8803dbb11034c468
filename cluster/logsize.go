package cluster

import (
	"errors"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// How large the log becomes. Raft takes a snapshot after a number of entries, and keeps
// another number behind it; but an entry may be 50 bytes or some megabytes. So a snapshot is
// also taken when the log since the last one has more bytes than Config.SnapshotBytes, and
// than logPerData times the data: a snapshot costs what the data takes, and more often it
// would cost more than the log does. The log is deleted up to the snapshot before (guard.go),
// so it has about twice as much.
//
// A snapshot that is taken for its bytes leaves a quarter of the entries since the last one behind it,
// but never less than the snapshot before needs.

const (
	// logPerData is how many times the data the log since a snapshot may have.
	logPerData = 4
	// trailingShare is which part of the entries since the last snapshot stays behind the new
	// one, at least, for followers that are a little late.
	trailingShare = 4
	// boundPause is how long after a failed snapshot the next is tried: the disk may have no
	// room for one.
	boundPause = time.Second
)

// growth counts the bytes of the log since the newest snapshot.
type growth struct {
	much chan struct{} // has room for one: there are more bytes than limit

	mu    sync.Mutex
	limit int64
	from  uint64 // index of the snapshot
	bytes int64
}

// add counts entries that have been appended; from is the index of the newest snapshot.
func (g *growth) add(logs []*raft.Log, from uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if from != g.from {
		g.from, g.bytes = from, 0
	}
	for _, l := range logs {
		g.bytes += int64(len(l.Data)) + entryOverhead
	}
	g.tell()
}

// tell signals that there is much; mu is held.
func (g *growth) tell() {
	if g.limit <= 0 || g.bytes <= g.limit {
		return
	}
	select {
	case g.much <- struct{}{}:
	default:
	}
}

// since returns how many bytes came after the newest snapshot, whose index is from.
func (g *growth) since(from uint64) int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if from != g.from {
		return 0
	}
	return g.bytes
}

// measureLog begins to count at the start, by the files that are there: what the entries
// since the newest snapshot take, if all are of one size.
func (st *storage) measureLog(limit int64, last uint64) error {
	first, err := st.log.FirstIndex()
	if err != nil {
		return err
	}
	total, err := filesIn(filepath.Join(st.dir, walDir))
	if err == nil && total == 0 {
		total, err = filesIn(filepath.Join(st.dir, boltFile))
	}
	if err != nil {
		return err
	}
	from := st.snaps.newest().Index
	g := &st.guard.grown
	g.mu.Lock()
	defer g.mu.Unlock()
	g.limit, g.from = limit, from
	if entries := last - min(first, last) + 1; last > from && entries > 0 {
		g.bytes = total / int64(entries) * int64(min(last-from, entries))
	}
	g.tell()
	return nil
}

// filesIn returns the bytes of the files in a directory and those in it.
func filesIn(dir string) (bytes int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return gone(err)
		}
		info, err := d.Info()
		if err == nil {
			bytes += info.Size()
		}
		return gone(err)
	})
	return bytes, err
}

// gone is nil for what has been deleted meanwhile.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// boundLog takes a snapshot whenever the log has become large since the last one, from when what
// it held at the start, up to last, has been applied.
func (r *raftLog) boundLog(last uint64) {
	if !r.awaitApplied(last) {
		return
	}
	for {
		select {
		case <-r.stop:
			return
		case <-r.st.guard.grown.much:
		}
		if r.st.guard.grown.since(r.st.snaps.newest().Index) <= logPerData*r.fsm.DataSize() {
			continue
		}
		err := r.snapshotShort()
		if err == nil {
			continue
		}
		if !errors.Is(err, raft.ErrRaftShutdown) {
			r.cfg.Logger.Warn("the log is large, and the snapshot that would make it shorter failed", "error", err)
		}
		select {
		case <-r.stop:
			return
		case <-time.After(boundPause):
		}
	}
}

// snapshotShort takes a snapshot that leaves a part of the entries behind it: TrailingLogs is
// meant for small ones.
func (r *raftLog) snapshotShort() error {
	r.shortening.Lock()
	defer r.shortening.Unlock()
	usual := r.raft.ReloadableConfig()
	short := usual
	since := r.raft.LastIndex() - min(r.raft.LastIndex(), r.st.snaps.newest().Index)
	short.TrailingLogs = min(usual.TrailingLogs, since/trailingShare)
	if err := r.raft.ReloadConfig(short); err != nil {
		return err
	}
	return errors.Join(r.Snapshot(), r.raft.ReloadConfig(usual))
}
