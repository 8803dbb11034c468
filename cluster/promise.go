package cluster

import (
	"bytes"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// A leader whose followers have just answered need not ask them again before it
// answers a read, if nobody else can be elected for a while (Raft dissertation,
// section 6.4.1). That followers wait for the heartbeat timeout does not see to it:
// one that has been started again votes at once, and so does one that is asked
// because of a handover, or by a node for which the leader's process is gone.
//
// So a node with Config.LeaseReads makes a promise with every request of a leader
// that it takes: no vote leaves it for votePromise, neither for another node nor, as
// a candidate's request, for itself. A request of that leader which comes after the
// vote was given, and before it leaves, is refused for its old term. A node says with
// everything that Raft sends that it makes promises, so a leader never
// counts on one that does not.
//
// A leader relies on a promise for less, so clocks may differ in speed by a tenth. It
// cannot know of a clock that has stood still while others went on, as a machine's
// that was suspended; that is why lease reads are an option.
//
// A node withholds what leaves it (its own requests for votes, its answers to those of others), not
// what comes in. A request for a vote that is checked when it comes in could wait in Raft's queue
// behind a promise that the node gives later.

const (
	// votePromise is the same in all versions: a leader counts on it.
	votePromise = 100 * time.Millisecond
	// leaderLease is how long after it has asked a leader relies on a promise.
	leaderLease = votePromise * 9 / 10
)

// heldVotes is until when a node has promised to leaders that no vote leaves it.
type heldVotes struct {
	now func() time.Duration

	mu    sync.Mutex
	until time.Duration
}

// newHeldVotes returns that of a node that has just started, and does not know what
// it promised before.
func newHeldVotes(now func() time.Duration) *heldVotes {
	v := &heldVotes{now: now}
	v.promise()
	return v
}

// promise is called before a request of a leader is looked at.
func (v *heldVotes) promise() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.until = v.now() + votePromise
}

// wait returns when what has been promised so far is over; false if stop is closed before.
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

// withhold passes a request for a vote on, and its answer back when no promise
// speaks against it.
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
		rpc.Respond(nil, raft.ErrRaftShutdown) // connections are open a little longer
	}()
	return inner
}

// These stand behind a node's directory, each after another seam, if they are so.
var (
	promises = []byte("promises") // it makes promises
	listens  = []byte("listens")  // its clients listen (announce.go)
	named    = []byte("cluster=") // and the name of its cluster
)

// selfReport is what a node says of itself with everything that Raft sends.
type selfReport struct {
	directory, cluster []byte
	promises, listens  bool
}

// saidBy takes it apart. Words that a later version may say are passed over.
func saidBy(by raft.RPCHeader) (s selfReport) {
	_, rest, _ := bytes.Cut(by.Addr, seam)
	s.directory, rest, _ = bytes.Cut(rest, seam)
	for len(rest) > 0 {
		var word []byte
		word, rest, _ = bytes.Cut(rest, seam)
		s.promises = s.promises || bytes.Equal(word, promises)
		s.listens = s.listens || bytes.Equal(word, listens)
		if name, is := bytes.CutPrefix(word, named); is {
			s.cluster = name
		}
	}
	return s
}

// leased reports whether a majority of the voters, of which self is one, keeps its
// promise to self as the leader of a term. The promise of a voter that is the only one
// binds it to nothing, so a leader that is to leave has no lease.
func (t *transport) leased(self raft.ServerID, conf raft.Configuration, term uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now, today := t.time.Monotonic(), t.time.Wall().Round(0)
	_, votes := voters(conf, self)
	return votes && t.majority(self, conf, func(a ack) bool {
		// A suspended machine's time of day may be right sooner than its other clock.
		wall := today.Sub(a.wall)
		return a.term == term && a.promised && now-a.at < leaderLease && wall > -leaderLease && wall < leaderLease
	})
}
