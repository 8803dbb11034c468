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

// commitAt is how far the log was committed at a time.
type commitAt struct {
	at    time.Duration
	index uint64
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

	commits []commitAt               // the commit index during the last keepUp
	since   map[string]time.Duration // since when each non-voter keeps up
}

// Run gives votes to new members until ctx, the context of a term, ends.
func (p *Promoter) Run(ctx context.Context) {
	w := p.Watcher
	p.since = map[string]time.Duration{}
	period := time.NewTicker(Period)
	defer period.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-period.C:
		}
		id := p.look(w.cfg.Clock.Monotonic())
		if id == "" {
			continue
		}
		delete(p.since, id) // if the change fails, the member has to keep up for another Promoter.After
		if err := p.Reconfigure(ctx, vote(id)); err != nil && ctx.Err() == nil {
			w.cfg.Logger.Warn("a new member did not get its vote yet", "id", id, "error", err)
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

// look notes which members without a vote keep up. It returns one that has kept up for Promoter.After, or "".
func (p *Promoter) look(now time.Duration) (due string) {
	w := p.Watcher
	p.commits = append(p.commits, commitAt{now, p.Position()})
	for len(p.commits) > 1 && p.commits[1].at <= now-keepUp {
		p.commits = p.commits[1:]
	}
	goal := p.commits[0]
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
		if now-goal.at < keepUp || !w.Alive(m.ID) || w.Applied(m.ID) < goal.index {
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
