package raftnode

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/lockstep-io/lockstep/cluster/brake"
	"github.com/lockstep-io/lockstep/cluster/internal/datadir"
	"github.com/lockstep-io/lockstep/raftfsm"
)

// Everything returns the state after the last entry, committed or not: a restarted node may have acknowledged more than it has
// applied. The entries up to committed are committed; of later ones, this node does not know that.
func (r *Node) Everything() (snap *raftfsm.Snapshot, last, committed uint64, err error) {
	last, err = r.dir.Log.LastIndex()
	if err != nil {
		return nil, 0, 0, err
	}
	last = max(last, r.dir.Snapshots.Newest().Index)
	committed = min(last, max(r.dir.Log.Settled(), r.dir.Snapshots.Newest().Index))
	if r.Holds(last) {
		return r.fsm.Snapshot(), last, committed, nil
	}
	fsm, err := replayed(r.dir, last)
	if err != nil {
		return nil, 0, 0, err
	}
	return fsm.Snapshot(), last, committed, nil
}

// replayed returns the state after the entry at the index last, from the newest snapshot and the log of a directory.
func replayed(dir *datadir.Dir, last uint64) (*raftfsm.FSM, error) {
	from, fsm := dir.Snapshots.Newest(), raftfsm.New(nil)
	if from.Index > 0 {
		_, in, err := dir.Snapshots.Open(from.ID)
		if err != nil {
			return nil, err
		}
		if err := errors.Join(fsm.Restore(in, from.Index), in.Close()); err != nil {
			return nil, err
		}
	}
	fsm.Brake(brake.Bring)
	fsm.Replay(last) // entries up to last are old: applying them sends no messages
	for i := from.Index + 1; i <= last; i++ {
		var l raft.Log
		if err := dir.Log.Read(i, &l); err != nil {
			return nil, fmt.Errorf("entry %d: %w", i, err)
		}
		if l.Type != raft.LogCommand {
			continue
		}
		if _, err := fsm.Apply(i, l.Data); err != nil {
			return nil, fmt.Errorf("entry %d: %w", i, err)
		}
	}
	return fsm, nil
}

// Holds reports whether the state of this node contains the effect of every command up to an index.
func (r *Node) Holds(index uint64) bool {
	seen := r.fsm.Index()
	// A snapshot from the leader is on the disk before the state machine has restored it. So it counts only if Raft has applied it.
	if restored := r.dir.Snapshots.Newest().Index; restored <= r.raft.AppliedIndex() {
		seen = max(seen, restored)
	}
	for ; index > seen; index-- {
		var l raft.Log
		// Raft's own entries do not change the state.
		if err := r.dir.Log.GetLog(index, &l); err != nil || l.Type == raft.LogCommand {
			return false
		}
	}
	return true
}
