package cluster

import (
	"errors"
	"io/fs"
	"path/filepath"
	"sync"

	"github.com/hashicorp/raft"
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
