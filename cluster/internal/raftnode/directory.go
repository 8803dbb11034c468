package raftnode

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/lockstep-io/lockstep/cluster/internal/datadir"
	"github.com/lockstep-io/lockstep/cluster/internal/roster"
)

// A member is its data directory, not its id. A node that is back under its id with another directory has forgotten its votes and
// acknowledgements, and with its vote a majority could forget a lock. So every directory has a name, which is in every request of
// Raft, in every answer but those to InstallSnapshot and TimeoutNow, and in the status (peers/status.go). From a member with
// another directory than node.json has for it, a node takes no vote, no acknowledgement and no request, until that member has
// been removed and taken in again.
//
// Each message also names the cluster, if the sender knows the name. An address may pass from one cluster to another, and Raft
// takes entries with the same term and index for the same.

// errOtherCluster is the error for a node that names another cluster.
var errOtherCluster = datadir.ErrOtherCluster

// Directory returns the name of the data directory.
func (r *Node) Directory() string { return r.dir.Name() }

// Blank reports whether this node is a first member with nothing from before: its directory is new, or its log has only the first
// configuration.
func (r *Node) Blank() bool {
	return r.founding || !r.dir.Joining() && r.raft.LastIndex() <= 1
}

// Meet notes the directory that the node at a member's address has named, or fails with datadir.ErrOtherDirectory if another is
// noted.
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

// recognize does the work of Recognize. The result known is true if there is nothing to note.
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

// meet checks a node's directory, and remembers it for a member at addr (nil: any address). Elsewhere, a removed node may use the
// id.
func (r *Node) meet(id, directory, addr []byte) error {
	if known, err := r.recognize(id, directory); known || err != nil {
		return err
	}
	// Any caller can name an id, so only a member's directory is remembered.
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

// separator separates the parts of what EncodePeer returns. A version without directories shows all parts as the address.
var separator = []byte{0}

// EncodePeer adds to this node's own address its directory, its cluster, and whether it makes promises (read_lease.go) and has
// listening clients (commit_notification.go).
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

// known fails if the header's sender belongs to another cluster or was met with another data directory. The parameter addr is
// that of meet.
func (t *transport) known(by raft.RPCHeader, addr []byte) error {
	said := saidBy(by)
	if own := t.cluster(); own != "" && len(said.cluster) > 0 && string(said.cluster) != own {
		return fmt.Errorf("%s: %w", by.ID, errOtherCluster)
	}
	return t.meet(by.ID, said.directory, addr)
}

// knownAs fails if an answer from the address to is not by the member id, names no directory, or fails known or believable.
func (t *transport) knownAs(id raft.ServerID, to raft.ServerAddress, by raft.RPCHeader, term, lastIndex uint64) error {
	if string(by.ID) != string(id) {
		return fmt.Errorf("%q answers at the address of %s", roster.Clip(string(by.ID)), id)
	}
	if len(saidBy(by).directory) == 0 {
		return errNameless
	}
	return cmp.Or(t.known(by, []byte(to)), t.believable(term, lastIndex))
}

// believable fails if no honest member can give this answer. A later term would make a leader step down.
func (t *transport) believable(term, lastIndex uint64) error {
	own := uint64(0)
	if r := t.raft.Load(); r != nil {
		own = r.CurrentTerm()
	}
	return lookAtAnswer(own, term, lastIndex)
}
