package cluster

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"lockstep/cluster/internal/datadir"
	"lockstep/cluster/internal/roster"
	"lockstep/raftfsm"
)

// What a peer sends is not believed. hashicorp/raft takes every field of a request for
// true: a term of 2^64-1 leaves a cluster without a leader for good, a request that does
// not say of whom it is counts as a member's, an entry of an unknown type or a configuration
// that cannot be read ends the process, and an entry that differs from a committed one takes
// its place. So each request and each answer is looked at before Raft sees it. Whatever is
// refused here has changed nothing: no term, no vote, no entry, no leader.
//
// An honest node is never refused for good: each bound is one that Raft's own rules keep.
//
// A request must name its sender's id, data directory and cluster. Its term is at most 2^32 beyond the
// own one and below 2^62; honest elections do not leave these bounds in 17 years. Its entries stand in
// a row, with terms that do not fall, and with types and bytes that can be applied. A configuration
// can be read, has a voter, and differs from the one before it in one member. A snapshot is not behind
// what is committed. One line a minute says what was refused. Answers are held against the same
// bounds, because a leader that is told of a later term gives up.
//
// A node that was away knows old configurations, and a member that it has never heard of may lead it.
// It asks the members that it does know: members tell each other whom they know (facts.go). A sender
// that one of them vouches for, and that was found at its configured address, is a member. If all
// members that it knew have been replaced while it was away, it is refused everything and has to join
// anew.

const (
	// maxEntry is the longest entry that raft-wal takes, its frame and its header included.
	maxEntry = 64<<20 - 1<<10
	// maxSnapshot is more than any state that is in memory.
	maxSnapshot = 1 << 42
)

// Why a request is refused.
var (
	errNameless    = errors.New("cluster: the request does not say of which member, data directory and cluster it is")
	errNotOfMember = errors.New("cluster: the request is of no member of this cluster")
	errAbsurd      = errors.New("cluster: the request cannot be a member's")
	errCutsCommit  = errors.New("cluster: the request would replace an entry that is committed")
	errStarting    = errors.New("cluster: this node is starting")
)

func absurd(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errAbsurd, fmt.Sprintf(format, args...))
}

// asSeen is what a node compares a request with.
type asSeen struct {
	term    uint64 // its own
	settled uint64 // entries up to it are committed or applied
	log     seenLog
	leader  func() raft.ServerID // who leads, as far as is known
	self    string
}

// seenLog is what a node compares entries with.
type seenLog interface {
	// TermAt is the term of an entry; 0 if it is not there.
	TermAt(index uint64) uint64
	// ConfigurationBefore is the configuration before an index; it has no servers if that is not known.
	ConfigurationBefore(index uint64) raft.Configuration
}

// look fails if a request cannot be an honest member's.
func (s *asSeen) look(command any) error {
	switch req := command.(type) {
	case *raft.AppendEntriesRequest:
		return s.lookAtAppend(req)
	case *raft.RequestVoteRequest:
		return s.lookAtVote(req.RPCHeader, req.Term, req.LastLogIndex, req.LastLogTerm)
	case *raft.RequestPreVoteRequest:
		return s.lookAtVote(req.RPCHeader, req.Term, req.LastLogIndex, req.LastLogTerm)
	case *raft.InstallSnapshotRequest:
		return s.lookAtSnapshot(req)
	case *raft.TimeoutNowRequest:
		// Only who leads hands over, and a node tells itself so (Campaign).
		if id := string(req.ID); id != s.self && id != string(s.leader()) {
			return absurd("%s hands over, and does not lead", req.ID)
		}
		return s.lookAtHeader(req.RPCHeader)
	}
	return absurd("it is a %T", command)
}

func (s *asSeen) lookAtHeader(h raft.RPCHeader) error {
	switch {
	case h.ProtocolVersion < raft.ProtocolVersionMin || h.ProtocolVersion > raft.ProtocolVersionMax:
		return absurd("protocol version %d", h.ProtocolVersion)
	case len(h.Addr) > 4*roster.MaxText:
		return absurd("an address of %d bytes", len(h.Addr))
	}
	addr, _, _ := bytes.Cut(h.Addr, seam)
	if err := cmp.Or(roster.CheckID(string(h.ID)), roster.CheckAddress(string(addr))); err != nil {
		return absurd("it is of %v", err)
	}
	return nil
}

func (s *asSeen) lookAtTerm(h raft.RPCHeader, term uint64) error {
	if err := s.lookAtHeader(h); err != nil {
		return err
	}
	switch {
	case string(h.ID) == s.self:
		return absurd("it is in the name of this node")
	case term == 0 || !roster.PlausibleTerm(s.term, term):
		return absurd("term %d, and this node is in term %d", term, s.term)
	}
	return nil
}

func (s *asSeen) lookAtVote(h raft.RPCHeader, term, lastIndex, lastTerm uint64) error {
	if err := s.lookAtTerm(h, term); err != nil {
		return err
	}
	if lastTerm > term || lastIndex >= roster.Highest || lastTerm == 0 && lastIndex > 0 {
		return absurd("a candidate of term %d with a log up to entry %d of term %d", term, lastIndex, lastTerm)
	}
	return nil
}

func (s *asSeen) lookAtAppend(req *raft.AppendEntriesRequest) error {
	if err := s.lookAtTerm(req.RPCHeader, req.Term); err != nil {
		return err
	}
	switch {
	case req.PrevLogEntry >= roster.Highest || req.LeaderCommitIndex >= roster.Highest:
		return absurd("entries behind %d, committed up to %d", req.PrevLogEntry, req.LeaderCommitIndex)
	case req.PrevLogTerm > req.Term || (req.PrevLogEntry == 0) != (req.PrevLogTerm == 0):
		return absurd("entries behind %d of term %d, from a leader of term %d", req.PrevLogEntry, req.PrevLogTerm, req.Term)
	}
	conf := raft.Configuration{}
	for i, l := range req.Entries {
		if l == nil || l.Index != req.PrevLogEntry+uint64(i)+1 {
			return absurd("its entries are not in a row")
		}
		prev := req.PrevLogTerm
		if i > 0 {
			prev = req.Entries[i-1].Term
		}
		if l.Term < max(prev, 1) || l.Term > req.Term {
			return absurd("entry %d of term %d behind one of term %d, from a leader of term %d", l.Index, l.Term, prev, req.Term)
		}
		own := uint64(0)
		if l.Index <= s.settled {
			if own = s.log.TermAt(l.Index); own != 0 && own != l.Term {
				return fmt.Errorf("%w: entry %d of term %d, here of term %d", errCutsCommit, l.Index, l.Term, own)
			}
		}
		if l.Type == raft.LogConfiguration && len(conf.Servers) == 0 && s.goesOn(req) {
			conf = s.log.ConfigurationBefore(req.PrevLogEntry + 1)
		}
		if err := s.lookAtEntry(l, own, &conf); err != nil {
			return err
		}
	}
	return nil
}

// goesOn reports whether the entries of a request come right behind what is here. If they
// do not, Raft says no and the leader goes back: an error would have it ask the same again.
func (s *asSeen) goesOn(req *raft.AppendEntriesRequest) bool {
	here := s.log.TermAt(req.PrevLogEntry)
	return req.PrevLogEntry == 0 || here == req.PrevLogTerm || here == 0 && req.PrevLogEntry <= s.settled
}

// lookAtEntry looks at what is in an entry; conf is the configuration before it, without
// servers if that is not known. own is the term of the same entry here, if that is settled.
func (s *asSeen) lookAtEntry(l *raft.Log, own uint64, conf *raft.Configuration) error {
	if len(l.Data) > maxEntry || len(l.Extensions) > 0 {
		return absurd("entry %d has %d bytes, and %d more", l.Index, len(l.Data), len(l.Extensions))
	}
	switch l.Type {
	case raft.LogCommand:
		if _, err := raftfsm.DecodeEntry(l.Data); err != nil {
			return fmt.Errorf("%w: entry %d: %w", errAbsurd, l.Index, err)
		}
	case raft.LogNoop, raft.LogBarrier:
	case raft.LogConfiguration:
		next, err := roster.ReadConfiguration(l.Data)
		if err != nil {
			return absurd("entry %d: %v", l.Index, err)
		}
		if own == 0 {
			if n := roster.Changes(*conf, next); n > 1 && len(conf.Servers) > 0 {
				return absurd("entry %d changes %d members at once", l.Index, n)
			}
		}
		*conf = next
	default:
		return absurd("entry %d is of type %d", l.Index, l.Type)
	}
	return nil
}

func (s *asSeen) lookAtSnapshot(req *raft.InstallSnapshotRequest) error {
	if err := s.lookAtTerm(req.RPCHeader, req.Term); err != nil {
		return err
	}
	switch {
	case req.SnapshotVersion != raft.SnapshotVersionMax:
		return absurd("a snapshot of version %d", req.SnapshotVersion)
	case req.LastLogTerm == 0 || req.LastLogTerm > req.Term || req.LastLogIndex == 0 || req.LastLogIndex >= roster.Highest || req.ConfigurationIndex > req.LastLogIndex:
		return absurd("a snapshot of entry %d of term %d, from a leader of term %d, with the configuration of entry %d", req.LastLogIndex, req.LastLogTerm, req.Term, req.ConfigurationIndex)
	case req.Size < 0 || req.Size > maxSnapshot:
		return absurd("a snapshot of %d bytes", req.Size)
	case req.LastLogIndex < s.settled:
		return fmt.Errorf("%w: a snapshot of entry %d, and entry %d is committed here", errCutsCommit, req.LastLogIndex, s.settled)
	}
	if _, err := roster.ReadConfiguration(req.Configuration); err != nil {
		return absurd("a snapshot: %v", err)
	}
	return nil
}

// lookAtAnswer fails if an answer of a member cannot be one. A leader that is told of a
// later term gives up.
func lookAtAnswer(own uint64, term, lastIndex uint64) error {
	if !roster.PlausibleTerm(own, term) || lastIndex >= roster.Highest {
		return absurd("an answer of term %d, with a log up to entry %d, and this node is in term %d", term, lastIndex, own)
	}
	return nil
}

// admits fails if Raft must not see a request: it is of no member, of another data directory
// than its sender was met with, of another cluster, or cannot be honest.
func (t *transport) admits(rpc raft.RPC) error {
	err := t.scrutinize(rpc)
	if err != nil && err != errStarting && t.refused != nil {
		t.refused.say(refusalKind(err), "A peer's request is refused and has changed nothing; if this node's own members are named, look who else reaches the peer port", "error", err)
	}
	return err
}

func (t *transport) scrutinize(rpc raft.RPC) error {
	req, ok := rpc.Command.(raft.WithRPCHeader)
	if !ok {
		return absurd("it is a %T", rpc.Command)
	}
	by := req.GetRPCHeader()
	said := saidBy(by)
	if len(by.ID) == 0 || len(said.directory) == 0 || len(said.cluster) == 0 {
		return errNameless
	}
	r := t.raft.Load()
	if err := t.known(by); err != nil || t.log == nil {
		return err // without a log there is nothing to lose
	}
	if r == nil {
		return errStarting
	}
	if !t.ofMember(by.ID, said.directory) {
		return fmt.Errorf("%w: %q", errNotOfMember, roster.Clip(string(by.ID)))
	}
	seen := asSeen{term: r.CurrentTerm(), settled: t.log.Settled(), log: t.log, self: t.self, leader: func() raft.ServerID {
		_, id := r.LeaderWithID()
		return id
	}}
	return seen.look(rpc.Command)
}

// ofMember reports whether a node is a member. One that has been met is, until a committed
// configuration is without it (directory.go). Who has been away knows old configurations: for
// whom it does not know, those answer whom it does.
func (t *transport) ofMember(id, directory []byte) bool {
	if t.met(id, directory) {
		return true
	}
	conf := t.raft.Load().GetConfiguration()
	if conf.Error() != nil {
		return false
	}
	list := conf.Configuration().Servers
	if len(list) == 0 {
		return true // this node has yet to be told of a first one
	}
	for _, s := range list {
		if string(s.ID) == string(id) {
			return true
		}
	}
	return t.vouched(string(id))
}

// refusalKind is what lines of one kind have in common.
func refusalKind(err error) string {
	for _, kind := range []error{errNameless, errNotOfMember, errAbsurd, errCutsCommit, errOtherCluster, datadir.ErrOtherDirectory} {
		if errors.Is(err, kind) {
			return kind.Error()
		}
	}
	return ""
}
