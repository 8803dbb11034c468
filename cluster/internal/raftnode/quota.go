package raftnode

import (
	"log/slog"
	"sync/atomic"
	"time"
)

// A leader whose data directory has more bytes than Config.DataQuota refuses requests that add data, as at maxmemory. Requests
// that delete, release and renew may add a little (store/no_room.go). Their reserve limits the data, not the directory, which the
// log and new snapshots also fill.
//
// A node with a full directory takes snapshots, to delete the log up to the previous one. The pause doubles after one that frees
// little (shortenings).

const (
	// quotaTick is how often the node measures a directory with a quota, and sizeTick one without.
	quotaTick = 250 * time.Millisecond
	sizeTick  = 5 * time.Second
	// quotaPause is the pause between two snapshots that a full directory causes. quotaPauseMost is the longest such pause, if snapshots
	// free little.
	quotaPause     = 2 * time.Second
	quotaPauseMost = 4 * time.Minute
	// A snapshot frees little below one part in littleShare of the quota. The state has changed much from one part in muchShare
	// on.
	littleShare = 64
	muchShare   = 8
	// The reserve is one part in reserveShare of the quota.
	reserveShare = 16
)

// quota is what is known of the size of the data directory.
type quota struct {
	size  atomic.Int64 // bytes when it was last measured
	full  atomic.Bool  // size is more than Config.DataQuota
	added atomic.Int64 // bytes that this node has proposed since size was measured
	data  atomic.Int64 // bytes of data when Full found the directory full, plus 1; 0: Full has not found it full
}

// Full reports whether the directory is above its quota. size, data and most are sizes of the data: now, when that began, and at
// most.
func (r *Node) Full(size int64) (data, most int64, full bool) {
	q := &r.quota
	if r.cfg.DataQuota == 0 || q.size.Load()+q.added.Load() <= r.cfg.DataQuota {
		return 0, 0, false
	}
	if data = q.data.Load(); data == 0 {
		data = size + 1
		q.data.Store(data)
	}
	return data - 1, data - 1 + r.cfg.DataQuota/reserveShare, true
}

// watchDirectory measures the data directory and shortens the log while the directory is too large, once entries up to last are
// applied.
func (r *Node) watchDirectory(last uint64) {
	every := sizeTick
	if r.cfg.DataQuota > 0 {
		every = quotaTick
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	troubles := newSeldom(r.cfg.Logger, slog.LevelWarn, r.cfg.Time.Monotonic)
	measure := func() {
		if err := r.measureDirectory(); err != nil {
			troubles.say("measure", "the data directory cannot be measured", "error", err)
		}
	}
	s := shortenings{quota: r.cfg.DataQuota}
	for {
		measure()
		size, data := r.quota.size.Load(), r.fsm.DataSize()
		if s.due(r.cfg.Time.Monotonic(), size, data, r.dir.Log.SinceSnapshot()) && r.applied(last) {
			if err := r.snapshotShort(); err != nil {
				troubles.say("snapshot", "the snapshot that would make room in the data directory failed", "error", err)
			}
			measure()
			s.ended(r.cfg.Time.Monotonic(), size, r.quota.size.Load(), data)
		}
		select {
		case <-r.stop:
			return
		case <-tick.C:
		}
	}
}

// shortenings decides when a full directory causes a snapshot.
type shortenings struct {
	quota int64         // 0: the directory is never full
	at    time.Duration // when the last snapshot ended, monotonic
	pause time.Duration // how long to wait after that snapshot; 0: the directory has not been full since
	size  int64         // the bytes of the directory after the last snapshot
	data  int64         // the bytes of the data in that snapshot
}

// due reports whether to take a snapshot now. log is the length of the log since the newest snapshot, size that of the directory.
func (s *shortenings) due(now time.Duration, size, data, log int64) bool {
	switch {
	case size <= s.quota || s.quota == 0:
		s.pause = 0
		return false
	case now-s.at <= quotaPause:
		return false
	case s.pause == 0:
		return true
	case s.changed(size, data, log):
		s.pause = quotaPause
		return true
	}
	return now-s.at > s.pause && (log > 0 || s.pause == quotaPause)
}

// changed reports whether a snapshot promises to free more than the last one did. Two snapshots are kept, so shrunk counts twice.
func (s *shortenings) changed(size, data, log int64) bool {
	shrunk, much := s.data-data, s.quota/muchShare
	return log >= much || shrunk >= much || shrunk > 0 && size-2*shrunk <= s.quota
}

// ended notes what a snapshot has done: the bytes of the directory before and after it, and the bytes of the data that it holds.
func (s *shortenings) ended(now time.Duration, before, after, data int64) {
	if s.pause == 0 {
		s.size = before
	}
	if s.size-after >= s.quota/littleShare {
		s.pause = quotaPause
	} else {
		s.pause = min(2*max(s.pause, quotaPause), quotaPauseMost)
	}
	s.at, s.size, s.data = now, after, data
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
	if !full {
		r.quota.data.Store(0)
	}
	if full != r.quota.full.Swap(full) {
		if full {
			r.cfg.Logger.Warn("the data directory is at its quota: while this node leads, nothing may be added", "bytes", size, "quota", r.cfg.DataQuota)
		} else {
			r.cfg.Logger.Info("the data directory is below its quota again", "bytes", size, "quota", r.cfg.DataQuota)
		}
	}
	return nil
}
