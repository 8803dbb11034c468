package cluster

import "github.com/hashicorp/raft"

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
}

// step is what orders a call of Verify among the requests to the members.
func (t *transport) step() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.steps++
	return t.steps
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
	voters, count := 0, 0
	for _, s := range conf.Servers {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		if a := t.acks[s.ID]; s.ID == self || a.term == term && a.sent > since {
			count++
		}
	}
	return count > voters/2
}

// Verify ends when a majority has confirmed that this node leads, or when Raft
// has found that it does not: at the latest when the leader's lease is over.
func (r *raftLog) Verify() error {
	since, term := r.trans.step(), r.raft.CurrentTerm()
	for {
		if err := r.raft.VerifyLeader().Error(); err != nil {
			return err
		}
		conf := r.raft.GetConfiguration()
		if err := conf.Error(); err != nil {
			return err
		}
		if r.trans.followed(raft.ServerID(r.cfg.ID), conf.Configuration(), term, since) {
			return nil
		}
		if r.raft.CurrentTerm() != term {
			return raft.ErrLeadershipLost
		}
	}
}
