package cluster

import "github.com/lockstep-io/lockstep/cluster/internal/forward"

// A leader of version 0.1.0 answers OK to some commands that it does not carry out. A command that it does not know ends its link to the
// node that has sent it.
//
// A follower of version 0.1.0 sends calls for some commands of a client in its own name (store.SystemUser). The leader cannot
// check the client's rights, so it answers errNewerLeader. The ordinary refusal may be a store.Noted, which such a follower takes
// for a success.

// Older reports whether a command that is submitted now may reach a leader of version 0.1.0: the present, the next, or a still
// unknown one.
func (n *Node) Older() bool {
	rt := n.routes.get()
	return n.KnowsOlder() || rt.link == nil && rt.seq == nil && n.peers.Older()
}

// KnowsOlder reports whether the leader or a member is known to run version 0.1.0.
func (n *Node) KnowsOlder() bool {
	rt := n.routes.get()
	return rt.link != nil && rt.link.Peer.Speaks.Minor < forward.MinorLeases || n.peers.HasOlder()
}

// MayBeOlder reports whether any node of the cluster may run version 0.1.0. A member counts as such a node until this node has
// heard from it.
func (n *Node) MayBeOlder() bool { return n.peers.Older() || n.Older() }
