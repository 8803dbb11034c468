package cluster

import (
	"cmp"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// Raft.VerifyLeader alone does not make a read linearizable. It counts the
// answers of members that have no vote, so a leader that is cut off with a new
// member, which does not vote yet, is told that it leads; and it counts answers
// to heartbeats that were on their way when it was called, which may be old: a
// process that was stopped for minutes finds them when it goes on. So Verify
// counts for itself: a majority of the voters, each by a request that was sent
// after the call.

// ack says that a member has followed.
type ack struct {
	term uint64 // whom
	sent uint64 // the step at which it was asked

	promised bool // see promise.go
	at       time.Duration
	wall     time.Time // without a monotonic part
}

// step is what orders a call of Verify among the requests to the members.
func (t *transport) step() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.steps++
	return t.steps
}

// asking returns what an answer will be to that a member is asked for now.
func (t *transport) asking(term uint64) ack {
	return ack{term: term, sent: t.step(), at: t.time.Monotonic(), wall: t.time.Wall().Round(0)}
}

// note keeps the latest request of the latest term that a member has followed.
func (t *transport) note(id raft.ServerID, a ack) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if last := t.acks[id]; a.sent > last.sent {
		t.acks[id] = a
	}
}

// followed reports whether a majority of the voters, of which self is one, has
// followed this node in a term since a step.
func (t *transport) followed(self raft.ServerID, conf raft.Configuration, term, since uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.majority(self, conf, func(a ack) bool { return a.term == term && a.sent > since })
}

// majority reports whether self and those voters of whom something can be said are one.
// t.mu is held.
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

// patience is how long as many followers as make a majority are asked alone. All are
// asked when one of them does not answer; that one is not asked first the next time.
const patience = 5 * time.Millisecond

// Verify ends when a majority has confirmed that this node leads, or when Raft
// has found that it does not: at the latest when the leader's lease is over.
func (r *raftLog) Verify() error {
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

// led reports whether a majority has followed this node in a term since a step.
func (r *raftLog) led(since, term uint64) (bool, error) {
	conf := r.raft.GetConfiguration()
	if err := conf.Error(); err != nil {
		return false, err
	}
	return r.trans.followed(raft.ServerID(r.cfg.ID), conf.Configuration(), term, since), nil
}

// askFew sends heartbeats to as many voters as make a majority with this one, those who
// answered last. Raft.VerifyLeader asks all of them, and takes several goroutines to do so.
// It reports whether they have confirmed that this node leads in a term.
func (r *raftLog) askFew(since, term uint64) bool {
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

// leads reports whether this node has not voted for another one since it began to
// lead in a term.
func (r *raftLog) leads(term uint64) bool {
	return r.raft.State() == raft.Leader && r.raft.CurrentTerm() == term
}

// holdsLease reports whether nobody else can have been elected yet (promise.go).
func (r *raftLog) holdsLease(term uint64) bool {
	conf := r.raft.GetConfiguration()
	return conf.Error() == nil && r.trans.leased(raft.ServerID(r.cfg.ID), conf.Configuration(), term) && r.leads(term)
}

// heartbeat is one as Raft sends it.
func (r *raftLog) heartbeat(term uint64) *raft.AppendEntriesRequest {
	return &raft.AppendEntriesRequest{Term: term, RPCHeader: r.trans.header()}
}

// quickest returns as many other voters as make a majority with self, those first whose
// last answer was to the latest request.
func (t *transport) quickest(self raft.ServerID, conf raft.Configuration) []raft.Server {
	others, _ := voters(conf, self)
	t.mu.Lock()
	defer t.mu.Unlock()
	slices.SortFunc(others, func(a, b raft.Server) int { return cmp.Compare(t.acks[b.ID].sent, t.acks[a.ID].sent) })
	return others[:(len(others)+1)/2]
}

// voters returns the voters beside self, and whether self is one.
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
