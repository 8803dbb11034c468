package raftnode

import (
	"time"

	"github.com/hashicorp/raft"
)

// A follower whose leader is silent asks the others for a pre-vote before it stands for election. They refuse while they still
// believe in the leader, so the follower that asks last is elected. But they refuse that one, too, if its log is shorter, as a
// delayed follower's may be (delayed_append.go).
//
// So a follower that has heard nothing from its leader for a while holds the pre-vote request of a candidate with a longer log,
// until it no longer believes in a leader or has heard from the leader again. A candidate with a log of the same length is not
// held: two candidates that can win would split the votes.

// holdTick is how often the function hold checks whether a held request can be answered.
const holdTick = 5 * time.Millisecond

// hold passes a pre-vote request to Raft as soon as it can be answered.
func (t *transport) hold(rpc raft.RPC) {
	tick := time.NewTicker(holdTick)
	defer tick.Stop()
	for t.mayHaveNoLeader() {
		select {
		case <-tick.C:
		case <-t.closed:
			rpc.Respond(nil, raft.ErrRaftShutdown)
			return
		}
	}
	t.toRaft(rpc)
}

// mayHaveNoLeader reports whether this node believes in a leader, but has heard nothing from that leader for
// half of the heartbeat timeout.
func (t *transport) mayHaveNoLeader() bool {
	r := t.raft.Load()
	if r == nil || r.State() != raft.Follower {
		return false
	}
	_, leader := r.LeaderWithID()
	return leader != "" && t.time.Monotonic()-t.time.At(r.LastContact()) >= t.silence
}

// holds reports whether a pre-vote request has to wait. It compares only the lengths of the logs; Raft looks at the terms later.
func (t *transport) holds(req *raft.RequestPreVoteRequest) bool {
	r := t.raft.Load()
	return r != nil && req.LastLogIndex > r.LastIndex() && t.mayHaveNoLeader()
}
