package cluster

import (
	"io"
	"sync/atomic"

	"lockstep/cluster/brake"
	"lockstep/raftfsm"
)

// earlierStates are the earlier states that this node still reads, for a hash or for a backup. The state that Raft writes as a
// snapshot is not one of them. For each earlier state the data that is overwritten meanwhile stays in memory, at most all of
// the data.
type earlierStates struct {
	hashed atomic.Pointer[earlier]
	backup atomic.Pointer[earlier] // the server reads one backup at a time
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

// bring waits for memory before data is copied for a change. On a node with a log the bring of raftnode/machine.go takes its place,
// and also waits for Raft's snapshot.
func (n *Node) bring(bytes int) {
	brake.Bring(bytes)
	if brake.Crowded() {
		n.letGo()
	}
}

// letGo frees the earlier states. It waits for a hash, which takes only the time to read the state, and gives up a backup, which
// would last as long as its reader likes.
func (n *Node) letGo() {
	for _, e := range []*earlier{n.earlier.hashed.Load(), n.earlier.backup.Load()} {
		if e != nil {
			e.giveUp()
			<-e.over
		}
	}
}
