package cluster

import (
	"io"
	"sync/atomic"

	"lockstep/cluster/brake"
	"lockstep/raftfsm"
)

// earlierStates are the states of a moment that this node reads, beside that of Raft's snapshot. What is overwritten meanwhile stays in
// memory for them, up to once the data for each.
type earlierStates struct {
	hashed atomic.Pointer[earlier]
	backup atomic.Pointer[earlier] // the server has one backup read at a time
}

// earlier is a state that is being read.
type earlier struct {
	over   chan struct{}
	giveUp func()
}

// hash returns the hash of a state. It reads the whole state; the node keeps serving. One hash is computed at a time (StateHash).
func (n *Node) hash(snap *raftfsm.Snapshot) (string, error) {
	e := &earlier{over: make(chan struct{}), giveUp: func() {}}
	n.earlier.hashed.Store(e)
	defer n.earlier.hashed.Store(nil)
	defer close(e.over)
	return snap.Hash()
}

// writeBackup writes a backup of a state, until letGo gives it up.
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

// bring waits for memory before data is copied for a change. A node with a log also waits for Raft's snapshot.
func (n *Node) bring(bytes int) {
	brake.Bring(bytes)
	if brake.Crowded() {
		n.letGo()
	}
}

// letGo makes the node read no earlier state any more. A hash takes no longer than to read the state, but a backup lasts as long as
// its reader likes.
func (n *Node) letGo() {
	for _, e := range []*earlier{n.earlier.hashed.Load(), n.earlier.backup.Load()} {
		if e != nil {
			e.giveUp()
			<-e.over
		}
	}
}
