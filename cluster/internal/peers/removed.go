package peers

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/raftnode"
)

// A node that was away when it was removed learns of that from answers of members that have applied at least as much (ask.go).
// Such a member does not know the node, or knows its id with another data directory. A node that knows of its removal serves no
// client.

// standing returns what this node thinks of f's sender. A member's id at another address: the member may have moved, unless it is
// alive.
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

// judge decides whether this node has been removed. A node with a leader is not, even if its old configuration lacks it.
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

// compareAddress logs a lasting difference between this node's address and known, its address in the configuration. It returns
// false while the difference may pass.
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

// Misplaced returns the wrong peer address at which the members look for this node, if compareAddress has logged one.
func (w *Watcher) Misplaced() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if m := w.misplaced; m.told {
		return m.known
	}
	return ""
}

// outcast reports whether a member that has applied at least as much as this node has lately answered Stranger or Other.
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

// adopt notes that this node is a member of f's cluster, or logs once that f is of another one. The caller holds mu.
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

// sameDirectory checks the directory in f, and remembers it only for a sender at addr: elsewhere, a removed node may use the same
// id.
func (w *Watcher) sameDirectory(f Status, addr string) bool {
	if f.Peer != addr {
		return w.cfg.Raft().Recognize(f.ID, f.Directory) == nil
	}
	return w.cfg.Raft().Meet(f.ID, f.Directory) == nil
}

// disown stops this node if it is Blank but another member has met it with another directory. The sender of by may be foreign.
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

// judgedBy reports whether the member id can know that this node has lost its directory. Once there was a leader, only the leader
// can.
func (w *Watcher) judgedBy(id string) bool {
	leader := w.cfg.Leader().ID
	w.mu.Lock()
	defer w.mu.Unlock()
	return id == leader || leader == "" && w.last == ""
}
