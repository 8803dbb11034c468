package raftnode

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/lockstep-io/lockstep/cluster/internal/roster"
)

// Each change is decided on the present configuration, and made on no other (prevIndex). So operators and the promoter cannot
// undo each other's work unseen.

// changeKind is the kind of a change.
type changeKind int

const (
	AddNonVoter changeKind = iota // adds a member, or gives a member without a vote another address
	AddVoter                      // gives a member its vote, or a voter another address
	RemoveMember
)

// Change is one step from a configuration to the next.
type Change struct {
	Kind     changeKind
	ID, Addr string
}

// on returns the configuration that the change makes of the present one.
func (c Change) on(members []Member) (conf raft.Configuration) {
	with := func(id, addr string, votes bool) {
		s := raft.Server{ID: raft.ServerID(id), Address: raft.ServerAddress(addr), Suffrage: raft.Nonvoter}
		if votes {
			s.Suffrage = raft.Voter
		}
		conf.Servers = append(conf.Servers, s)
	}
	for _, m := range members {
		if m.ID != c.ID {
			with(m.ID, m.PeerAddr, m.Voter)
		}
	}
	if c.Kind != RemoveMember {
		with(c.ID, c.Addr, c.Kind == AddVoter)
	}
	return conf
}

// MaxMembers is the most members that a cluster may have.
const MaxMembers = roster.MaxMembers

// ErrNoChange is what the function decide returns to Reconfigure if the configuration needs no change.
var ErrNoChange = errors.New("cluster: nothing to change")

// Fixed reports whether the members can never change. It returns false, because the members of a Node can change.
func (r *Node) Fixed() bool { return false }

// Reconfigure makes the change that decide returns for the present configuration, unless another comes first. ErrNotExecuted: it
// will never be made. ErrUnknown: it may be.
func (r *Node) Reconfigure(ctx context.Context, decide func([]Member) (Change, error)) error {
	if !r.proposals.enter() {
		return ErrNotExecuted
	}
	defer r.proposals.leave()
	// After the barrier, StoreConfiguration has noted the last committed configuration. Raft makes the change on no other one
	// (prev).
	if err := r.within(ctx, r.raft.Barrier(applyTimeout)); err != nil {
		return ErrNotExecuted
	}
	prev := r.configured.Load()
	members, err := r.Members()
	if err != nil {
		return ErrNotExecuted
	}
	c, err := decide(members)
	if errors.Is(err, ErrNoChange) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := c.reaches(members); err != nil {
		return err
	}
	if err := roster.Check(c.on(members)); err != nil {
		return fmt.Errorf("%w: the members would refuse an entry: %w", ErrNotExecuted, err)
	}
	id, addr := raft.ServerID(c.ID), raft.ServerAddress(c.Addr)
	var f raft.IndexFuture
	switch c.Kind {
	case AddNonVoter:
		f = r.raft.AddNonvoter(id, addr, prev, applyTimeout)
	case AddVoter:
		f = r.raft.AddVoter(id, addr, prev, applyTimeout)
	case RemoveMember:
		f = r.raft.RemoveServer(id, prev, applyTimeout)
	default:
		return fmt.Errorf("cluster: no such change: %d", c.Kind)
	}
	switch err := r.within(ctx, f); {
	case err == nil:
		r.cfg.Logger.Info("membership changed", "id", c.ID, "peer", c.Addr, "change", c.Kind.String())
		return nil
	case errors.Is(err, raft.ErrLeadershipLost), errors.Is(err, raft.ErrRaftShutdown), errors.Is(err, ctx.Err()):
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	default:
		return fmt.Errorf("%w: %w", ErrNotExecuted, err)
	}
}

func (k changeKind) String() string {
	return [...]string{AddNonVoter: "non-voter", AddVoter: "voter", RemoveMember: "removed"}[k]
}

// within waits until the future f or ctx ends. Until f ends, f counts as one more proposal, because it may
// still add an entry.
func (r *Node) within(ctx context.Context, f raft.Future) error {
	done := make(chan error, 1)
	r.proposals.stay()
	go func() {
		defer r.proposals.leave()
		done <- f.Error()
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Cluster returns the name of the cluster that this node belongs to; "" if it does not know or belongs to none.
func (r *Node) Cluster() string { return r.dir.Cluster() }

// Joining reports whether this node has yet to become a member.
func (r *Node) Joining() bool { return r.dir.Joining() }

// Joined notes that this node has become a member of a cluster.
func (r *Node) Joined(cluster string) error { return r.dir.SetCluster(cluster) }
