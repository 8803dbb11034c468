package raftnode

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/lockstep-io/lockstep/cluster/internal/datadir"
	"github.com/lockstep-io/lockstep/cluster/internal/roster"
	"github.com/lockstep-io/lockstep/raftfsm"
)

// hashicorp/raft believes every field of a request: an absurd term leaves a cluster without a leader for good, and an entry that
// differs from a committed one replaces it. So the transport checks each request and each answer first. A refused request changes
// nothing: no term, no vote, no entry, no leader.
//
// A request must name the id, data directory and cluster of its sender. Its term must be plausible (roster.TermReach,
// roster.Highest). Its entries must be consecutive and applicable. A configuration must have a voter, and differ from a known
// previous one in at most one member. A snapshot must not be behind the committed entries.
//
// A node that was away knows only old configurations. So a sender also counts as a member if a member that was found at its
// configured address lists the sender's id (peers/status.go). A node whose known members were all replaced refuses everything,
// and has to join again.

const (
	// maxEntry is the longest entry that raft-wal takes, including its frame and its header.
	maxEntry = 64<<20 - 1<<10
	// maxSnapshot is larger than any state that fits into memory.
	maxSnapshot = 1 << 42
)

// The reasons to refuse a request.
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

// asSeen is the state of this node against which it checks a request.
type asSeen struct {
	term    uint64 // term of this node
	settled uint64 // entries up to this index are committed or applied
	log     seenLog
	leader  func() raft.ServerID // returns the leader as this node knows it
	self    string
}

// seenLog is the log against which a node checks entries.
type seenLog interface {
	// TermAt returns the term of an entry; 0 if the log does not have the entry.
	TermAt(index uint64) uint64
	// ConfigurationBefore returns the configuration before an index, without servers if it is not known.
	ConfigurationBefore(index uint64) raft.Configuration
}

// look fails if no honest member could send this request.
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
		// Only the leader transfers leadership; a node also sends itself this request (Campaign).
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
	if err := cmp.Or(roster.CheckID(string(h.ID)), roster.CheckAddress(string(statedBy(h)))); err != nil {
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

// goesOn reports whether a request's entries follow entries of this log. If not, Raft itself refuses them, and the leader sends
// earlier ones.
func (s *asSeen) goesOn(req *raft.AppendEntriesRequest) bool {
	here := s.log.TermAt(req.PrevLogEntry)
	return req.PrevLogEntry == 0 || here == req.PrevLogTerm || here == 0 && req.PrevLogEntry <= s.settled
}

// lookAtEntry checks an entry. conf is the configuration before it (no servers: unknown), and own the term of this log's settled
// entry there, or 0.
func (s *asSeen) lookAtEntry(l *raft.Log, own uint64, conf *raft.Configuration) error {
	if len(l.Data) > maxEntry || !datadir.Vouched(l) {
		return absurd("entry %d has %d bytes, and %d more", l.Index, len(l.Data), len(l.Extensions))
	}
	switch l.Type {
	case raft.LogCommand:
		if _, err := raftfsm.DecodeEntry(l.Data); err != nil {
			return fmt.Errorf("%w: entry %d: %w", errAbsurd, l.Index, err)
		}
	case raft.LogNoop, raft.LogBarrier:
		if len(l.Data) > 0 { // it was a command, a damaged disk has changed its type, and the sender has not noticed
			return absurd("entry %d is of type %s, and has %d bytes", l.Index, l.Type, len(l.Data))
		}
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

// lookAtAnswer fails if no honest member could give this answer to a node in the term own.
func lookAtAnswer(own uint64, term, lastIndex uint64) error {
	if !roster.PlausibleTerm(own, term) || lastIndex >= roster.Highest {
		return absurd("an answer of term %d, with a log up to entry %d, and this node is in term %d", term, lastIndex, own)
	}
	return nil
}

// admits fails if Raft must not see the request, and logs that, except while this node starts or knows no cluster.
func (t *transport) admits(rpc raft.RPC) error {
	err := t.scrutinize(rpc)
	if err != nil && err != errStarting && err != errUnbound && t.refused != nil {
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
	if t.unbound != nil && t.unbound() {
		return errUnbound
	}
	r := t.raft.Load()
	if err := t.known(by, statedBy(by)); err != nil || t.log == nil {
		return err // only tests have no log to check against
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
	if err := seen.look(rpc.Command); err != nil {
		return err
	}
	return t.claim(rpc.Command, string(said.cluster))
}

// ofMember reports whether a node is a member. Members may vouch for a sender that this node, with old configurations, does not
// know.
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
		return true // this node does not have a first configuration yet
	}
	for _, s := range list {
		if string(s.ID) == string(id) {
			return true
		}
	}
	return t.vouched(string(id))
}

// refusalKind returns the kind under which the type seldom counts the log lines about a refusal.
func refusalKind(err error) string {
	for _, kind := range []error{errNameless, errNotOfMember, errAbsurd, errCutsCommit, errOtherCluster, datadir.ErrOtherDirectory} {
		if errors.Is(err, kind) {
			return kind.Error()
		}
	}
	return ""
}
