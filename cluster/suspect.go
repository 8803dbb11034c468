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

// campaigner is a consensus that can be told to stand for election.
type campaigner interface {
	// Campaign has this node stand for election now, whoever leads.
	Campaign() error
}

const (
	// The heartbeat timeout by grace is how long a leader may be silent whose
	// process seems to be gone, and how much later each further member moves, so
	// that they do not take each other's votes. A leader that lives is heard of
	// every tenth to fifth part of the timeout.
	grace = 4
	// hurried is how many members may move before Raft's own timers would.
	hurried = 3
	// suspectTick is how often a suspect's signs of life are looked at.
	suspectTick = 5 * time.Millisecond
)

// refused reports whether the address answers, and nobody listens there.
func refused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// suspect stands for election in place of a leader whose process seems to be
// gone, unless somebody leads before that. It returns at once.
func (n *Node) suspect(leader leadership) {
	c, can := n.cons.(campaigner)
	turn := n.turnAfter(leader.id)
	if !can || turn < 0 || turn >= hurried {
		return
	}
	n.work.Add(1)
	go func() {
		defer n.work.Done()
		ctx, cancel := context.WithTimeout(n.ctx, 2*n.cfg.ElectionTimeout)
		defer cancel()
		if !n.silent(ctx, leader, turn) {
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

// silent waits until nothing has been heard of the leader for as long as this
// node's turn takes; false if there is another leader, or if ctx ends before.
func (n *Node) silent(ctx context.Context, leader leadership, turn int) bool {
	step := n.cfg.HeartbeatTimeout / grace
	patience := time.Duration(turn+1) * step
	tick := time.NewTicker(suspectTick)
	defer tick.Stop()
	term, since := n.term(), n.cons.LastContact()
	for {
		now := n.cfg.Time.Wall()
		if t := n.term(); t != term {
			// Somebody stands already, and may yet win.
			term, since = t, now
		}
		if contact := n.cons.LastContact(); contact.After(since) {
			since = contact
		}
		if l := n.leading(); l.id != "" && l != leader {
			return false
		}
		if now.Sub(since) >= patience {
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
