package peers

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"syscall"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/clock"
	"github.com/lockstep-io/lockstep/cluster/internal/raftnode"
)

// When a process dies, its port refuses connections at once. So a follower whose link to the leader breaks, and whose new
// connection is refused, stands for election after a short silence. A living leader sends heartbeats every 50 to 100 ms.
//
// Followers stand one after the other, so that they do not split the votes. A follower sends itself the message by which a leader
// transfers leadership (Campaign). That message skips the pre-vote, which other voters refuse while they believe in the old
// leader.

// SuspectTick is how often the function silent looks for signs of life of the leader.
const SuspectTick = 5 * time.Millisecond

// firstTurn is how long the first member (turnAfter) waits for a sign of life. A living leader sends one within a fifth of
// heartbeat.
func firstTurn(heartbeat time.Duration) time.Duration { return heartbeat / 4 }

// nextTurn separates the turns of two members: within it, a member that can win has won, and no votes are split.
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
	ByWish              func([]raftnode.Member)    // sorts members: those who should lead rather than others come first
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

// Stand has this node stand for election once the suspected leader has been silent until this node's turn.
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

// turnAfter returns this node's position, from 0, among the voters other than leader, ordered by wish and id, or -1.
func (s *Suspicion) turnAfter(leader string) int {
	members, err := s.Raft.Members()
	if err != nil {
		return -1
	}
	members = slices.DeleteFunc(slices.Clone(members), func(m raftnode.Member) bool { return !m.Voter || m.ID == leader })
	slices.SortFunc(members, func(a, b raftnode.Member) int { return cmp.Compare(a.ID, b.ID) })
	s.ByWish(members)
	return slices.IndexFunc(members, func(m raftnode.Member) bool { return m.ID == s.ID })
}

// silent waits until the leader has been silent for patience and this node has caught up; false: another node leads or ctx has
// ended.
func (s *Suspicion) silent(ctx context.Context, leader raftnode.Leadership, patience time.Duration) bool {
	tick := time.NewTicker(SuspectTick)
	defer tick.Stop()
	term := s.Raft.Facts().Term
	heard, _ := s.Raft.LastContact()
	due := heard + patience
	for {
		now := s.Clock.Monotonic()
		if t := s.Raft.Facts().Term; t != term {
			// Another member stands and may win, so this node waits again. Then it stands, too: the other's log may be too short.
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
