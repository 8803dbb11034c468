package cluster

import (
	"slices"
	"time"

	"lockstep/store"
)

// What a node is to be told that it is a member no more.
//
// Whoever is taken out while it runs finds it in the log: the leader sends the
// new configuration to those, too, who are not in it. Whoever was away is told
// by nobody, because nobody sends it anything any more: Raft's members refuse
// it their votes, and that is all. So it asks, as it always does (facts.go), and
// is told that it is a stranger, or that another has its place, by a node whose
// log reaches further than its own.
// In both cases it serves nobody. Raft's last entries for it may reach it late and make
// it believe that it has a leader; that one refuses to serve it.

// standing is what this node thinks of another. One that has the id of a member
// and another address is that member, which has moved, or one whose place has
// been taken: then the member itself answers.
func (n *Node) standing(f facts) standsAs {
	members, err := n.cons.Members()
	if err != nil || len(members) == 0 {
		return asUnknown
	}
	at := slices.IndexFunc(members, func(m Member) bool { return m.ID == f.id })
	switch {
	case at < 0:
		return asStranger
	case !n.meet(f):
		return asOther
	case f.peer == "" || f.peer == members[at].PeerAddr:
		return asMember
	case f.id == n.cfg.ID || n.alive(f.id):
		return asStranger
	}
	return asUnknown
}

// hasMember reports whether a node is in the configuration as this node knows it.
func (n *Node) hasMember(id string) bool {
	members, err := n.cons.Members()
	return err == nil && slices.ContainsFunc(members, func(m Member) bool { return m.ID == id })
}

// judge decides whether this node has been removed, from the configuration as it
// knows it and what the others say. While it has a leader it has not: a new
// member that copies the log meets configurations from before its time.
func (n *Node) judge(members []Member) {
	n.mu.Lock()
	led := n.leader.id != ""
	n.mu.Unlock()
	at := slices.IndexFunc(members, func(m Member) bool { return m.ID == n.cfg.ID })
	n.disc.mu.Lock()
	n.disc.member = at >= 0
	n.disc.mu.Unlock()
	settled := at < 0 || n.compareAddress(members[at].PeerAddr)
	removed := !led && len(members) > 0 && !n.joining() && (at < 0 || settled && n.outcast())
	switch was := n.removed.Swap(removed); {
	case removed && !was:
		n.cfg.Logger.Warn("This node has been removed from the cluster and serves nobody; stop it, or have it join again with an empty data directory", "id", n.cfg.ID)
		if keys, ok := n.cfg.Sink.(store.KeySink); ok {
			keys.Missed()
		}
	case was && !removed:
		n.cfg.Logger.Info("This node is a member again", "id", n.cfg.ID)
	}
}

// misplaced is a member that does not listen where the others look for it.
type misplaced struct {
	known string        // where they do …
	since time.Duration // … as long as this node has known of it
	told  bool
}

// compareAddress looks whether the members look for this node where it listens, and
// says so if they do not. It returns false while that may be so for the moment only: they
// have yet to forget that they have heard it at the old address, and then take it
// for another, or this node has yet to read that they have been told of the new one.
func (n *Node) compareAddress(known string) (settled bool) {
	now, own := n.cfg.Time.Monotonic(), n.cfg.peerAddr()
	n.disc.mu.Lock()
	defer n.disc.mu.Unlock()
	m := &n.disc.misplaced
	switch {
	case known == own || known == "":
		*m = misplaced{}
	case m.known != known:
		*m = misplaced{known: known, since: now}
	}
	settled = m.known == "" || now-m.since >= 2*n.cfg.DownAfter
	if settled && m.known != "" && !m.told {
		m.told = true
		n.cfg.Logger.Warn("The members look for this node at another peer address than its own; correct --peer-listen, --peer-advertise or --peers, or, if it has moved, tell them: lockstep add "+n.cfg.ID+" "+own,
			"looked_for_at", known, "own", own)
	}
	return settled
}

// Misplaced returns the peer address where the members look for this node, if it is
// not its own, else "".
func (n *Node) Misplaced() string {
	n.disc.mu.Lock()
	defer n.disc.mu.Unlock()
	if m := n.disc.misplaced; m.told {
		return m.known
	}
	return ""
}

// joining reports whether this node has yet to become a member.
func (n *Node) joining() bool {
	rc, ok := n.cons.(reconfigurer)
	return ok && rc.Joining()
}

// outcast reports whether another node that has applied at least as much as this
// one calls it a stranger, or knows it with another data directory.
func (n *Node) outcast() bool {
	own := n.facts()
	now := n.cfg.Time.Monotonic()
	n.disc.mu.Lock()
	defer n.disc.mu.Unlock()
	for _, h := range n.disc.heard {
		if own.cluster != "" && h.facts.cluster != "" && own.cluster != h.facts.cluster {
			continue // it is a stranger there
		}
		if h.told && now-h.seen < n.cfg.DownAfter && (h.facts.you == asStranger || h.facts.you == asOther) && h.facts.applied >= own.applied {
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

// belong notes that this node is a member, and of which cluster, as another
// member that it has heard names it; discovery.mu is held. The name is "" if all are of a version
// that had none.
func (n *Node) belong(f facts) {
	rc, ok := n.cons.(reconfigurer)
	if !ok || !n.disc.member {
		return
	}
	switch own := rc.Cluster(); {
	case own == f.cluster && !rc.Joining():
	case own == "" || own == f.cluster:
		if err := rc.Joined(f.cluster); err != nil {
			n.cfg.Logger.Error("that this node is a member could not be noted", "error", err)
		}
	case f.cluster != "" && !n.disc.heard[f.id].foreign:
		n.disc.heard[f.id].foreign = true
		n.cfg.Logger.Error("A peer address of this cluster belongs to a node of another one, which does not follow this node; if this one is to become a member there, start it with an empty directory and --join, without --peers", "peer", f.id, "peer_addr", f.peer)
	}
}

// dismiss ends the links of those that are no members any more: from then on the leader
// executes nothing for their clients. They are refused another one (serveClaim). The link itself
// lives a little longer: the removal may have been asked for on it.
func (n *Node) dismiss(members []Member) {
	if len(members) == 0 {
		return
	}
	n.mu.Lock()
	var gone []*peerConn
	for p := range n.callers {
		if p.claimed.Load() && !slices.ContainsFunc(members, func(m Member) bool { return m.ID == p.id }) {
			gone = append(gone, p)
		}
	}
	n.mu.Unlock()
	for _, p := range gone {
		if !p.dismissed.Swap(true) {
			time.AfterFunc(beatPeriod, func() { p.conn.Close() })
		}
	}
}
