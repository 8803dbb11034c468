package raftnode

import (
	"log/slog"
	"sync/atomic"
	"time"
)

// The quota of the data directory. A leader whose directory has more bytes than Config.DataQuota refuses
// requests that add data, as at maxmemory. It still accepts requests that delete, release and renew. Any node
// with a full directory takes a snapshot every quotaPause if there are new entries. After it the node can delete the
// log up to the previous snapshot.

const (
	// quotaTick is how often the node measures a directory with a quota, and sizeTick one without.
	quotaTick = 250 * time.Millisecond
	sizeTick  = 5 * time.Second
	// quotaPause is the pause between two snapshots that a full directory causes.
	quotaPause = 2 * time.Second
)

// quota is what is known of the size of the data directory.
type quota struct {
	size  atomic.Int64 // bytes when it was last measured
	full  atomic.Bool  // size is more than Config.DataQuota
	added atomic.Int64 // bytes that this node has proposed since size was measured
}

// Full reports whether the data directory is above its quota. It adds the bytes that this node has proposed since the
// last measurement.
func (r *Node) Full() bool {
	q := &r.quota
	return q.full.Load() || r.cfg.DataQuota > 0 && q.size.Load()+q.added.Load() > r.cfg.DataQuota
}

// watchDirectory measures the data directory, and shortens the log while the directory is too large. But it does not
// shorten the log until the entries that the log held at the start, up to last, have been applied.
func (r *Node) watchDirectory(last uint64) {
	every := sizeTick
	if r.cfg.DataQuota > 0 {
		every = quotaTick
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	troubles := newSeldom(r.cfg.Logger, slog.LevelWarn, r.cfg.Time.Monotonic)
	var shortened time.Duration
	for {
		if err := r.measureDirectory(); err != nil {
			troubles.say("measure", "the data directory cannot be measured", "error", err)
		}
		now := r.cfg.Time.Monotonic()
		if r.quota.full.Load() && now-shortened > quotaPause && r.applied(last) {
			shortened = now
			if err := r.snapshotShort(); err != nil {
				troubles.say("snapshot", "the snapshot that would make room in the data directory failed", "error", err)
			}
		}
		select {
		case <-r.stop:
			return
		case <-tick.C:
		}
	}
}

func (r *Node) measureDirectory() error {
	added := r.quota.added.Load()
	size, err := r.dir.Size()
	if err != nil {
		return err
	}
	r.quota.size.Store(size)
	r.quota.added.Add(-added)
	full := r.cfg.DataQuota > 0 && size > r.cfg.DataQuota
	if full != r.quota.full.Swap(full) {
		if full {
			r.cfg.Logger.Warn("the data directory is at its quota: while this node leads, nothing may be added", "bytes", size, "quota", r.cfg.DataQuota)
		} else {
			r.cfg.Logger.Info("the data directory is below its quota again", "bytes", size, "quota", r.cfg.DataQuota)
		}
	}
	return nil
}
