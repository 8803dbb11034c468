package cluster

import (
	"errors"
	"time"

	"github.com/hashicorp/raft"
)

// How large the log becomes. Raft takes a snapshot after a number of entries, and keeps
// another number behind it; but an entry may be 50 bytes or some megabytes. So a snapshot is
// also taken when the log since the last one has more bytes than Config.SnapshotBytes, and
// than logPerData times the data: a snapshot costs what the data takes, and more often it
// would cost more than the log does. The log is deleted up to the snapshot before (datadir.Log),
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

// snapshotShort takes a snapshot that leaves a part of the entries behind it: TrailingLogs is
// meant for small ones.
func (r *raftLog) snapshotShort() error {
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
