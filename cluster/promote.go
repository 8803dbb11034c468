package cluster

import (
	"context"
	"slices"
	"time"
)

// A new member copies the log first and gets its vote when it keeps up: with a
// vote it would count for majorities that it cannot be part of yet, and a
// cluster that has just lost a member could not commit until a snapshot has
// been copied.
//
// hashicorp/raft-autopilot does this, too. It also removes dead servers, which we do not want; it asks
// the machine for the time; and it brings a mock library into the build. This file is the one part
// that is needed, on the facts that the nodes exchange anyway.

// keepUp is how far a member may be behind in time: what was committed then it
// must have applied by now. A beat tells where it stood up to a period ago.
const keepUp = 3 * beatPeriod

// commitAt is how far the log was committed at a time.
type commitAt struct {
	at    time.Duration
	index uint64
}

// promoter gives new members their vote while this node leads.
type promoter struct {
	n       *Node
	commits []commitAt               // of the last keepUp
	since   map[string]time.Duration // since when each non-voter keeps up
}

// promote runs until ctx, which is that of a term, ends.
func (n *Node) promote(ctx context.Context, rc reconfigurer) {
	p := &promoter{n: n, since: map[string]time.Duration{}}
	beat := time.NewTicker(beatPeriod)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
		}
		id := p.look(n.cfg.Time.Monotonic())
		if id == "" {
			continue
		}
		delete(p.since, id) // if it fails, it has to prove itself again
		if err := rc.Reconfigure(ctx, vote(id)); err != nil && ctx.Err() == nil {
			n.cfg.Logger.Warn("a new member did not get its vote yet", "id", id, "error", err)
		}
	}
}

// vote decides to give a member its vote, if it still is one and has none.
func vote(id string) func([]Member) (change, error) {
	return func(members []Member) (change, error) {
		at := slices.IndexFunc(members, func(m Member) bool { return m.ID == id && !m.Voter })
		if at < 0 {
			return change{}, errNoChange
		}
		return change{addVoter, id, members[at].PeerAddr}, nil
	}
}

// look notes who keeps up and returns whose time has come, "" if nobody's has.
func (p *promoter) look(now time.Duration) (due string) {
	n := p.n
	p.commits = append(p.commits, commitAt{now, n.position()})
	for len(p.commits) > 1 && p.commits[1].at <= now-keepUp {
		p.commits = p.commits[1:]
	}
	goal := p.commits[0]
	members, err := n.cons.Members()
	if err != nil {
		return ""
	}
	waiting := map[string]bool{}
	for _, m := range members {
		if m.Voter {
			continue
		}
		waiting[m.ID] = true
		if now-goal.at < keepUp || !n.alive(m.ID) || n.heardApplied(m.ID) < goal.index {
			delete(p.since, m.ID)
			continue
		}
		if _, known := p.since[m.ID]; !known {
			p.since[m.ID] = now
		}
		if now-p.since[m.ID] >= n.cfg.PromoteAfter && due == "" {
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
