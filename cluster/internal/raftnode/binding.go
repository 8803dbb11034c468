package raftnode

import (
	"errors"

	"github.com/hashicorp/raft"

	"lockstep/cluster/internal/datadir"
)

// A joining node has no log yet, so nothing in a request tells it whether the leader is the one that it joins. The leader of another
// cluster may send to it, too: an operator may have told both clusters its address (lockstep add). If the node took entries of both
// clusters, the two logs would mix.
//
// So a joining node first learns the name of its cluster from a member that --join names, and writes that name to node.json. Until then
// it refuses every request of Raft. A node that is started again without --join, before it has joined, has nobody to ask. It takes the
// name from the first leader that it follows, and writes the name down before it takes anything else.

// errUnbound is the error of a node that does not know yet which cluster it joins.
var errUnbound = errors.New("cluster: this node joins a cluster and does not know its name yet")

// ErrBegun is the error of Bind at a node that has begun to join another cluster, but has taken nothing from that cluster. If the node is
// started again, it asks the addresses of --join anew.
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

// claim is called with a request that Raft is to see, and the name of the sender's cluster. It fails if this node joins another
// cluster. If this node does not know yet which one it joins, claim notes the cluster of a leader, and refuses other requests.
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
