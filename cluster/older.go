package cluster

import "lockstep/cluster/internal/forward"

// While a cluster is upgraded, its leader may run version 0.1.0. Such a leader answers OK to some commands that it does not
// carry out.
//
// Conversely, an upgraded leader may have followers of version 0.1.0. For some commands of a client, such as CONFIG SET, such a
// follower sends calls in its own name (store.SystemUser). Then the leader cannot check the rights of the client. So the leader
// runs no such call, and answers errNewerLeader. It does not use the ordinary refusal of a user without rights, because that
// may be a store.Noted, and such a follower takes a store.Noted for a success here.

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
