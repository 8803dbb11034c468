package datadir

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"

	"github.com/hashicorp/raft"
)

// growth counts the bytes that were appended to the log after the newest snapshot was stored.
type growth struct {
	much chan struct{} // has room for one value, which says that g.bytes is above g.limit

	mu    sync.Mutex
	limit int64  // 0: never signal
	from  uint64 // index of the newest snapshot
	bytes int64  // appended after that snapshot was stored
}

// add counts the bytes of entries that were appended. The parameter from is the index of the newest snapshot.
func (g *growth) add(logs []*raft.Log, from uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if from != g.from {
		g.from, g.bytes = from, 0
	}
	for _, l := range logs {
		g.bytes += int64(len(l.Data)) + EntryOverhead
	}
	g.tell()
}

// tell sends a value to g.much if g.bytes is above g.limit. The caller holds mu.
func (g *growth) tell() {
	if g.limit <= 0 || g.bytes <= g.limit {
		return
	}
	select {
	case g.much <- struct{}{}:
	default:
	}
}

// since returns how many bytes were appended after the newest snapshot was stored. The parameter from is
// the index of that snapshot.
func (g *growth) since(from uint64) int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if from != g.from {
		return 0
	}
	return g.bytes
}

// Grown returns a channel that gets a value when the bytes appended since the newest snapshot exceed MeasureLog's limit.
func (g *Log) Grown() <-chan struct{} { return g.grown.much }

// SinceSnapshot returns how many bytes were appended to the log after the newest snapshot was stored.
func (g *Log) SinceSnapshot() int64 { return g.grown.since(g.snaps.Newest().Index) }

// MeasureLog sets Grown's limit in bytes. MeasureLog estimates the bytes behind the newest snapshot as if all entries were equally long.
func (d *Dir) MeasureLog(limit int64, last uint64) error {
	first, err := d.Log.FirstIndex()
	if err != nil {
		return err
	}
	total, err := filesIn(filepath.Join(d.path, walDir))
	if err == nil && total == 0 {
		total, err = filesIn(filepath.Join(d.path, boltFile))
	}
	if err != nil {
		return err
	}
	from := d.Snapshots.Newest().Index
	g := &d.Log.grown
	g.mu.Lock()
	defer g.mu.Unlock()
	g.limit, g.from = limit, from
	if entries := last - min(first, last) + 1; last > from && entries > 0 {
		g.bytes = total / int64(entries) * int64(min(last-from, entries))
	}
	g.tell()
	return nil
}

// Size returns the total bytes of the files in the directory, without those that a recovery has kept.
func (d *Dir) Size() (int64, error) { return filesIn(d.path) }

// filesIn returns the total bytes of all files below a directory, without lost+found, which only root may read, and kept old contents.
func filesIn(dir string) (bytes int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (d.Name() == lostAndFound || strings.HasPrefix(d.Name(), keptPrefix)) {
			return fs.SkipDir
		}
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

// gone returns nil if err says that a file does not exist any more, else err.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
