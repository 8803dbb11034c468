package raftnode

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// A starting node still has to apply its log. The first request with entries from the leader tells it the commit index, which may be far
// above what it has applied. Raft's main goroutine then reads the log up to there and passes it to the state machine before it answers
// this request or any other. So a node with a long log would acknowledge no entry and give no vote for seconds. A cluster of three nodes
// would then have no majority if one of the others were down.
//
// Therefore the function pace passes the commit index to Raft in steps. That is safe, because in Raft any follower may learn of a commit
// late. And the node is not ready before it has applied what was committed (CaughtUp).
//
// Heartbeats are answered on another goroutine. So without pace the node would look like a healthy follower to all
// others while it neither acknowledged nor voted. pace does not change the order of the requests.
//
// A node is ready (/readyz, "Ready to accept connections") when it is a voter, reaches the leader, and
// has caught up with the commit index of that leader. So an operator can restart one node after the other. A
// link to the leader is not enough, because the link exists before the first entry comes. The node serves
// commands as soon as it has a link, ready or not.

const (
	// paceWindow is how many committed entries may wait for the state machine: with less than LongEntry bytes of data
	// each they take 8 MB at most. Raft's channel to the state machine takes eight times as many before Raft blocks.
	paceWindow = 1024
	// paceStep is how much each request may raise the commit index when the window is full although no entry waits
	// for the state machine. That happens because some entries never reach the state machine, and progress.done stays
	// before them.
	paceStep = 64
)

// progress tracks how far the state machine has come, and the commit indexes that leaders have sent.
type progress struct {
	done atomic.Uint64 // the last entry that reached the state machine

	mu     sync.Mutex
	passed uint64 // the highest commit index that pace has let pass
	told   uint64 // the highest commit index from leaders since the last call of reset; 0: none
	goal   uint64 // value of the field told at the beginning of the present round (method round)
	caught bool   // the node has caught up since the last call of reset

	applied func(index uint64) bool // reports whether the entries up to an index have been applied; nil: Raft has not started
}

// pace bounds the commit index of one request before Raft sees it. isFor reports whether an entry is for the state machine.
func (p *progress) pace(req *raft.AppendEntriesRequest, isFor func(index uint64) bool) {
	if req.LeaderCommitIndex == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told = max(p.told, req.LeaderCommitIndex)
	p.round()
	done := p.done.Load()
	most := max(done+paceWindow, p.passed)
	if req.LeaderCommitIndex > most && most < p.passed+paceStep && !p.waits(done, isFor) {
		most = p.passed + paceStep
	}
	req.LeaderCommitIndex = min(req.LeaderCommitIndex, most)
	p.passed = max(p.passed, req.LeaderCommitIndex)
}

// waits reports whether an entry that pace has let pass still waits for the state machine. Usually the first entry after the
// index done is such an entry, so the loop is short.
func (p *progress) waits(done uint64, isFor func(index uint64) bool) bool {
	for index := done + 1; index <= p.passed; index++ {
		if isFor(index) {
			return true
		}
	}
	return false
}

// confine lowers the commit index to the last entry that the request proves. Raft takes all entries up to the
// commit index for entries of the leader, but it has compared only the entries of the request. After these
// entries the log may still have an entry of an earlier leader, which Raft could not delete so far because the disk
// was full.
func confine(req *raft.AppendEntriesRequest) {
	req.LeaderCommitIndex = min(req.LeaderCommitIndex, lastOf(req))
}

// lastOf returns the index of the last entry that a request proves: its last entry or, without entries, the previous one.
func lastOf(req *raft.AppendEntriesRequest) uint64 {
	return req.PrevLogEntry + uint64(len(req.Entries))
}

// reset forgets the commit indexes of earlier leaders.
func (p *progress) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told, p.goal, p.caught = 0, 0, false
}

func (p *progress) toldIndex() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.told
}

// begin sets the function that reports whether the entries up to an index have been applied.
func (p *progress) begin(applied func(index uint64) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.applied = applied
}

// caughtUp reports whether this node has caught up with the commit index of leaders since the last call of reset. The method
// round finds that out.
func (p *progress) caughtUp() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.caught
}

// round begins a new round if the present one is over. The goal of a round is the highest commit index that the leader has told before
// the round. A round ends with the first request that comes after the node has applied the goal. Only that request tells how far the log
// is committed by then: what the leader told before may be old. If the commit index grew by at most paceStep during the round, the node
// has caught up. The caller holds mu.
func (p *progress) round() {
	switch {
	case p.caught || p.applied == nil:
	case p.goal == 0:
		p.goal = p.told
	case p.applied(p.goal):
		p.caught = p.told <= p.goal+paceStep
		p.goal = p.told
	}
}

// relay passes requests of peers to Raft until the transport closes.
func (t *transport) relay() {
	in := t.NetworkTransport.Consumer()
	for {
		select {
		case rpc := <-in:
			if !t.relayOne(rpc) {
				return
			}
		case <-t.closed:
			return
		}
	}
}

// relayOne passes one request to Raft, or refuses it. It returns false if the transport has closed.
func (t *transport) relayOne(rpc raft.RPC) bool {
	if err := t.admits(rpc); err != nil {
		go turnAway(rpc, err)
		return true
	}
	switch req := rpc.Command.(type) {
	case *raft.AppendEntriesRequest:
		if t.promises {
			t.held.promise()
		}
		t.progress.pace(req, t.isForStateMachine)
		confine(req)
	case *raft.RequestVoteRequest:
		rpc = t.withhold(rpc)
	case *raft.RequestPreVoteRequest:
		if t.holds(req) {
			go t.hold(rpc)
			return true
		}
	}
	return t.toRaft(rpc)
}

// isForStateMachine reports whether the log has a command or a configuration at an index.
func (t *transport) isForStateMachine(index uint64) bool {
	var l raft.Log
	if t.log == nil || t.log.GetLog(index, &l) != nil {
		return false // only a snapshot holds the entry
	}
	return l.Type == raft.LogCommand || l.Type == raft.LogConfiguration
}

// toRaft passes a request to Raft, which answers it. It returns false if the transport has closed.
func (t *transport) toRaft(rpc raft.RPC) bool {
	select {
	case t.requests <- rpc:
		return true
	case <-t.closed:
		return false
	}
}

// turnAway refuses a request. If a snapshot follows the request, turnAway first reads the snapshot, because the next request comes after
// the snapshot on the connection. It does not read an absurdly long snapshot.
func turnAway(rpc raft.RPC, why error) {
	if req, ok := rpc.Command.(*raft.InstallSnapshotRequest); ok && req.Size <= maxSnapshot {
		if _, err := io.Copy(io.Discard, rpc.Reader); err != nil {
			why = err
		}
	}
	rpc.Respond(nil, why)
}

// Consumer implements raft.Transport.
func (t *transport) Consumer() <-chan raft.RPC { return t.requests }

// Led notes that another node has become the leader, perhaps the one that led before: this node has to catch up anew.
func (r *Node) Led() { r.trans.progress.reset() }

// CaughtUp reports whether this node has, at some time since Led, caught up with the commit index of the leader, except for at
// most paceStep entries (progress.caughtUp).
func (r *Node) CaughtUp() bool { return r.trans.progress.caughtUp() }

// applied reports whether all entries up to an index have been applied. Raft's applied index counts an entry as
// soon as Raft has passed it on, so applied asks the state machine, too. The state machine gets only commands
// and configurations.
func (r *Node) applied(index uint64) bool {
	if r.raft.AppliedIndex() < index {
		return false
	}
	for ; index > 0; index-- {
		var l raft.Log
		if r.dir.Log.GetLog(index, &l) != nil {
			return true // only a snapshot holds the entry, and a snapshot is restored in one piece
		}
		if l.Type == raft.LogCommand || l.Type == raft.LogConfiguration {
			return r.trans.progress.done.Load() >= index
		}
	}
	return true
}

// overdueTick is how often awaitApplied checks the applied index.
const overdueTick = 100 * time.Millisecond

// snapshotAt takes a snapshot when the entries up to an index have been applied. Raft itself checks only some time after
// its start whether a snapshot is due. A process that always ends before that would begin with an ever longer log.
func (r *Node) snapshotAt(index uint64) {
	if !r.awaitApplied(index) {
		return
	}
	if err := r.Snapshot(); err != nil && !errors.Is(err, raft.ErrRaftShutdown) {
		r.cfg.Logger.Warn("the snapshot that was due at the start failed", "error", err)
	}
}

// awaitApplied waits until all entries up to an index have been applied. It returns false if the node closes first.
func (r *Node) awaitApplied(index uint64) bool {
	tick := time.NewTicker(overdueTick)
	defer tick.Stop()
	for !r.applied(index) {
		select {
		case <-r.stop:
			return false
		case <-tick.C:
		}
	}
	return true
}
