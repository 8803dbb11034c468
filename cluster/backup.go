package cluster

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/datadir"
	"github.com/lockstep-io/lockstep/cluster/internal/raftnode"
	"github.com/lockstep-io/lockstep/raftfsm"
	"github.com/lockstep-io/lockstep/store"
)

// Backup is a backup that is written while it is read.
type Backup struct {
	io.ReadCloser
	Users store.Accounts // the users in the state of the backup
}

// Backup begins a backup of the present state, which is written while the caller reads r. The caller must close r.
//
// complete means that the backup has every write acknowledged before the call. Otherwise it has this node's whole log, committed
// or not.
func (n *Node) Backup() (r *Backup, complete bool, err error) {
	ctx, cancel := context.WithTimeout(n.ctx, n.cfg.FailoverWait)
	defer cancel()
	head := raftfsm.BackupHead{Wall: n.cfg.Time.Wall().UnixMicro(), Node: n.cfg.ID}
	var snap *raftfsm.Snapshot
	if !n.cfg.Ephemeral {
		target, ok := n.confirmed(ctx)
		complete = ok && n.hasApplied(ctx, target)
	} else {
		complete = true
	}
	if !complete {
		head.Partial = true
		if snap, head.Index, head.Committed, err = n.cons.Everything(); err != nil {
			return nil, false, fmt.Errorf("no backup: there is no leader, or this node is behind it, and what this node's log holds could not be read (%w); start another node, so that there is a leader, or ask one of the others", err)
		}
	} else {
		snap, head.Index = n.fsm.Snapshot(), n.position()
	}
	return &Backup{n.writeBackup(snap, head), snap.Accounts()}, complete, nil
}

// hasApplied waits until this node has applied the entry with the index target. It returns false if ctx ends first.
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

// Restore makes a data directory for a new cluster of one node. No node can start with an incomplete one. Of a failed Restore,
// only the file LOCK stays. The tokens of the new cluster are larger than those in the backup, the time of day in µs, and tokensAbove.
func Restore(cfg Config, backup io.ReadSeeker, tokensAbove int64) (facts raftfsm.BackupFacts, err error) {
	if err := raftnode.CheckFounder(cfg.peerAddr()); err != nil {
		return facts, err
	}
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
		above := max(tokensAbove, cfg.Time.Wall().UnixMicro())
		return raftnode.Restore(cfg.raft(nil, nil), path, backup, max(facts.Index, 1), above)
	})
}
