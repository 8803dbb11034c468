package raftnode

import (
	"errors"
	"time"

	"github.com/hashicorp/raft"
)

// How large the log becomes. Raft takes a snapshot after a number of entries, and keeps a number of the entries before it in the log. But
// an entry may be 50 bytes or some megabytes, so the node also takes a snapshot when the log is large. Two conditions must hold: the log
// since the last snapshot has more bytes than Config.SnapshotBytes, and more than logPerData times as many bytes as the data. The second
// condition is needed because a snapshot writes all data, and more frequent snapshots would cost more than the log does. The log is
// deleted up to the snapshot before the last (datadir.Log), so the whole log is at most about twice as long as the log since the last
// snapshot may be.
//
// If the size of the log has caused a snapshot, Raft is to keep a quarter of the entries since the previous snapshot, or
// TrailingLogs entries if they are fewer. The log (datadir.Log) still keeps all entries after the previous snapshot.

const (
	// The log since the last snapshot must be more than logPerData times as large as the data before its size causes
	// a new snapshot.
	logPerData = 4
	// If the size of the log has caused a snapshot, one in trailingShare of the entries since the previous snapshot stays in
	// the log, or TrailingLogs entries if they are fewer. Followers that are a little late need them.
	trailingShare = 4
	// boundPause is how long boundLog waits after a failed snapshot before it tries the next, because the disk may have no room for one.
	boundPause = time.Second
)

// boundLog waits until the entries that the log held at the start, up to the index last, have been applied. Then it takes a
// snapshot whenever the log has become large since the last one.
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

// snapshotShort takes a snapshot and lets Raft keep no more than a quarter (trailingShare) of the entries since the previous
// snapshot: TrailingLogs is meant for small entries, and might keep many more. datadir.Log still keeps all entries after the
// previous snapshot.
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
