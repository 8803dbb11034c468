package cluster

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/raftnode"
)

// The order of blocked clients through a change of leader.
//
// A leader gives each client that begins to wait a place in the queue, and tells the client's node. The next leader gets the place with
// the command, so it restores the order without comparing clocks. But the first client in the queue may be that of a node whose commands
// have not come yet. So a new leader holds all blocking commands until every node that lives has sent those that waited at the leader
// before (forward.Alive), but no longer than queuesIn. Then it evaluates them in the order of their places.

// queuesIn is how long a new leader holds blocking commands at most.
const queuesIn = 200 * time.Millisecond

// early are the blocking commands that a new leader holds.
type early struct {
	over  bool          // it holds none any more
	until time.Duration // monotonic time from which on it holds none
	sent  uint64        // number of the batch at whose beginning all nodes had sent their commands; 0: not yet
	held  []*request
}

// holds reports whether a command is held, and holds it unless the time for that is over.
func (e *early) holds(w *blockedClient) bool {
	if e.over {
		return false
	}
	if !w.early { // a batch may be evaluated again
		w.early = true
		e.held = append(e.held, w.req)
	}
	return true
}

// look returns the requests of the batch that begins now. When the time of holding is over, these are the held commands and the blocking
// commands of q, in order, and then the others of q.
func (e *early) look(q []*request, batch uint64, now time.Duration, sentAll func() bool) []*request {
	switch {
	case e.over:
	case e.sent != 0 && batch > e.sent || now >= e.until: // what the nodes had sent by the batch e.sent is held, or in q
		e.over = true
		return e.merge(q)
	case e.sent == 0 && sentAll():
		e.sent = batch
	}
	return q
}

// merge returns the held commands and the blocking commands of q, in order, and then the others of q. q may have held commands, too.
func (e *early) merge(q []*request) []*request {
	var others []*request
	for _, r := range q {
		switch w := r.blockedClient; {
		case w == nil:
			others = append(others, r)
		case !w.early:
			e.held = append(e.held, r)
		}
	}
	return append(e.take(), others...)
}

// take removes the held commands and returns them in order: those with a place, those that came to their nodes before the change of
// leader, and the others.
func (e *early) take() []*request {
	list := e.held
	e.held = nil
	place := func(r *request) uint64 {
		w := r.blockedClient
		switch {
		case w.waited.Place != 0:
			return w.waited.Place
		case w.waited.Age != 0:
			return math.MaxUint64 - 1
		}
		return math.MaxUint64
	}
	slices.SortStableFunc(list, func(a, b *request) int {
		return cmp.Or(cmp.Compare(place(a), place(b)), cmp.Compare(a.blockedClient.since, b.blockedClient.since))
	})
	return list
}

// sentAll reports whether this node and all others that live have sent the sequencer their clients that waited at an earlier leader.
func (n *Node) sentAll(s *sequencer) bool {
	if n.cfg.sentAll != nil {
		return n.cfg.sentAll()
	}
	if !n.blockRegistry.hasSentAll(s) {
		return false
	}
	sent := map[string]bool{n.cfg.ID: true}
	n.mu.Lock()
	for p := range n.callers {
		sent[p.id] = sent[p.id] || p.claimed.Load() && p.sentAll.Load() == s.term
	}
	n.mu.Unlock()
	members, err := n.cons.Members()
	return err == nil && !slices.ContainsFunc(members, func(m raftnode.Member) bool { return !sent[m.ID] && n.peers.Alive(m.ID) })
}
