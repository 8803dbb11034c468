package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
)

// Changes of membership, as Raft does them: one server at a time, each an entry of the log. Each
// change is decided on the configuration before it and made on that one only (raft's prevIndex). So
// two operators, or an operator and the promoter, cannot undo each other's work unseen.

// changeKind is what is done to a member.
type changeKind int

const (
	addNonVoter  changeKind = iota // a new member, or another address of one without a vote
	addVoter                       // gives a member its vote, or a voter another address
	removeMember                   //
)

// change is one step from a configuration to the next.
type change struct {
	kind     changeKind
	id, addr string
}

// reconfigurer is a consensus that has more than one member. A node alone that
// keeps nothing on disk is none.
type reconfigurer interface {
	// Reconfigure changes the membership. decide is given the configuration and
	// says what to do about it; no other change can come between. It returns
	// when the change is committed. errNotExecuted: it was not made and never
	// will be, errUnknown: it may still be; other errors are of decide, and
	// errNoChange is no error.
	Reconfigure(ctx context.Context, decide func([]Member) (change, error)) error
	// Cluster names the cluster that this node belongs to, "" if it does not
	// know or belongs to none.
	Cluster() string
	// Joining reports whether this node has yet to become a member.
	Joining() bool
	// Joined notes that this node has become a member.
	Joined(cluster string) error
}

var _ reconfigurer = (*raftLog)(nil)

// errNoChange is what decide returns if the configuration is as it should be.
var errNoChange = errors.New("cluster: nothing to change")

func (r *raftLog) Reconfigure(ctx context.Context, decide func([]Member) (change, error)) error {
	if !r.proposals.enter() {
		return errNotExecuted
	}
	defer r.proposals.leave()
	// What is committed has been noted (StoreConfiguration) when the barrier is
	// applied. Raft makes the change only on the configuration that was looked
	// at, and only if that one is committed.
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

// within waits for a future until ctx ends. Until the future does, an entry may come of it.
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

func (r *raftLog) Cluster() string             { return r.dir.Cluster() }
func (r *raftLog) Joining() bool               { return r.dir.Joining() }
func (r *raftLog) Joined(cluster string) error { return r.dir.SetCluster(cluster) }
