package peers

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"syscall"
	"time"

	"lockstep/cluster/internal/clock"
	"lockstep/cluster/internal/raftnode"
)

// When a process dies, its connections break at once and its port refuses new ones. That says more than
// silence, which means little on a busy machine. So a follower that loses its link to the leader, and whose new
// connection is refused, waits for a few missing heartbeats and then stands for election.
//
// The suspicion decides only the time of an election. The winner still needs the votes of a majority. If the leader lives after all,
// behind a port that refuses connections, it sends heartbeats, and then no follower stands.
//
// The first member stands after a quarter of the heartbeat timeout, 125 ms, and the next one 200 ms later, so that they do not split the
// votes. A member stands by sending itself the message by which a leader transfers leadership (Campaign). Raft's own way would be too
// slow: its timers cannot be set below the leader lease, and other voters would refuse a pre-vote while they believe in the old leader.
// The message skips the pre-vote.
//
// Without a pre-vote, nobody else checks that the leader is gone. So the follower also waits for silence: a living leader sends entries
// every 10 to 20 ms and heartbeats every 50 to 100 ms. If a machine or a network falls silent, Raft's timers start the election.

// SuspectTick is how often the function silent looks for signs of life of the leader.
const SuspectTick = 5 * time.Millisecond

// firstTurn is how long the first member (turnAfter) waits for a sign of life of a leader whose process seems to be gone. A
// living leader sends a heartbeat after a tenth to a fifth of the heartbeat timeout, and entries far more often.
func firstTurn(heartbeat time.Duration) time.Duration { return heartbeat / 4 }

// nextTurn is the time between the turns of two members to stand for election, so that they do not split the votes. Even with a busy
// disk, a member that can win has won within nextTurn.
func nextTurn(heartbeat time.Duration) time.Duration { return heartbeat * 2 / 5 }

// Refused reports whether the machine at an address refused a connection, because no process listens there.
func Refused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// Suspicion has what a node needs to stand for election when it suspects that the process of the leader is gone.
type Suspicion struct {
	ID                  string // of this node
	Heartbeat, Election time.Duration
	Clock               clock.Source
	Logger              *slog.Logger
	Raft                Elector
	Leader              func() raftnode.Leadership // the leader as the node knows it
}

// Elector is what Raft knows of leaders, and how a node stands for election.
type Elector interface {
	Members() ([]raftnode.Member, error)
	Facts() raftnode.Facts
	// LastContact returns when this node last heard from a leader.
	LastContact() (at time.Duration, known bool)
	// CaughtUp reports whether this node has applied what the leader has committed (raftnode.Node.CaughtUp).
	CaughtUp() bool
	// Campaign makes this node stand for election now.
	Campaign() error
}

// Stand waits for the silence of the suspected leader, and then has this node stand for election. It gives up if another node leads, if
// ctx ends, or after two election timeouts. Until then a node that has not caught up keeps waiting, because it could not lead at once.
// Stand does nothing if this node has no vote, or if its turn would come after Raft's own timers.
func (s *Suspicion) Stand(ctx context.Context, leader raftnode.Leadership) {
	turn := s.turnAfter(leader.ID)
	patience := firstTurn(s.Heartbeat) + time.Duration(turn)*nextTurn(s.Heartbeat)
	if turn < 0 || patience >= s.Heartbeat {
		return // Raft's own timers come first
	}
	ctx, cancel := context.WithTimeout(ctx, 2*s.Election)
	defer cancel()
	if !s.silent(ctx, leader, patience) {
		return
	}
	s.Logger.Info("the leader's process is gone: standing for election", "leader", leader.ID)
	if err := s.Raft.Campaign(); err != nil {
		s.Logger.Warn("cannot stand for election", "error", err)
	}
}

// turnAfter returns the position of this node, counted from 0, among the voters other than the leader, in the order of
// their ids. It is negative if this node is none of them.
func (s *Suspicion) turnAfter(leader string) int {
	members, err := s.Raft.Members()
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
	return slices.Index(ids, s.ID)
}

// silent waits until the leader has been silent for the time in the parameter patience, and this node has caught up. It returns
// false if another node leads or ctx ends before that.
func (s *Suspicion) silent(ctx context.Context, leader raftnode.Leadership, patience time.Duration) bool {
	tick := time.NewTicker(SuspectTick)
	defer tick.Stop()
	term := s.Raft.Facts().Term
	heard, _ := s.Raft.LastContact()
	due := heard + patience
	for {
		now := s.Clock.Monotonic()
		if t := s.Raft.Facts().Term; t != term {
			// Another member stands already, and may win, so this node waits for another firstTurn. After that this node
			// stands, too, because the other member may lose if its log is too short.
			term, due = t, now+firstTurn(s.Heartbeat)
		}
		if contact, _ := s.Raft.LastContact(); contact > heard {
			heard, due = contact, contact+patience // a vote for another node counts as contact, too
		}
		if l := s.Leader(); l.ID != "" && l != leader {
			return false
		}
		if now >= due && s.Raft.CaughtUp() {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
}
