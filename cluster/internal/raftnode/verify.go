package raftnode

import (
	"cmp"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// Raft.VerifyLeader alone does not make a read linearizable: it counts members without a vote, and answers that were on their way
// when it was called. So Verify needs a majority of the voters to answer requests that were sent after the call.

// ack says that a member has accepted a request of a leader.
type ack struct {
	term uint64 // term of that leader
	sent uint64 // step at which the request was sent

	promised bool          // the member has made a promise with its answer (read_lease.go)
	at       time.Duration // monotonic time of the request
	wall     time.Time     // wall time of the request, without a monotonic part
}

// step advances the counter that orders events, such as calls of Verify and requests to members, and returns its new value.
func (t *transport) step() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.steps++
	return t.steps
}

// asking returns the ack for a request that is sent now. The caller passes it to the function note when the member has accepted
// the request.
func (t *transport) asking(term uint64) ack {
	return ack{term: term, sent: t.step(), at: t.time.Monotonic(), wall: t.time.Wall().Round(0)}
}

// note keeps the ack of the latest request that a member has accepted.
func (t *transport) note(id raft.ServerID, a ack) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if last := t.acks[id]; a.sent > last.sent {
		t.acks[id] = a
	}
}

// followed reports whether a majority of the voters, self included, has accepted requests sent in term and after the step since.
func (t *transport) followed(self raft.ServerID, conf raft.Configuration, term, since uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.majority(self, conf, func(a ack) bool { return a.term == term && a.sent > since })
}

// majority reports whether more than half of the voters are self or have an ack that passes is. t.mu is held.
func (t *transport) majority(self raft.ServerID, conf raft.Configuration, is func(ack) bool) bool {
	voters, count := 0, 0
	for _, s := range conf.Servers {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		if s.ID == self || is(t.acks[s.ID]) {
			count++
		}
	}
	return count > voters/2
}

// patience is how long askFew waits. After that, Verify asks all followers, and next time askFew does not choose a silent one
// first.
const patience = 5 * time.Millisecond

// Verify returns nil if a majority or a read lease confirms that this node leads. Otherwise it fails, at the latest after Raft's
// leader lease.
func (r *Node) Verify() error {
	since, term := r.trans.step(), r.raft.CurrentTerm()
	if r.cfg.LeaseReads && r.holdsLease(term) || r.askFew(since, term) {
		return nil
	}
	for {
		if err := r.raft.VerifyLeader().Error(); err != nil {
			return err
		}
		if led, err := r.led(since, term); led || err != nil {
			return err
		}
		if r.raft.CurrentTerm() != term {
			return raft.ErrLeadershipLost
		}
	}
}

// led reports whether a majority has accepted requests that this node sent in the given term and after the step in the parameter
// since.
func (r *Node) led(since, term uint64) (bool, error) {
	conf := r.raft.GetConfiguration()
	if err := conf.Error(); err != nil {
		return false, err
	}
	return r.trans.followed(raft.ServerID(r.cfg.ID), conf.Configuration(), term, since), nil
}

// askFew sends heartbeats to just enough voters for a majority, and reports whether they confirm that this node leads in term.
func (r *Node) askFew(since, term uint64) bool {
	conf := r.raft.GetConfiguration()
	if conf.Error() != nil || r.raft.State() != raft.Leader {
		return false
	}
	few := r.trans.quickest(raft.ServerID(r.cfg.ID), conf.Configuration())
	answers := make(chan error, len(few))
	for _, s := range few {
		go func() {
			answers <- r.trans.AppendEntries(s.ID, s.Address, r.heartbeat(term), &raft.AppendEntriesResponse{})
		}()
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for range few {
		select {
		case <-answers:
		case <-timer.C:
			return false
		}
	}
	led, err := r.led(since, term)
	return led && err == nil && r.leads(term)
}

// leads reports whether this node still leads in a term, and so has not voted for another node in a later
// one.
func (r *Node) leads(term uint64) bool {
	return r.raft.State() == raft.Leader && r.raft.CurrentTerm() == term
}

// holdsLease reports whether no other node can have been elected yet (read_lease.go).
func (r *Node) holdsLease(term uint64) bool {
	conf := r.raft.GetConfiguration()
	return conf.Error() == nil && r.trans.leased(raft.ServerID(r.cfg.ID), conf.Configuration(), term) && r.leads(term)
}

// heartbeat returns a heartbeat request as Raft sends it.
func (r *Node) heartbeat(term uint64) *raft.AppendEntriesRequest {
	return &raft.AppendEntriesRequest{Term: term, RPCHeader: r.trans.header()}
}

// quickest returns just enough other voters for a majority with self: those that have accepted the latest requests.
func (t *transport) quickest(self raft.ServerID, conf raft.Configuration) []raft.Server {
	others, _ := voters(conf, self)
	t.mu.Lock()
	defer t.mu.Unlock()
	slices.SortFunc(others, func(a, b raft.Server) int { return cmp.Compare(t.acks[b.ID].sent, t.acks[a.ID].sent) })
	return others[:(len(others)+1)/2]
}

// voters returns the voters except self, and reports whether self is a voter.
func voters(conf raft.Configuration, self raft.ServerID) (others []raft.Server, votes bool) {
	for _, s := range conf.Servers {
		switch {
		case s.Suffrage != raft.Voter:
		case s.ID == self:
			votes = true
		default:
			others = append(others, s)
		}
	}
	return others, votes
}
