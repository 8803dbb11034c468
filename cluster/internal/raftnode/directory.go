package raftnode

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/hashicorp/raft"

	"lockstep/cluster/internal/datadir"
	"lockstep/cluster/internal/roster"
)

// A member is its data directory, not its id. A node that comes back under its id with another directory
// has forgotten its votes and what it has acknowledged, and with its vote a majority could forget a lock.
// So every directory has a name of its own. That name is in every request of Raft, in every answer but
// those to InstallSnapshot and TimeoutNow, and in the status that nodes tell each other (peers/status.go). A
// node keeps in node.json with which directory it has met each member. From a member that comes with another directory,
// it takes no vote, no acknowledgement and no request, until the member has been removed from the cluster
// and taken in again.
//
// A request that names no directory or no cluster is refused (scrutiny.go), and so is an answer that names no directory.
//
// Each of these messages also names the cluster, if the sender knows the name. Raft takes two entries with the same term and index for
// the same entry, and two young clusters often have such entries. A node may get requests of the leader of another cluster. Perhaps that
// cluster has a member at the address that this node now has, or an operator has founded a new cluster on the old addresses. Without the
// name of the cluster, the two logs would mix. For the same reason a node refuses an answer that comes from another member than the one
// that it has asked.

// errOtherCluster is the error for a node that names another cluster.
var errOtherCluster = datadir.ErrOtherCluster

// Directory returns the name of the data directory.
func (r *Node) Directory() string { return r.dir.Name() }

// Blank reports whether this node is a first member of its cluster and holds nothing from before: this process made the
// directory, or the log has only the first configuration.
func (r *Node) Blank() bool {
	return r.founding || !r.dir.Joining() && r.raft.LastIndex() <= 1
}

// Meet notes the directory of a member that was not met before. The caller must have heard of the directory from the node at the member's
// configured address, or from a node that claims to have that address. Meet fails with datadir.ErrOtherDirectory if the member was met
// with another directory, or with the error of the write to node.json.
func (r *Node) Meet(id, directory string) error { return r.meet([]byte(id), []byte(directory), nil) }

// Met reports whether a member was met before, and whether that was with this directory. Unlike Meet, it notes nothing.
func (r *Node) Met(id, directory string) (met, same bool) {
	return r.dir.Met([]byte(id), []byte(directory))
}

// Recognize fails with datadir.ErrOtherDirectory if the node with this id was met as a member with another directory. It notes
// nothing.
func (r *Node) Recognize(id, directory string) error {
	_, err := r.recognize([]byte(id), []byte(directory))
	return err
}

// recognize does the work of Recognize. The result known is true if there is nothing to note: the node was met with this
// directory, or names none.
func (r *Node) recognize(id, directory []byte) (known bool, err error) {
	if len(directory) == 0 {
		return true, nil
	}
	met, same := r.dir.Met(id, directory)
	if same || !met {
		return same, nil
	}
	if r.dir.NewlyRefused(string(id), string(directory)) {
		r.cfg.Logger.Warn("A member runs on another data directory than the one that this node has met, so it has lost what it acknowledged; it is refused. Remove it from the cluster (lockstep remove), then start it with an empty directory and --join", "id", string(id))
	}
	return false, fmt.Errorf("%s: %w", id, datadir.ErrOtherDirectory)
}

// meet checks the directory that a node names in a request or an answer of Raft. If the node is a member that was not met before,
// and addr is the member's address, the method meet remembers the directory. The parameter addr is the address that was asked, or
// the address that the sender of a request claims. A nil addr stands for the member's address. The address matters because a
// removed node that still runs may use the id of the member that has replaced it. Such a node has another address.
func (r *Node) meet(id, directory, addr []byte) error {
	if known, err := r.recognize(id, directory); known || err != nil {
		return err
	}
	// Only the directory of a member is remembered, because any caller can name an id that is no member's. While
	// Raft starts, the members are not known yet.
	running := r.trans.raft.Load()
	if running == nil {
		return nil
	}
	conf := running.GetConfiguration()
	isMember := func(s raft.Server) bool {
		return string(s.ID) == string(id) && (addr == nil || string(s.Address) == string(addr))
	}
	if conf.Error() != nil || !slices.ContainsFunc(conf.Configuration().Servers, isMember) {
		return nil
	}
	return r.dir.Remember(string(id), string(directory), r.configured.Load())
}

// separator separates a node's address from the name of its directory, and from what else EncodePeer adds. A version
// that knows no directories takes all of this for the address. This does no harm, because that version forwards nothing
// to a node of this version: it only shows the address.
var separator = []byte{0}

// EncodePeer adds to this node's own address the names of its directory and cluster. It also adds whether the node makes promises to
// leaders (read_lease.go), and whether its clients listen for messages (commit_notification.go).
func (t *transport) EncodePeer(id raft.ServerID, addr raft.ServerAddress) []byte {
	b := t.NetworkTransport.EncodePeer(id, addr)
	if string(id) != t.self {
		return b
	}
	b = append(append(b, separator...), t.directory...)
	if t.promises {
		b = append(append(b, separator...), promises...)
	}
	if name := t.cluster(); name != "" {
		b = append(append(append(b, separator...), named...), name...)
	}
	if t.listens == nil || t.listens() {
		b = append(append(b, separator...), listens...)
	}
	return b
}

// DecodePeer returns the address without what EncodePeer has added.
func (t *transport) DecodePeer(b []byte) raft.ServerAddress {
	addr, _, _ := bytes.Cut(b, separator)
	return t.NetworkTransport.DecodePeer(addr)
}

// statedBy returns the address that the sender of a request says that it has.
func statedBy(by raft.RPCHeader) []byte {
	addr, _, _ := bytes.Cut(by.Addr, separator)
	return addr
}

// known fails if the sender of the header belongs to another cluster, or if it is a member that this node has met with another
// data directory. The parameter addr is as in the method meet.
func (t *transport) known(by raft.RPCHeader, addr []byte) error {
	said := saidBy(by)
	if own := t.cluster(); own != "" && len(said.cluster) > 0 && string(said.cluster) != own {
		return fmt.Errorf("%s: %w", by.ID, errOtherCluster)
	}
	return t.meet(by.ID, said.directory, addr)
}

// knownAs fails if an answer does not come from the member that was asked (the parameter id), names no directory, or fails the
// check of the function known or believable. The parameter to is the address that was asked, and lastIndex is the last log index
// that the answer reports.
func (t *transport) knownAs(id raft.ServerID, to raft.ServerAddress, by raft.RPCHeader, term, lastIndex uint64) error {
	if string(by.ID) != string(id) {
		return fmt.Errorf("%q answers at the address of %s", roster.Clip(string(by.ID)), id)
	}
	if len(saidBy(by).directory) == 0 {
		return errNameless
	}
	return cmp.Or(t.known(by, []byte(to)), t.believable(term, lastIndex))
}

// believable fails if no honest member can give an answer with this term and this last index. The check is needed
// because a leader steps down when an answer has a later term.
func (t *transport) believable(term, lastIndex uint64) error {
	own := uint64(0)
	if r := t.raft.Load(); r != nil {
		own = r.CurrentTerm()
	}
	return lookAtAnswer(own, term, lastIndex)
}
