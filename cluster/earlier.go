package cluster

import (
	"io"
	"sync/atomic"

	"lockstep/cluster/brake"
	"lockstep/raftfsm"
)

// earlierStates are the earlier states that this node still reads, for a hash or for a backup. The state that Raft writes as a
// snapshot is not one of them. While an earlier state is read, memory keeps all of its data, also what has been overwritten
// since. In the worst case everything has been overwritten, and memory has two whole states.
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

// writeBackup returns a reader of a backup of a state, which a goroutine writes while the backup is read. letGo may end the backup
// early: the reader then gets errBackupGivenUp.
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

// bring must be called before data is copied for a change. If memory is scarce, bring waits for the garbage collector. If the
// collector has freed too little, bring lets go of the earlier states. A node with a log uses the method bring of
// raftnode/machine.go instead, which also waits for Raft's snapshot.
func (n *Node) bring(bytes int) {
	brake.Bring(bytes)
	if brake.Crowded() {
		n.letGo()
	}
}

// letGo returns when nobody reads an earlier state any more. It waits for a hash computation, which ends soon. It
// cancels a backup, which could last as long as its reader likes.
func (n *Node) letGo() {
	for _, e := range []*earlier{n.earlier.hashed.Load(), n.earlier.backup.Load()} {
		if e != nil {
			e.giveUp()
			<-e.over
		}
	}
}
