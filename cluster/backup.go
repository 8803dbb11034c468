package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/raft"

	"lockstep/cluster/brake"
	"lockstep/cluster/internal/datadir"
	"lockstep/raftfsm"
)

// Backup begins a backup of the present state, which is written while the caller reads it. The backup
// holds everything that was acknowledged before the call. Without a leader nobody knows what that is, and
// complete is false: then the backup holds everything in this node's log, committed or not. So it may
// lack writes that only other nodes have, and hold writes that were never acknowledged. The caller has to
// close the reader.
func (n *Node) Backup() (r io.ReadCloser, complete bool, err error) {
	ctx, cancel := context.WithTimeout(n.ctx, n.cfg.FailoverWait)
	defer cancel()
	head := raftfsm.BackupHead{Wall: n.cfg.Time.Wall().UnixMicro(), Node: n.cfg.ID}
	var snap *raftfsm.Snapshot
	if !n.cfg.Ephemeral {
		target, ok := n.acknowledged(ctx)
		complete = ok && n.hasApplied(ctx, target)
	} else {
		complete = true
	}
	if !complete {
		if snap, head.Index, err = n.cons.Everything(); err != nil {
			return nil, false, fmt.Errorf("no backup: there is no leader, and what this node's log holds could not be read (%w); start another node, so that there is a leader, or ask one of the others", err)
		}
	} else {
		snap, head.Index = n.fsm.Snapshot(), n.position()
	}
	in, out := io.Pipe()
	go func() { out.CloseWithError(snap.WriteBackup(out, head)) }()
	return in, complete, nil
}

// Everything implements consensus. A node that has been started again and
// has no leader does not know how much of its log is committed, and has applied nothing after its last
// snapshot. But that part of the log may hold what the node has acknowledged.
func (r *raftLog) Everything() (*raftfsm.Snapshot, uint64, error) {
	last, err := r.dir.Log.LastIndex()
	if err != nil {
		return nil, 0, err
	}
	from, fsm := r.dir.Snapshots.Newest(), raftfsm.New(nil)
	last = max(last, from.Index)
	if r.Holds(last) {
		return r.fsm.Snapshot(), last, nil
	}
	if from.Index > 0 {
		_, in, err := r.dir.Snapshots.Open(from.ID)
		if err != nil {
			return nil, 0, err
		}
		if err := errors.Join(fsm.Restore(in), in.Close()); err != nil {
			return nil, 0, err
		}
	}
	fsm.Replay(last) // the replay notifies nobody
	for i := from.Index + 1; i <= last; i++ {
		var l raft.Log
		if err := r.dir.Log.Read(i, &l); err != nil {
			return nil, 0, fmt.Errorf("entry %d: %w", i, err)
		}
		if l.Type != raft.LogCommand {
			continue
		}
		out, err := fsm.Apply(i, l.Data)
		if err != nil {
			return nil, 0, fmt.Errorf("entry %d: %w", i, err)
		}
		brake.Bring(out.Copied)
	}
	return fsm.Snapshot(), last, nil
}

// hasApplied waits until this node has applied an entry.
func (n *Node) hasApplied(ctx context.Context, target uint64) bool {
	tick := time.NewTicker(positionPause)
	defer tick.Stop()
	for {
		// Raft counts an entry as applied when it hands the entry over, before the state holds it.
		if n.cons.Facts().Applied >= target && n.cons.Holds(target) {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
}

// Holds implements consensus.
func (r *raftLog) Holds(index uint64) bool {
	for seen := max(r.fsm.Index(), r.dir.Snapshots.Newest().Index); index > seen; index-- {
		var l raft.Log
		// Entries that are Raft's own do not reach the state.
		if err := r.dir.Log.GetLog(index, &l); err != nil || l.Type == raft.LogCommand {
			return false
		}
	}
	return true
}

// restoredTerm is the term of a cluster that begins with a backup.
const restoredTerm = 1

// Restore makes a data directory that begins with a backup, for a new cluster of one node. It reads the
// whole backup first, and makes the directory under another name, so that a failure leaves no part of a
// directory.
func Restore(cfg Config, backup io.ReadSeeker) (facts raftfsm.BackupFacts, err error) {
	if err := datadir.CheckEmpty(cfg.Data); err != nil {
		return facts, err
	}
	if facts, err = raftfsm.ReadBackup(backup, io.Discard); err != nil {
		return facts, err
	}
	if _, err := backup.Seek(0, io.SeekStart); err != nil {
		return facts, err
	}
	return facts, datadir.Make(cfg.disk, cfg.Data, func(path string) error {
		return makeRestored(cfg, path, backup, max(facts.Index, 1))
	})
}

// makeRestored fills a new directory.
func makeRestored(cfg Config, path string, backup io.Reader, index uint64) error {
	dir, err := openDirectory(&cfg, path, raftLogger(cfg.Logger), datadir.Hooks{})
	if err != nil {
		return err
	}
	defer dir.Close()
	conf := raft.Configuration{Servers: []raft.Server{{ID: raft.ServerID(cfg.ID), Address: raft.ServerAddress(cfg.peerAddr())}}}
	sink, err := dir.Snapshots.Create(raft.SnapshotVersionMax, index, restoredTerm, conf, index, nil)
	if err != nil {
		return err
	}
	if _, err := raftfsm.ReadBackup(backup, sink); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	if err := sink.Close(); err != nil {
		return err
	}
	if err := dir.Begin(index, restoredTerm); err != nil {
		return err
	}
	return dir.Finish(clusterName(nil), false)
}
