package cluster

import "lockstep/cluster/internal/forward"

// While a cluster is upgraded, its leader may run version 0.1.0. Such a leader answers OK to some commands that it does not
// carry out.
//
// The other way round, an upgraded leader may have followers of version 0.1.0. If a client sends a command such as CONFIG SET,
// such a follower sends calls in its own name (store.SystemUser), so the leader does not check the rights of the client. The
// leader runs no such call, and answers errNewerLeader. The usual refusal of a user without rights may come as a store.Noted,
// which a follower of version 0.1.0 takes for a success here.

// Older reports whether a command that is submitted now may reach a leader of version 0.1.0. There are three cases: the
// leader runs that version; another member runs it, and may lead next; there is no leader yet, and this node does not
// know the versions of all members.
func (n *Node) Older() bool {
	rt := n.routes.get()
	switch {
	case rt.link != nil && rt.link.Peer.Speaks.Minor < forward.MinorLeases, n.peers.HasOlder():
		return true
	case rt.link == nil && rt.seq == nil:
		return n.peers.Older()
	}
	return false
}

// MayBeOlder reports whether any node of the cluster may run version 0.1.0. A member counts as such a node until this node has
// heard from it.
func (n *Node) MayBeOlder() bool { return n.peers.Older() || n.Older() }
