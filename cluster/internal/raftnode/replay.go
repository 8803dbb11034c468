package raftnode

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// The leader's first request with entries tells a starting node a commit index that may be far above what the node has applied.
// Raft's main goroutine reads the log up to there before it answers any request. So the node would neither acknowledge nor vote
// for seconds. Therefore pace passes the commit index to Raft in steps: in Raft, any follower may learn of a commit late.
//
// A node is ready (/readyz, "Ready to accept connections") when it is a voter, reaches the leader, and has caught up with it. So
// an operator can restart one node after the other. The node serves commands as soon as it has a link.

const (
	// paceWindow is how many committed entries may wait for the state machine. Raft blocks at eight times as many.
	paceWindow = 1024
	// paceStep is how much each request may raise the commit index when entries that never reach the state machine fill the
	// window.
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

// waits reports whether an entry that pace has let pass still waits for the state machine. Usually the loop ends at its first
// entry.
func (p *progress) waits(done uint64, isFor func(index uint64) bool) bool {
	for index := done + 1; index <= p.passed; index++ {
		if isFor(index) {
			return true
		}
	}
	return false
}

// confine lowers the commit index to the request's last entry: behind that one, a full disk may still hold an earlier leader's
// entry.
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

// round ends the present round if its goal is applied. The node has caught up if the commit index grew little since. mu is held.
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

// turnAway refuses a request. It first reads a snapshot that follows, because the next request comes after that snapshot.
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

// CaughtUp reports whether this node has, since Led, caught up with the leader's commit index, except for at most paceStep
// entries.
func (r *Node) CaughtUp() bool { return r.trans.progress.caughtUp() }

// applied reports whether all entries up to index are applied. Raft counts an entry once passed on; the state machine gets only
// commands and configurations.
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

// snapshotAt takes a snapshot once the entries up to index are applied: Raft itself checks only later, when the process may have
// ended.
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
