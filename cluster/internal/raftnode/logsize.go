package raftnode

import (
	"errors"
	"time"

	"github.com/hashicorp/raft"
)

// Raft takes a snapshot after a number of entries. The node also takes one when the log since the last is longer than both
// Config.SnapshotBytes and logPerData times the data: more frequent snapshots would cost more than the log. The whole log is at
// most about twice as long (datadir.Log).

const (
	// The log since the last snapshot must be more than logPerData times as large as the data before its size causes
	// a new snapshot.
	logPerData = 4
	// After a snapshot for the log's size, Raft keeps at most one in trailingShare of the entries since the previous one, for
	// late followers.
	trailingShare = 4
	// boundPause is how long boundLog waits after a failed snapshot before it tries the next, because the disk may have no room for one.
	boundPause = time.Second
)

// boundLog takes a snapshot whenever the log has become large, but not before the entries up to last are applied.
func (r *Node) boundLog(last uint64) {
	if !r.awaitApplied(last) {
		return
	}
	for {
		select {
		case <-r.stop:
			return
		case <-r.dir.Log.Grown():
		}
		if r.dir.Log.SinceSnapshot() <= logPerData*r.fsm.DataSize() {
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

// snapshotShort takes a snapshot and lets Raft keep few entries (trailingShare): TrailingLogs is meant for small ones.
// datadir.Log still keeps more.
func (r *Node) snapshotShort() error {
	r.shortening.Lock()
	defer r.shortening.Unlock()
	usual := r.raft.ReloadableConfig()
	short := usual
	since := r.raft.LastIndex() - min(r.raft.LastIndex(), r.dir.Snapshots.Newest().Index)
	short.TrailingLogs = min(usual.TrailingLogs, since/trailingShare)
	if err := r.raft.ReloadConfig(short); err != nil {
		return err
	}
	return errors.Join(r.Snapshot(), r.raft.ReloadConfig(usual))
}
