package cluster

import (
	"fmt"
	"slices"
	"time"

	"lockstep/cluster/internal/raftnode"
	"lockstep/store"
)

// How a node learns that it has been removed.
//
// A node that is removed while it runs finds its removal in the log: the leader sends the new configuration
// also to the node that is no longer in it. A node that was away at that time gets no messages any more: the
// members refuse it their votes, and that is all. So it learns it by the questions that it always asks
// (facts.go): a member that has applied at least as much answers that the node is a stranger, or that the
// member with its id has another data directory. In both cases the removed node serves no client. Late entries
// may make it believe that it has a leader; that leader refuses to serve it.

// standing returns what this node thinks of another. A node that has the id of a member and another address is
// either that member, which has moved, or a former one whose place has been taken. In the second case the
// present member answers at its address.
func (n *Node) standing(f facts) standsAs {
	members, err := n.cons.Members()
	if err != nil || len(members) == 0 {
		return asUnknown
	}
	at := slices.IndexFunc(members, func(m raftnode.Member) bool { return m.ID == f.id })
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

// hasMember reports whether a node is in the configuration that this node knows.
func (n *Node) hasMember(id string) bool {
	members, err := n.cons.Members()
	return err == nil && slices.ContainsFunc(members, func(m raftnode.Member) bool { return m.ID == id })
}

// judge decides whether this node has been removed, from the configuration that it knows and the answers of the
// others. A node with a leader has not been removed: a new member that copies the log reads configurations that
// do not contain it yet.
func (n *Node) judge(members []raftnode.Member) {
	n.mu.Lock()
	led := n.leader.ID != ""
	n.mu.Unlock()
	at := slices.IndexFunc(members, func(m raftnode.Member) bool { return m.ID == n.cfg.ID })
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

// misplaced says that the configuration has another address for this node than its own.
type misplaced struct {
	known string        // address in the configuration; "": its own
	since time.Duration // when this node found the difference
	told  bool          // it has been logged
}

// compareAddress compares the address of this node in the configuration with its own, and logs a lasting
// difference. It returns false while the difference may be temporary: the other members may still remember this
// node at its old address, and take it for a stranger at the new one; or this node has yet to read the entry
// with its new address.
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

// Misplaced returns the peer address at which the members look for this node, if that is not its own address,
// and "" otherwise.
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
	return n.cons.Joining()
}

// outcast reports whether another node that has applied at least as much as this one calls this one a stranger,
// or knows it with another data directory.
func (n *Node) outcast() bool {
	own := n.facts()
	now := n.cfg.Time.Monotonic()
	n.disc.mu.Lock()
	defer n.disc.mu.Unlock()
	for _, h := range n.disc.heard {
		if own.cluster != "" && h.facts.cluster != "" && own.cluster != h.facts.cluster {
			continue // in another cluster this node is a stranger anyway
		}
		if h.told && now-h.seen < n.cfg.DownAfter && (h.facts.you == asStranger || h.facts.you == asOther) && h.facts.applied >= own.applied {
			return true
		}
	}
	return false
}

// reconfigured wakes discover after a change of the configuration.
func (n *Node) reconfigured() {
	select {
	case n.disc.moved <- struct{}{}:
	default:
	}
}

// belong notes that this node is a member, and the name of the cluster in the facts of another member;
// discovery.mu is held. The name is "" if all members run a version without cluster names.
func (n *Node) belong(f facts) {
	if !n.disc.member {
		return
	}
	switch own := n.cons.Cluster(); {
	case own == f.cluster && !n.cons.Joining():
	case own == "" || own == f.cluster:
		if err := n.cons.Joined(f.cluster); err != nil {
			n.cfg.Logger.Error("that this node is a member could not be noted", "error", err)
		}
	case f.cluster != "" && !n.disc.heard[f.id].foreign:
		n.disc.heard[f.id].foreign = true
		n.cfg.Logger.Error("A peer address of this cluster belongs to a node of another one, which does not follow this node; if this one is to become a member there, start it with an empty directory and --join, without --peers", "peer", f.id, "peer_addr", f.peer)
	}
}

// dismiss ends the links of removed members: from then on the leader executes nothing for their clients, and
// serveClaim refuses them new links. The connection itself stays open a little longer, because the request for
// the removal may have come by it.
func (n *Node) dismiss(members []raftnode.Member) {
	if len(members) == 0 {
		return
	}
	n.mu.Lock()
	var gone []*peerConn
	for p := range n.callers {
		if p.claimed.Load() && !slices.ContainsFunc(members, func(m raftnode.Member) bool { return m.ID == p.id }) {
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

// meet reports whether another node names the directory with which this node has met it. It remembers the
// directory of a member that was not met before.
func (n *Node) meet(f facts) bool {
	return n.cons.Meet(f.id, f.directory) == nil
}

// disowned stops this node if it is a first member that is just beginning (Blank), and another node,
// which has applied at least as much, has met it with another directory: that directory is lost. (A node
// with a log is the one that was replaced: see the head of this file.)
func (n *Node) disowned(by facts) {
	if by.you != asOther || !n.cons.Blank() || by.applied < n.facts().applied {
		return
	}
	n.disc.disowned.Do(func() {
		n.cfg.Fatal(fmt.Errorf("data directory %s is not the one that %s has met node %s with: that one, and what this node had acknowledged, is lost; remove the node from the cluster (lockstep remove %s), then start it with an empty directory and --join",
			n.cfg.Data, by.id, n.cfg.ID, n.cfg.ID))
	})
}
