package raftnode

import (
	"bytes"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Before a leader answers a read, it asks its followers whether it still leads. It may leave that out if they have just
// answered, and no other node can be elected for a while (Raft dissertation, section 6.4.1). The heartbeat timeout of the
// followers does not guarantee that nobody is elected. A restarted follower votes at once. So does a follower that gets a vote
// request because of a leadership transfer, or from a node that has found the process of the leader gone.
//
// So a node with Config.LeaseReads makes a promise with every request that it takes from a leader. For votePromise, the node sends no
// vote for another node, and no vote request, which would be a vote for itself. A request of that leader may still arrive after Raft has
// decided to vote and before the vote leaves. Raft refuses that request, because the request's term is old by then. A node says in every
// message of Raft that it makes promises, so a leader never counts on a node that makes none.
//
// A leader relies on a promise for a shorter time, so clocks may differ in speed by a tenth. But a
// leader cannot always tell that a clock stood still while others went on, such as the clock of a
// suspended machine; that is why lease reads are an option.
//
// A node delays the vote requests that it sends, and its answers to the vote requests of other nodes. It does not delay a vote request
// when it arrives, because that would not be enough: the request could still wait in Raft's queue when the node makes its next promise.

const (
	// votePromise must stay the same in all versions: leaders count on it.
	votePromise = 100 * time.Millisecond
	// leaderLease is how long a leader relies on a promise, counted from its request.
	leaderLease = votePromise * 9 / 10
)

// heldVotes knows until when this node has promised to send no vote.
type heldVotes struct {
	now func() time.Duration

	mu    sync.Mutex
	until time.Duration
}

// newHeldVotes begins with a promise, because a node that has just started does not know what it promised
// before.
func newHeldVotes(now func() time.Duration) *heldVotes {
	v := &heldVotes{now: now}
	v.promise()
	return v
}

// promise extends the promise. The transport calls it before it passes a request of a leader to Raft.
func (v *heldVotes) promise() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.until = v.now() + votePromise
}

// wait returns true when the promises made so far are over, and false if the channel stop is closed before.
func (v *heldVotes) wait(stop <-chan struct{}) bool {
	v.mu.Lock()
	rest := v.until - v.now()
	v.mu.Unlock()
	if rest <= 0 {
		return true
	}
	timer := time.NewTimer(rest)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-stop:
		return false
	}
}

// withhold returns the vote request that the caller gives to Raft instead of rpc. When Raft has answered it, a goroutine waits
// until the promises made by then are over, and sends the answer to the peer.
func (t *transport) withhold(rpc raft.RPC) raft.RPC {
	answers := make(chan raft.RPCResponse, 1)
	inner := rpc
	inner.RespChan = answers
	go func() {
		select {
		case a := <-answers:
			if t.held.wait(t.closed) {
				rpc.Respond(a.Response, a.Error)
				return
			}
		case <-t.closed:
		}
		rpc.Respond(nil, raft.ErrRaftShutdown) // connections close later, so the caller may still read this answer
	}()
	return inner
}

// These words follow the name of the directory in a message of Raft, each after another separator.
var (
	promises = []byte("promises") // the node makes promises
	listens  = []byte("listens")  // clients of the node listen for messages (commit_notification.go)
	named    = []byte("cluster=") // prefix of the name of its cluster
)

// selfReport is what a node says about itself in every message of Raft.
type selfReport struct {
	directory, cluster []byte
	promises, listens  bool
}

// saidBy decodes the report in a header. It skips unknown words, which a later version may send.
func saidBy(by raft.RPCHeader) (s selfReport) {
	_, rest, _ := bytes.Cut(by.Addr, separator)
	s.directory, rest, _ = bytes.Cut(rest, separator)
	for len(rest) > 0 {
		var word []byte
		word, rest, _ = bytes.Cut(rest, separator)
		s.promises = s.promises || bytes.Equal(word, promises)
		s.listens = s.listens || bytes.Equal(word, listens)
		if name, is := bytes.CutPrefix(word, named); is {
			s.cluster = name
		}
	}
	return s
}

// leased reports whether self is a voter and a majority of the voters, self included, is bound by a promise to self as the leader of a
// term. A leader that is no voter has no lease, because a sole remaining voter could elect itself without sending any vote.
func (t *transport) leased(self raft.ServerID, conf raft.Configuration, term uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now, today := t.time.Monotonic(), t.time.Wall().Round(0)
	_, votes := voters(conf, self)
	return votes && t.majority(self, conf, func(a ack) bool {
		// After a suspension the wall clock may be right again before the monotonic clock is.
		wall := today.Sub(a.wall)
		return a.term == term && a.promised && now-a.at < leaderLease && wall > -leaderLease && wall < leaderLease
	})
}
