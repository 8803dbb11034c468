package cluster

import "slices"

// What a node is to be told that it is a member no more.
//
// Whoever is taken out while it runs finds it in the log: the leader sends the
// new configuration to those, too, who are not in it. Whoever was away is told
// by nobody, because nobody sends it anything any more: Raft's members refuse
// it their votes, and that is all. So it asks, as it always does (facts.go), and
// is told that it is a stranger by a node whose log reaches further than its own.
// In both cases it serves nobody.

// standing is what this node thinks of another.
func (n *Node) standing(id string) standsAs {
	members, err := n.cons.Members()
	if err != nil || len(members) == 0 {
		return asUnknown
	}
	if slices.ContainsFunc(members, func(m Member) bool { return m.ID == id }) {
		return asMember
	}
	return asStranger
}

// judge decides whether this node has been removed, from the configuration as it
// knows it and what the others say.
func (n *Node) judge(members []Member) {
	if len(members) == 0 {
		return // it has not become a member yet
	}
	removed := !slices.ContainsFunc(members, func(m Member) bool { return m.ID == n.cfg.ID })
	if !removed {
		removed = n.outcast()
	}
	if removed {
		n.setLeader(leadership{}) // whoever it followed is not its leader
	}
	switch was := n.removed.Swap(removed); {
	case removed && !was:
		n.cfg.Logger.Warn("This node has been removed from the cluster and serves nobody; stop it, or have it join again with an empty data directory", "id", n.cfg.ID)
	case was && !removed:
		n.cfg.Logger.Info("This node is a member again", "id", n.cfg.ID)
	}
}

// outcast reports whether, while nobody leads this node, another one that has
// applied at least as much calls it a stranger.
func (n *Node) outcast() bool {
	n.mu.Lock()
	led := n.leader.id != ""
	n.mu.Unlock()
	if led {
		return false
	}
	own := n.facts().applied
	now := n.cfg.Time.Monotonic()
	n.disc.mu.Lock()
	defer n.disc.mu.Unlock()
	for _, h := range n.disc.heard {
		if h.told && now-h.seen < n.cfg.DownAfter && h.facts.you == asStranger && h.facts.applied >= own {
			return true
		}
	}
	return false
}

// reconfigured is called when the configuration has changed: those who look for
// the members are told at once.
func (n *Node) reconfigured() {
	select {
	case n.disc.moved <- struct{}{}:
	default:
	}
}

// clusterName names the cluster of this node; "" if it does not know.
func (n *Node) clusterName() string {
	if rc, ok := n.cons.(reconfigurer); ok {
		return rc.Cluster()
	}
	return ""
}

// belong takes over the name of the cluster from a member; discovery.mu is held.
// A directory of an earlier version has none, and neither has a node that an
// operator has added before it could ask.
func (n *Node) belong(f facts) {
	rc, ok := n.cons.(reconfigurer)
	if !ok || f.cluster == "" {
		return
	}
	switch own := rc.Cluster(); own {
	case f.cluster:
	case "":
		if err := rc.Joined(f.cluster); err != nil {
			n.cfg.Logger.Error("the name of the cluster cannot be kept", "error", err)
		}
	default:
		n.cfg.Logger.Error("a peer address of this cluster belongs to a node of another one", "peer", f.id)
	}
}
