package raftnode

import (
	"errors"

	"github.com/hashicorp/raft"

	"github.com/lockstep-io/lockstep/cluster/internal/datadir"
)

// A joining node has no log, so no request tells it whether the leader is the one that it joins. Two clusters may have been told
// its address (lockstep add), and their entries would mix.
//
// So the node first takes the name of its cluster from a member that --join names, and until then refuses every request of Raft.
// If it is started again without --join, it takes the name from the first leader that it follows.

// errUnbound is the error of a node that does not know yet which cluster it joins.
var errUnbound = errors.New("cluster: this node joins a cluster and does not know its name yet")

// ErrBegun is the error of Bind at a node that has begun to join another cluster, but may join this one after a restart.
var ErrBegun = errors.New("this node has begun to join another cluster: if it is to join the one at this address, start it again")

// Bind notes which cluster this node joins. If this node has begun to join another one, Bind fails with datadir.ErrOtherCluster, or with
// ErrBegun.
func (r *Node) Bind(cluster string) error {
	err := r.dir.Bind(cluster)
	if errors.Is(err, datadir.ErrOtherCluster) && r.raft.LastIndex() == 0 && r.raft.CurrentTerm() == 0 {
		return ErrBegun
	}
	return err
}

// unbound reports whether this node has yet to learn from a member which cluster it joins.
func (r *Node) unbound() bool {
	return len(r.cfg.Join) > 0 && r.dir.Joining() && r.dir.Cluster() == ""
}

// claim fails for a request of another cluster than the one that this node joins. If none is known yet, a leader's request
// decides.
func (r *Node) claim(command any, cluster string) error {
	switch own := r.dir.Cluster(); {
	case own == cluster || !r.dir.Joining():
		return nil
	case own != "":
		return errOtherCluster
	}
	switch command.(type) {
	case *raft.AppendEntriesRequest, *raft.InstallSnapshotRequest:
		return r.Bind(cluster)
	}
	return errUnbound
}
