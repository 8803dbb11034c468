package cluster

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/raft"

	"lockstep/cluster/internal/datadir"
	"lockstep/cluster/internal/roster"
)

// A member is its data directory, not its id: one that comes back under its id
// with another directory has forgotten whom it voted for and what it has
// acknowledged, and with its vote a majority could forget a lock. So every
// directory has a name of its own, which goes with every request of Raft, with
// every answer, and with the facts that nodes tell each other. A node keeps in
// node.json with which directory it has met each member. From another one it
// takes no vote, no acknowledgement and no request, until the member has been
// removed from the cluster and taken in again.
//
// Who names no directory, or no cluster, is refused (scrutiny.go).
//
// The name of the cluster goes with them. Raft takes two entries of the same term and
// index for the same, and those of young clusters often have both in common: a node that
// followed the leader of another cluster, because an address has become another node's or
// one cluster was founded over another, would mix their logs. For the same reason an
// answer counts only as that of the member that gives it, whatever address it came from.

// errOtherCluster: see there.
var errOtherCluster = errors.New("cluster: this node belongs to another cluster")

// acquainted is a consensus that knows its members' directories.
type acquainted interface {
	Directory() string
	// Meet notes a member's directory, or fails with datadir.ErrOtherDirectory.
	Meet(id, directory string) error
	// Blank reports whether this node is a first member, by --peers, that begins.
	Blank() bool
}

var _ acquainted = (*raftLog)(nil)

func (r *raftLog) Directory() string { return r.dir.Name() }

// Blank implements acquainted: the directory was made by this process, or holds
// nothing but the first configuration.
func (r *raftLog) Blank() bool {
	return r.founding || !r.dir.Joining() && r.raft.LastIndex() <= 1
}

func (r *raftLog) Meet(id, directory string) error { return r.meet([]byte(id), []byte(directory)) }

// meet runs for every request and answer of Raft.
func (r *raftLog) meet(id, directory []byte) error {
	if len(directory) == 0 {
		return nil
	}
	met, same := r.dir.Met(id, directory)
	if same {
		return nil
	}
	if met {
		if r.dir.NewlyRefused(string(id), string(directory)) {
			r.cfg.Logger.Warn("A member runs on another data directory than the one that this node has met, so it has lost what it acknowledged; it is refused. Remove it from the cluster (lockstep remove), then start it with an empty directory and --join", "id", string(id))
		}
		return fmt.Errorf("%s: %w", id, datadir.ErrOtherDirectory)
	}
	// Whoever is no member may be anybody. Raft exists before it has peers.
	running := r.trans.raft.Load()
	if running == nil {
		return nil
	}
	conf := running.GetConfiguration()
	isMember := func(s raft.Server) bool { return string(s.ID) == string(id) }
	if conf.Error() != nil || !slices.ContainsFunc(conf.Configuration().Servers, isMember) {
		return nil
	}
	return r.dir.Remember(string(id), string(directory), r.configured.Load())
}

// seam stands in Raft's requests between a node's address and its directory.
// Versions that know no directory take both for the address, which they only
// show: they do not forward to this one.
var seam = []byte{0}

// EncodePeer has Raft name its own directory and cluster with its address, and say whether
// this node makes promises and has listeners.
func (t *transport) EncodePeer(id raft.ServerID, addr raft.ServerAddress) []byte {
	b := t.NetworkTransport.EncodePeer(id, addr)
	if string(id) != t.self {
		return b
	}
	b = append(append(b, seam...), t.directory...)
	if t.promises {
		b = append(append(b, seam...), promises...)
	}
	if name := t.cluster(); name != "" {
		b = append(append(append(b, seam...), named...), name...)
	}
	if t.listens == nil || t.listens() {
		b = append(append(b, seam...), listens...)
	}
	return b
}

// DecodePeer reads the address.
func (t *transport) DecodePeer(b []byte) raft.ServerAddress {
	addr, _, _ := bytes.Cut(b, seam)
	return t.NetworkTransport.DecodePeer(addr)
}

// known fails if a node is, or belongs to another cluster.
func (t *transport) known(by raft.RPCHeader) error {
	said := saidBy(by)
	if own := t.cluster(); own != "" && len(said.cluster) > 0 && string(said.cluster) != own {
		return fmt.Errorf("%s: %w", by.ID, errOtherCluster)
	}
	return t.meet(by.ID, said.directory)
}

// knownAs fails if an answer is not of the member that was asked, as it was met with, or
// cannot be true. lastIndex is how far it says that its log goes.
func (t *transport) knownAs(id raft.ServerID, by raft.RPCHeader, term, lastIndex uint64) error {
	if string(by.ID) != string(id) {
		return fmt.Errorf("%q answers at the address of %s", roster.Clip(string(by.ID)), id)
	}
	if len(saidBy(by).directory) == 0 {
		return errNameless
	}
	return cmp.Or(t.known(by), t.believable(term, lastIndex))
}

// believable fails if an answer cannot be true. A leader that is told of a later term gives up.
func (t *transport) believable(term, lastIndex uint64) error {
	own := uint64(0)
	if r := t.raft.Load(); r != nil {
		own = r.CurrentTerm()
	}
	return lookAtAnswer(own, term, lastIndex)
}

// meet takes account of what another node says of its directory, and reports
// whether it is the one that it was met with.
func (n *Node) meet(f facts) bool {
	a, ok := n.cons.(acquainted)
	return !ok || a.Meet(f.id, f.directory) == nil
}

// disowned stops a first member that begins, and that another node which has
// applied at least as much knows with another directory: it has lost that one.
// (A node with a log is the one that was replaced; see removed.go.)
func (n *Node) disowned(by facts) {
	a, ok := n.cons.(acquainted)
	if !ok || by.you != asOther || !a.Blank() || by.applied < n.facts().applied {
		return
	}
	n.disc.disowned.Do(func() {
		n.cfg.Fatal(fmt.Errorf("data directory %s is not the one that %s has met node %s with: that one, and what this node had acknowledged, is lost; remove the node from the cluster (lockstep remove %s), then start it with an empty directory and --join",
			n.cfg.Data, by.id, n.cfg.ID, n.cfg.ID))
	})
}
