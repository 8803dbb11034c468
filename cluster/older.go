package cluster

import "lockstep/cluster/internal/forward"

// While a cluster is upgraded, its leader may run version 0.1.0. Such a leader answers OK to some commands that it does not do.
//
// Or an upgraded leader has followers of version 0.1.0. For some commands of clients they send calls in their own name
// (store.SystemUser), such as those of CONFIG SET. This leader runs no such call, because it does not check what the client may do.
// It answers errNewerLeader, and not the refusal of a user without rights: that may come as a store.Noted, which version 0.1.0
// takes for a success here.

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

// MayBeOlder reports whether any node of the cluster may run version 0.1.0. A member may run it until this node has heard from it.
func (n *Node) MayBeOlder() bool { return n.peers.Older() || n.Older() }
