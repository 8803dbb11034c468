package raftnode

import (
	"bytes"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// A leader may answer a read without asking its followers if they have just answered, and no other node can be elected for a
// while (Raft dissertation, section 6.4.1). Raft does not guarantee that: a restarted follower votes at once, and so does one
// that is asked because of a leadership transfer.
//
// So a node with Config.LeaseReads makes a promise with every request that it takes from a leader: for votePromise it sends
// neither a vote for another node nor a vote request. If a leader's request arrives between Raft's decision to vote and the vote,
// Raft refuses it, because its term is old by then. To delay an arriving vote request would not be enough: it could wait in
// Raft's queue while the node makes its next promise.
//
// A leader relies on a promise for a shorter time, so clocks may differ in speed by a tenth. A leader cannot always tell that a
// clock stood still, so lease reads are an option.

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

// withhold returns a vote request for Raft in place of rpc. Raft's answer waits until the promises made by then are over.
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

// leased reports whether promises of term bind a majority of the voters, self included. A non-voter has no lease: a sole voter
// could elect itself.
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
