package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
)

// Changes of membership, as Raft makes them: one server at a time, each as an entry of the log. Each
// change is decided on the present configuration, and Raft makes it on no other one (prevIndex). So
// two operators, or an operator and the promoter, cannot undo each other's work unseen.

// changeKind is the kind of a change.
type changeKind int

const (
	addNonVoter  changeKind = iota // adds a member, or gives a member without a vote another address
	addVoter                       // gives a member its vote, or a voter another address
	removeMember                   //
)

// change is one step from a configuration to the next.
type change struct {
	kind     changeKind
	id, addr string
}

// errNoChange is the error of decide if the configuration needs no change.
var errNoChange = errors.New("cluster: nothing to change")

// Fixed implements consensus.
func (r *raftLog) Fixed() bool { return false }

// Reconfigure implements consensus.
func (r *raftLog) Reconfigure(ctx context.Context, decide func([]raftMember) (change, error)) error {
	if !r.proposals.enter() {
		return errNotExecuted
	}
	defer r.proposals.leave()
	// When the barrier is applied, StoreConfiguration has noted the last committed configuration. Raft makes
	// the change only on the configuration with index prev, and only if that one is committed.
	if err := r.within(ctx, r.raft.Barrier(applyTimeout)); err != nil {
		return errNotExecuted
	}
	prev := r.configured.Load()
	members, err := r.Members()
	if err != nil {
		return errNotExecuted
	}
	c, err := decide(members)
	if errors.Is(err, errNoChange) {
		return nil
	}
	if err != nil {
		return err
	}
	id, addr := raft.ServerID(c.id), raft.ServerAddress(c.addr)
	var f raft.IndexFuture
	switch c.kind {
	case addNonVoter:
		f = r.raft.AddNonvoter(id, addr, prev, applyTimeout)
	case addVoter:
		f = r.raft.AddVoter(id, addr, prev, applyTimeout)
	case removeMember:
		f = r.raft.RemoveServer(id, prev, applyTimeout)
	default:
		return fmt.Errorf("cluster: no such change: %d", c.kind)
	}
	switch err := r.within(ctx, f); {
	case err == nil:
		r.cfg.Logger.Info("membership changed", "id", c.id, "peer", c.addr, "change", c.kind.String())
		return nil
	case errors.Is(err, raft.ErrLeadershipLost), errors.Is(err, raft.ErrRaftShutdown), errors.Is(err, ctx.Err()):
		return fmt.Errorf("%w: %w", errUnknown, err)
	default:
		return fmt.Errorf("%w: %w", errNotExecuted, err)
	}
}

func (k changeKind) String() string {
	return [...]string{addNonVoter: "non-voter", addVoter: "voter", removeMember: "removed"}[k]
}

// within waits for a future until ctx ends. The future counts as a proposal until it ends, too, because
// it may still add an entry.
func (r *raftLog) within(ctx context.Context, f raft.Future) error {
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

// Cluster implements consensus.
func (r *raftLog) Cluster() string { return r.dir.Cluster() }

// Joining implements consensus.
func (r *raftLog) Joining() bool { return r.dir.Joining() }

// Joined implements consensus.
func (r *raftLog) Joined(cluster string) error { return r.dir.SetCluster(cluster) }
