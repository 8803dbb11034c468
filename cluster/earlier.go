package cluster

import (
	"io"
	"sync/atomic"

	"github.com/lockstep-io/lockstep/cluster/brake"
	"github.com/lockstep-io/lockstep/raftfsm"
)

// earlierStates are the states that are still read for a hash or a backup. Memory keeps their data, also what has been
// overwritten.
type earlierStates struct {
	hashed atomic.Pointer[earlier]
	backup atomic.Pointer[earlier] // the server reads one backup at a time
}

// earlier is a state that is being read.
type earlier struct {
	over   chan struct{} // closed when the read is over
	giveUp func()        // ends the read early, if that is possible
}

// hash returns the hash of a state. It reads the whole state; the node keeps serving. One hash is computed at a time (StateHash).
func (n *Node) hash(snap *raftfsm.Snapshot) (string, error) {
	e := &earlier{over: make(chan struct{}), giveUp: func() {}}
	n.earlier.hashed.Store(e)
	defer n.earlier.hashed.Store(nil)
	defer close(e.over)
	return snap.Hash()
}

// writeBackup returns a reader of a backup that is written while it is read. letGo may end it early with errBackupGivenUp.
func (n *Node) writeBackup(snap *raftfsm.Snapshot, head raftfsm.BackupHead) io.ReadCloser {
	in, out := io.Pipe()
	e := &earlier{over: make(chan struct{}), giveUp: func() { out.CloseWithError(errBackupGivenUp) }}
	n.earlier.backup.Store(e)
	go func() {
		defer n.earlier.backup.CompareAndSwap(e, nil)
		defer close(e.over)
		out.CloseWithError(snap.WriteBackup(out, head))
	}()
	return in
}

// bring must be called before data is copied for a change. It waits for the collector, and lets go of earlier states if need be.
func (n *Node) bring(bytes int) {
	brake.Bring(bytes)
	if brake.Crowded() {
		n.letGo()
	}
}

// letGo ends the reading of earlier states. It waits for a hash, which ends soon, and cancels a backup, which may not.
func (n *Node) letGo() {
	for _, e := range []*earlier{n.earlier.hashed.Load(), n.earlier.backup.Load()} {
		if e != nil {
			e.giveUp()
			<-e.over
		}
	}
}
