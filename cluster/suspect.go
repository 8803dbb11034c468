package cluster

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"time"
)

// When a process dies, its connections break at once and its port refuses new
// ones. That is more than silence, which on a busy machine means little: so a
// follower that loses its link to the leader, and is refused another, waits for a
// few heartbeats that do not come, and stands for election.
//
// It is only about when an election is held. Whoever wins it has the votes of a
// majority, and a leader that lives after all, behind a port that refuses, is
// heard of by its heartbeats and left alone.
//
// The first member stands after a quarter of the heartbeat timeout, 125 ms, and the next one 200 ms
// later, so that they do not split the votes. It tells itself what a leader tells the node that it
// hands over to (Campaign): Raft's timers cannot be set below the leader lease, and other voters would
// refuse while they believe in the old leader. That skips the preliminary vote. So the follower waits
// for silence, too: a leader that lives is heard of every 10 to 20 ms by its entries and every 50 to
// 100 ms by its heartbeats. A machine or a network that falls silent is left to Raft's timers.

// campaigner is a consensus that can be told to stand for election.
type campaigner interface {
	// Campaign has this node stand for election now, whoever leads.
	Campaign() error
}

// suspectTick is how often a suspect's signs of life are looked at.
const suspectTick = 5 * time.Millisecond

// firstTurn is how long a leader may be silent whose process seems to be gone.
// One that lives is heard of every tenth to fifth part of the heartbeat timeout,
// and far more often while it has entries to send.
func firstTurn(heartbeat time.Duration) time.Duration { return heartbeat / 4 }

// nextTurn is how much later each further member stands, so that the votes are
// not split: the one before should have won, though its disk be busy.
func nextTurn(heartbeat time.Duration) time.Duration { return heartbeat * 2 / 5 }

// refused reports whether the address answers, and nobody listens there.
func refused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// suspect stands for election in place of a leader whose process seems to be
// gone, unless somebody leads before that. A node that has yet to apply what that
// leader told it could not lead at once, and leaves this to the others. It
// returns at once.
func (n *Node) suspect(leader leadership) {
	c, can := n.cons.(campaigner)
	turn := n.turnAfter(leader.id)
	beat := n.cfg.HeartbeatTimeout
	patience := firstTurn(beat) + time.Duration(turn)*nextTurn(beat)
	if !can || turn < 0 || patience >= beat {
		return // Raft's own timers come first
	}
	n.work.Add(1)
	go func() {
		defer n.work.Done()
		ctx, cancel := context.WithTimeout(n.ctx, 2*n.cfg.ElectionTimeout)
		defer cancel()
		if !n.silent(ctx, leader, patience) {
			return
		}
		n.cfg.Logger.Info("the leader's process is gone: standing for election", "leader", leader.id)
		if err := c.Campaign(); err != nil {
			n.cfg.Logger.Warn("cannot stand for election", "error", err)
		}
	}()
}

// turnAfter is this node's place among the members that may take over from a
// leader; less than 0 if it may not.
func (n *Node) turnAfter(leader string) int {
	members, err := n.cons.Members()
	if err != nil {
		return -1
	}
	var ids []string
	for _, m := range members {
		if m.Voter && m.ID != leader {
			ids = append(ids, m.ID)
		}
	}
	slices.Sort(ids)
	return slices.Index(ids, n.cfg.ID)
}

// silent waits until nothing has been heard of the leader for long enough, and
// what it told has been applied; false if there is another leader, or if ctx
// ends before.
func (n *Node) silent(ctx context.Context, leader leadership, patience time.Duration) bool {
	tick := time.NewTicker(suspectTick)
	defer tick.Stop()
	term := n.term()
	heard, _ := n.cons.LastContact()
	due := heard + patience
	for {
		now := n.cfg.Time.Monotonic()
		if t := n.term(); t != term {
			// Somebody stands already, and may win. If it does not even get this
			// node's vote, its log is too short.
			term, due = t, now+firstTurn(n.cfg.HeartbeatTimeout)
		}
		if contact, _ := n.cons.LastContact(); contact > heard {
			heard, due = contact, contact+patience // also after a vote
		}
		if l := n.leading(); l.id != "" && l != leader {
			return false
		}
		if now >= due && n.caughtUp() {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
}

// leading is who leads, as far as this node knows.
func (n *Node) leading() leadership {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.leader
}
