package cluster

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"time"

	"lockstep/cluster/internal/raftnode"
)

// When a process dies, its connections break at once and its port refuses new ones. That says more than
// silence, which means little on a busy machine. So a follower that loses its link to the leader, and whose new
// connection is refused, waits for a few missing heartbeats and then stands for election.
//
// This decides only the time of an election. The winner still needs the votes of a majority. A leader that
// lives after all, behind a port that refuses, sends heartbeats, and then no follower stands.
//
// The first member stands after a quarter of the heartbeat timeout, 125 ms, and the next one 200 ms later, so
// that they do not split the votes. A member stands by sending itself the message by which a leader transfers
// leadership (Campaign): Raft's timers cannot be set below the leader lease, and other voters would refuse
// while they believe in the old leader. That message skips the pre-vote. So the follower also waits for
// silence: a living leader sends entries every 10 to 20 ms and heartbeats every 50 to 100 ms. If a machine or a
// network falls silent, Raft's timers start the election.

// suspectTick is how often silent checks for signs of life of the leader.
const suspectTick = 5 * time.Millisecond

// firstTurn is how long the first member waits for a leader whose process seems to be gone. A living leader
// sends a heartbeat every tenth to fifth part of the heartbeat timeout, and entries far more often.
func firstTurn(heartbeat time.Duration) time.Duration { return heartbeat / 4 }

// nextTurn is how much later each further member stands, so that they do not split the votes. In that
// time the member before it wins, even with a busy disk.
func nextTurn(heartbeat time.Duration) time.Duration { return heartbeat * 2 / 5 }

// refused reports whether the machine at an address refused a connection, because no process listens there.
func refused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// suspect starts to wait for the silence of a leader whose process seems to be gone, and then stands for
// election, unless another node leads by then. It returns at once. A node that has not caught up keeps waiting,
// because it could not lead at once.
func (n *Node) suspect(leader raftnode.Leadership) {
	turn := n.turnAfter(leader.ID)
	beat := n.cfg.HeartbeatTimeout
	patience := firstTurn(beat) + time.Duration(turn)*nextTurn(beat)
	if n.cons.Fixed() || turn < 0 || patience >= beat {
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
		n.cfg.Logger.Info("the leader's process is gone: standing for election", "leader", leader.ID)
		if err := n.cons.Campaign(); err != nil {
			n.cfg.Logger.Warn("cannot stand for election", "error", err)
		}
	}()
}

// turnAfter returns the place of this node among the members that may take over from a leader; less than 0 if
// this node may not.
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

// silent waits until the leader has been silent for long enough and this node has caught up. It returns false
// if there is another leader, or if ctx ends before.
func (n *Node) silent(ctx context.Context, leader raftnode.Leadership, patience time.Duration) bool {
	tick := time.NewTicker(suspectTick)
	defer tick.Stop()
	term := n.term()
	heard, _ := n.cons.LastContact()
	due := heard + patience
	for {
		now := n.cfg.Time.Monotonic()
		if t := n.term(); t != term {
			// Another member stands already, and may win. If its log is too short, it does not even get the
			// vote of this node.
			term, due = t, now+firstTurn(n.cfg.HeartbeatTimeout)
		}
		if contact, _ := n.cons.LastContact(); contact > heard {
			heard, due = contact, contact+patience // also after a vote
		}
		if l := n.leading(); l.ID != "" && l != leader {
			return false
		}
		if now >= due && n.cons.CaughtUp() {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
}

// leading returns the leader as this node knows it.
func (n *Node) leading() raftnode.Leadership {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.leader
}
