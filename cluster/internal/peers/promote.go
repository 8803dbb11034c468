package peers

import (
	"context"
	"slices"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/raftnode"
)

// A new member gets its vote only when it keeps up. With an earlier vote, a cluster that has just lost a member could commit
// nothing until the new member has copied a snapshot.
//
// hashicorp/raft-autopilot is not used: it also removes dead servers.

// keepUp is how far, in time, a member may be behind: by now it must have applied what was committed a keepUp ago.
const keepUp = 3 * Period

// commits is how far the log was committed at the times of the last keepUp.
type commits []commitAt

type commitAt struct {
	at    time.Duration
	index uint64
}

// goal notes how far the log is committed now, and returns how far it was a keepUp ago; known is false if it has not been noted for so long.
func (c *commits) goal(now time.Duration, index uint64) (goal uint64, known bool) {
	*c = append(*c, commitAt{now, index})
	for len(*c) > 1 && (*c)[1].at <= now-keepUp {
		*c = (*c)[1:]
	}
	return (*c)[0].index, now-(*c)[0].at >= keepUp
}

// Promoter gives new members their vote while this node leads.
type Promoter struct {
	Watcher *Watcher
	// After is how long a member must have kept up before it gets its vote.
	After time.Duration
	// Position returns the index up to which this node knows the log to be committed.
	Position func() uint64
	// Reconfigure changes the membership (raftnode.Node.Reconfigure).
	Reconfigure func(ctx context.Context, decide func([]raftnode.Member) (raftnode.Change, error)) error

	commits commits
	since   map[string]time.Duration // since when each non-voter keeps up
}

// Run gives votes to new members until ctx, the context of a term, ends.
func (p *Promoter) Run(ctx context.Context) {
	w := p.Watcher
	p.since = map[string]time.Duration{}
	w.findEach(ctx, p.look, func(id string) {
		delete(p.since, id) // if the change fails, the member has to keep up for another Promoter.After
		if err := p.Reconfigure(ctx, vote(id)); err != nil && ctx.Err() == nil {
			w.cfg.Logger.Warn("a new member did not get its vote yet", "id", id, "error", err)
		}
	})
}

// findEach calls look in every Period until ctx ends, and act with the member that look returns, unless that is "".
func (w *Watcher) findEach(ctx context.Context, look func(now time.Duration) (id string), act func(id string)) {
	period := time.NewTicker(Period)
	defer period.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-period.C:
		}
		if id := look(w.cfg.Clock.Monotonic()); id != "" {
			act(id)
		}
	}
}

// vote returns a decision for Reconfigure: give a member its vote, if it is still a member without one.
func vote(id string) func([]raftnode.Member) (raftnode.Change, error) {
	return func(members []raftnode.Member) (raftnode.Change, error) {
		at := slices.IndexFunc(members, func(m raftnode.Member) bool { return m.ID == id && !m.Voter })
		if at < 0 {
			return raftnode.Change{}, raftnode.ErrNoChange
		}
		return raftnode.Change{Kind: raftnode.AddVoter, ID: id, Addr: members[at].PeerAddr}, nil
	}
}

// look notes which members without a vote keep up, except those who want none. It returns one that has kept up for Promoter.After, or "".
func (p *Promoter) look(now time.Duration) (due string) {
	w := p.Watcher
	goal, known := p.commits.goal(now, p.Position())
	members, err := w.cfg.Raft().Members()
	if err != nil {
		return ""
	}
	waiting := map[string]bool{}
	for _, m := range members {
		if m.Voter {
			continue
		}
		waiting[m.ID] = true
		wish, told := w.told(m.ID)
		if !known || !told || wish.Learner || !w.Alive(m.ID) || w.Applied(m.ID) < goal {
			delete(p.since, m.ID)
			continue
		}
		if _, known := p.since[m.ID]; !known {
			p.since[m.ID] = now
		}
		if now-p.since[m.ID] >= p.After && due == "" {
			due = m.ID
		}
	}
	for id := range p.since {
		if !waiting[id] {
			delete(p.since, id)
		}
	}
	return due
}
