package cluster

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// A node that starts has its log still to apply, and learns from the leader how
// much of it is committed: all at once, by the first entries that it is sent.
// Raft's main goroutine reads that part of the log and hands it to the state
// machine before it answers that request or any other, so a node with a long log
// would acknowledge no entry and give no vote for seconds, and two nodes that
// live would be no majority. So the news is passed on in portions (pace): to be
// told of a commit late is what every follower must expect. And the node is not
// ready before it has applied what was committed (CaughtUp).
//
// Heartbeats are answered elsewhere, so without pace the node would look like a follower to all others
// while it neither acknowledged nor voted. Requests still reach Raft in the order in which they came.
//
// A node is ready (/readyz, "Ready to accept connections") when it is a voter, reaches the leader, and
// has applied what that leader has told to be committed. So an operator can restart one node after the
// other. A link to the leader alone says nothing: it is there before the first entry comes. The node
// serves commands as soon as it has a link, ready or not.

const (
	// paceWindow is how many committed entries may wait for the state machine.
	// Raft's channel to it takes eight times as many before a sender waits.
	paceWindow = 1024
	// paceStep is what each request may add in any case: not every entry reaches
	// the state machine, so it may be further than it says.
	paceStep = 64
)

// progress is how far the state machine has come, and what leaders have told
// of the commit index.
type progress struct {
	done atomic.Uint64 // the last entry that reached the state machine

	mu     sync.Mutex
	passed uint64 // what Raft has been told
	told   uint64 // the highest commit index since reset; 0: none
	goal   uint64 // what was told when it began to count
	caught bool   // the goal has been reached
}

// pace bounds what Raft is told of the commit index with one request.
func (p *progress) pace(req *raft.AppendEntriesRequest) {
	if req.LeaderCommitIndex == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told = max(p.told, req.LeaderCommitIndex)
	req.LeaderCommitIndex = min(req.LeaderCommitIndex, max(p.done.Load()+paceWindow, p.passed+paceStep))
	p.passed = max(p.passed, req.LeaderCommitIndex)
}

// confine leaves of the commit index what the request proves. Raft takes its log up
// to there for the leader's, but has compared no more of it than stands in the
// request: behind that there may be an entry of an earlier leader still, which could
// not be cut off so far, because the disk was full.
func confine(req *raft.AppendEntriesRequest) {
	req.LeaderCommitIndex = min(req.LeaderCommitIndex, lastOf(req))
}

// lastOf is the last entry that a request proves.
func lastOf(req *raft.AppendEntriesRequest) uint64 {
	return req.PrevLogEntry + uint64(len(req.Entries))
}

// reset makes the next leader's word count.
func (p *progress) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told, p.goal, p.caught = 0, 0, false
}

// caughtUp reports whether everything has been applied that a leader has told
// since reset: what it told first, and then what it had told by the time that
// this was done, until that is next to nothing.
func (p *progress) caughtUp(applied func(index uint64) bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.goal == 0 {
		p.goal = p.told
	}
	for !p.caught && p.goal > 0 && applied(p.goal) {
		p.caught = p.told <= p.goal+paceStep
		p.goal = p.told
	}
	return p.caught
}

// relay passes on what peers ask of Raft, until the transport closes.
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

// relayOne passes a request on; false if the transport has closed.
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
		t.progress.pace(req)
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

// toRaft has Raft answer a request; false if the transport has closed.
func (t *transport) toRaft(rpc raft.RPC) bool {
	select {
	case t.requests <- rpc:
		return true
	case <-t.closed:
		return false
	}
}

// turnAway answers a request that Raft is not to see. What belongs to it has to be
// read before the next one on the connection, unless there is no end of it.
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

// replayer is a consensus that may have to apply a part of its log before its
// node is as good as the others.
type replayer interface {
	// CaughtUp reports whether everything has been applied that the present
	// leader has told to be committed.
	CaughtUp() bool
	// Led is called when another node has begun to lead, or does so again.
	Led()
}

var _ replayer = (*raftLog)(nil)

// Led implements replayer.
func (r *raftLog) Led() { r.trans.progress.reset() }

// CaughtUp implements replayer.
func (r *raftLog) CaughtUp() bool { return r.trans.progress.caughtUp(r.applied) }

// applied reports whether an index and all before it have been applied. Raft
// counts an entry when it hands it over; the state machine is told of no others
// than these.
func (r *raftLog) applied(index uint64) bool {
	if r.raft.AppliedIndex() < index {
		return false
	}
	for ; index > 0; index-- {
		var l raft.Log
		if r.dir.Log.GetLog(index, &l) != nil {
			return true // only a snapshot holds it, and those are restored in one piece
		}
		if l.Type == raft.LogCommand || l.Type == raft.LogConfiguration {
			return r.trans.progress.done.Load() >= index
		}
	}
	return true
}

// overdueTick is how often it is looked whether an overdue snapshot can be taken.
const overdueTick = 100 * time.Millisecond

// snapshotAt takes a snapshot when an index has been applied. Raft looks only
// some time after its start whether one is due: a process that ends before, again
// and again, would begin with an ever longer log.
func (r *raftLog) snapshotAt(index uint64) {
	if !r.awaitApplied(index) {
		return
	}
	if err := r.Snapshot(); err != nil && !errors.Is(err, raft.ErrRaftShutdown) {
		r.cfg.Logger.Warn("the snapshot that was due at the start failed", "error", err)
	}
}

// awaitApplied waits until an index has been applied; false: the node is being closed.
func (r *raftLog) awaitApplied(index uint64) bool {
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

// Reaches reports whether a request would find a leader now.
func (n *Node) Reaches() bool {
	rt := n.routes.get()
	return rt.seq != nil || rt.link != nil
}

// Ready reports whether the node can be counted on: it is a voter, it reaches the
// leader or leads, it has applied what was committed when it came to know the
// leader, and its log takes entries. So whoever stops another node now does not
// stop the service.
func (n *Node) Ready() bool {
	rt := n.routes.get()
	return (rt.seq != nil || rt.link != nil && n.caughtUp()) && n.Membership() == Voter && n.Trouble() == ""
}

// caughtUp reports whether the node knows what the leader has told to be
// committed.
func (n *Node) caughtUp() bool {
	r, ok := n.cons.(replayer)
	return !ok || r.CaughtUp()
}

// readyTick is how often WaitReady looks.
const readyTick = 10 * time.Millisecond

// WaitReady returns when the node is ready, or when ctx ends.
func (n *Node) WaitReady(ctx context.Context) error {
	tick := time.NewTicker(readyTick)
	defer tick.Stop()
	for !n.Ready() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-n.routes.get().changed:
		case <-tick.C:
		}
	}
	return nil
}
