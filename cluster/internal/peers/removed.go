package peers

import (
	"fmt"
	"slices"
	"time"

	"lockstep/cluster/internal/raftnode"
)

// How a node learns that it has been removed.
//
// A node that is removed while it runs finds its removal in the log: the leader sends the new configuration also to the node
// that is no longer in it. A node that was away at that time gets no message about its removal: the members only refuse it
// their votes. So it learns of its removal from the answers to the questions that every node asks (ask.go). Only the answers of
// members that have applied at least as much as this node count. The node takes itself for removed in two cases: such a member
// does not know it, or its id now belongs to a member with another data directory.
//
// A node that knows of its removal serves no client. A removed node that does not know it yet may still believe, by old
// entries, that it has a leader. That leader refuses the commands that the node forwards.

// standing returns what this node thinks of the node that has sent f. Suppose that the sender has the id of a member
// and another address. Either it is that member and has moved, or it is a former member whose id another node now has.
// In the second case the other node answers at the member's address, so the member is alive (Alive).
func (w *Watcher) standing(f Status) Standing {
	members, err := w.cfg.Raft().Members()
	if err != nil || len(members) == 0 {
		return Unknown
	}
	at := slices.IndexFunc(members, func(m raftnode.Member) bool { return m.ID == f.ID })
	switch {
	case at < 0:
		return Stranger
	case !w.sameDirectory(f, members[at].PeerAddr):
		return Other
	case f.Peer == "" || f.Peer == members[at].PeerAddr:
		return Member
	case f.ID == w.cfg.ID || w.Alive(f.ID):
		return Stranger
	}
	return Unknown
}

// HasMember reports whether a node is in the configuration that this node knows.
func (w *Watcher) HasMember(id string) bool {
	members, err := w.cfg.Raft().Members()
	return err == nil && slices.ContainsFunc(members, func(m raftnode.Member) bool { return m.ID == id })
}

// judge decides whether this node has been removed. It uses the configuration that this node knows and the
// answers of the other members. A new member reads, while it copies the log, configurations that do not contain
// it yet. So a node that has a leader does not count as removed.
func (w *Watcher) judge(members []raftnode.Member) {
	led := w.cfg.Leader().ID != ""
	at := slices.IndexFunc(members, func(m raftnode.Member) bool { return m.ID == w.cfg.ID })
	w.mu.Lock()
	w.member = at >= 0
	w.mu.Unlock()
	settled := at < 0 || w.compareAddress(members[at].PeerAddr)
	removed := !led && len(members) > 0 && !w.cfg.Raft().Joining() && (at < 0 || settled && w.outcast())
	switch was := w.removed.Swap(removed); {
	case removed && !was:
		w.cfg.Logger.Warn("This node has been removed from the cluster and serves nobody; stop it, or have it join again with an empty data directory", "id", w.cfg.ID)
		w.cfg.Removed()
	case was && !removed:
		w.cfg.Logger.Info("This node is a member again", "id", w.cfg.ID)
	}
}

// misplaced says that the configuration has another address for this node than its own.
type misplaced struct {
	known string        // address in the configuration; "": its own
	since time.Duration // when this node found the difference
	told  bool          // the difference has been logged
}

// compareAddress compares the address of this node in the configuration with its own, and logs a lasting difference. It returns false
// while the difference may be temporary. There are two such differences: the other members may still remember this node at its old
// address, and take it for a stranger at the new one; or this node has yet to read the entry with its new address.
func (w *Watcher) compareAddress(known string) (settled bool) {
	now, own := w.cfg.Clock.Monotonic(), w.cfg.PeerAddr
	w.mu.Lock()
	defer w.mu.Unlock()
	m := &w.misplaced
	switch {
	case known == own || known == "":
		*m = misplaced{}
	case m.known != known:
		*m = misplaced{known: known, since: now}
	}
	settled = m.known == "" || now-m.since >= 2*w.cfg.DownAfter
	if settled && m.known != "" && !m.told {
		m.told = true
		w.cfg.Logger.Warn("The members look for this node at another peer address than its own; correct --peer-listen, --peer-advertise or --peers, or, if it has moved, tell them: lockstep add "+w.cfg.ID+" "+own,
			"looked_for_at", known, "own", own)
	}
	return settled
}

// Misplaced returns the wrong peer address at which the members look for this node, once compareAddress has logged it. Until
// then, and if the address is right, it returns "".
func (w *Watcher) Misplaced() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if m := w.misplaced; m.told {
		return m.known
	}
	return ""
}

// outcast reports whether another member has lately answered that this node is a stranger, or that it has met this node
// with another data directory. It counts only the answers of members that have applied at least as much as this node.
func (w *Watcher) outcast() bool {
	own := w.Own()
	now := w.cfg.Clock.Monotonic()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.heard {
		if own.Cluster != "" && h.status.Cluster != "" && own.Cluster != h.status.Cluster {
			continue // to a node of another cluster, this node is a stranger anyway
		}
		if h.told && now-h.seen < w.cfg.DownAfter && (h.status.You == Stranger || h.status.You == Other) && h.status.Applied >= own.Applied {
			return true
		}
	}
	return false
}

// Moved wakes Run after a change of the configuration.
func (w *Watcher) Moved() {
	select {
	case w.moved <- struct{}{}:
	default:
	}
}

// adopt takes the name of the cluster from f, the status of another member, and notes that this node is a member of
// that cluster. f.Cluster is "" if the other member does not know the name. adopt does nothing if this node is no
// member. If this node belongs to another cluster, adopt logs an error, once. The caller holds mu.
func (w *Watcher) adopt(f Status) {
	if !w.member {
		return
	}
	switch own := w.cfg.Raft().Cluster(); {
	case own == f.Cluster && !w.cfg.Raft().Joining():
	case own == "" || own == f.Cluster:
		if err := w.cfg.Raft().Joined(f.Cluster); err != nil {
			w.cfg.Logger.Error("that this node is a member could not be noted", "error", err)
		}
	case f.Cluster != "" && !w.heard[f.ID].foreign:
		w.heard[f.ID].foreign = true
		w.cfg.Logger.Error("A peer address of this cluster belongs to a node of another one, which does not follow this node; if this one is to become a member there, start it with an empty directory and --join, without --peers", "peer", f.ID, "peer_addr", f.Peer)
	}
}

// sameDirectory returns false if the status f names another data directory than the one with which this node has met the
// sender. If this node has not met the sender before, and the sender is the member at addr, sameDirectory remembers the
// sender's directory. It also returns false if it cannot write that to the disk. It does not remember the directory of a sender
// at another address. That sender may be a removed node that still runs, although another node now has its id.
func (w *Watcher) sameDirectory(f Status, addr string) bool {
	if f.Peer != addr {
		return w.cfg.Raft().Recognize(f.ID, f.Directory) == nil
	}
	return w.cfg.Raft().Meet(f.ID, f.Directory) == nil
}

// disown stops this node if it has lost its data directory. It concludes that from three facts. This node is a first member that
// is just beginning (Blank). Another node has met this node with another data directory. And that other node has applied at least
// as much as this node. A node that has a log goes on: it was replaced, and the method judge finds that it has been removed.
//
// The status by comes from the other node, which has answered at the address of the member whose id is the parameter asked. That
// address may now belong to a node of another cluster, which may even have the same id. Such a node knows nothing of this one,
// and does not end it.
func (w *Watcher) disown(asked string, by Status) {
	own := w.Own()
	if by.ID != asked || by.Cluster != own.Cluster || by.You != Other || by.Applied < own.Applied {
		return
	}
	if !w.cfg.Raft().Blank() || !w.judgedBy(by.ID) {
		return
	}
	w.disowned.Do(func() {
		w.cfg.Fatal(fmt.Errorf("data directory %s is not the one that %s has met node %s with: that one, and what this node had acknowledged, is lost; remove the node from the cluster (lockstep remove %s), then start it with an empty directory and --join",
			w.cfg.Data, by.ID, w.cfg.ID, w.cfg.ID))
	})
}

// judgedBy reports whether the member with this id can know that this node has lost its data directory. Before this node has had
// a leader, any member can. Afterwards only its leader can. A leader sends entries even to a member on another directory, but
// takes no acknowledgement from it. Any other member may itself be back on an old directory, which remembers the founders of an
// earlier cluster.
func (w *Watcher) judgedBy(id string) bool {
	leader := w.cfg.Leader().ID
	w.mu.Lock()
	defer w.mu.Unlock()
	return id == leader || leader == "" && w.last == ""
}
