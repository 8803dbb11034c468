package raftnode

import (
	"bytes"
	"fmt"
	"math"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/lockstep-io/lockstep/cluster/internal/datadir"
	"github.com/lockstep-io/lockstep/cluster/internal/peerport"
	"github.com/lockstep-io/lockstep/cluster/internal/roster"
)

// portrait is the state of a node that a refused request must not change.
type portrait struct {
	term, last, commit, applied, snapshot uint64
	vote                                  string
	members                               []Member
	log                                   []raft.Log
	owner                                 string
}

func (a *alone) portrait() (p portrait) {
	a.t.Helper()
	r := a.log.raft
	p = portrait{term: r.CurrentTerm(), last: r.LastIndex(), commit: r.CommitIndex(), applied: r.AppliedIndex(),
		snapshot: a.log.dir.Snapshots.Newest().Index, owner: a.owner()}
	voteTerm, err := a.log.dir.Stable.GetUint64([]byte("LastVoteTerm"))
	cand, err2 := a.log.dir.Stable.Get([]byte("LastVoteCand"))
	p.vote = fmt.Sprintf("%d %q %v %v", voteTerm, cand, err, err2)
	p.members, err = a.log.Members()
	if err != nil {
		a.t.Fatal(err)
	}
	for i := range p.members {
		p.members[i].Leader = false
	}
	for i := uint64(1); i <= p.last; i++ {
		var l raft.Log
		if err := a.log.dir.Log.GetLog(i, &l); err != nil {
			a.t.Fatal(err)
		}
		l.Data, l.AppendedAt, l.Extensions = bytes.Clone(l.Data), time.Time{}, nil
		p.log = append(p.log, l)
	}
	return p
}

// settle makes n2 lead in term 5 and commit three entries: the configuration, one of Raft's own, and a lock.
func (a *alone) settle() {
	a.t.Helper()
	for _, step := range []raft.AppendEntriesResponse{
		a.append(5, 1, 1, 1, &raft.Log{Index: 2, Term: 5, Type: raft.LogNoop}, taken(3, 5, "owner")),
		a.append(5, 3, 5, 3),
	} {
		if !step.Success {
			a.t.Fatalf("refused: %+v", step)
		}
	}
	for deadline := time.Now().Add(10 * time.Second); a.owner() != "owner"; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			a.t.Fatal("the lock is not applied")
		}
	}
}

const tooFar = 5 + roster.TermReach + 1

// headers returns headers that no member sends. The second and third parts of an address name the directory and the cluster.
func (a *alone) headers() map[string]raft.RPCHeader {
	h, self := a.header(), a.log.cfg.ID
	parts := strings.Split(string(h.Addr), string(separator))
	with := func(change func(h *raft.RPCHeader, parts []string)) raft.RPCHeader {
		h, parts := a.header(), append([]string(nil), parts...)
		change(&h, parts)
		h.Addr = []byte(strings.Join(parts, string(separator)))
		return h
	}
	id := func(id string) raft.RPCHeader {
		return with(func(h *raft.RPCHeader, _ []string) { h.ID = []byte(id) })
	}
	part := func(i int, to string) raft.RPCHeader {
		return with(func(_ *raft.RPCHeader, parts []string) { parts[i] = to })
	}
	version := func(v raft.ProtocolVersion) raft.RPCHeader {
		return with(func(h *raft.RPCHeader, _ []string) { h.ProtocolVersion = v })
	}
	return map[string]raft.RPCHeader{
		"nothing": {}, "only a version": {ProtocolVersion: 3},
		"no id": id(""), "a stranger's id": id("n9"), "its own id": id(self), "another's id": id("n2 "), "an id of zeros": id("\x00"), "a long id": id(strings.Repeat("n", 5000)),
		"no directory": part(1, ""), "another directory": part(1, "D9"),
		"no cluster": part(2, ""), "an empty cluster": part(2, "cluster="), "another cluster": part(2, "cluster=C9"),
		"no address": part(0, ""), "no port": part(0, "host"), "port 0": part(0, "host:0"), "port 99999": part(0, "host:99999"), "two lines": part(0, "host\n:1"), "a long address": part(0, strings.Repeat("h", 5000)+":1"),
		"version 9": version(9), "version -1": version(-1),
	}
}

func configuration(servers ...raft.Server) []byte {
	return raft.EncodeConfiguration(raft.Configuration{Servers: servers})
}

// configurations returns configurations that no leader would make from that of the three members.
func (a *alone) configurations() map[string][]byte {
	s := a.log.raft.GetConfiguration().Configuration().Servers
	with := func(i int, server raft.Server) []byte {
		list := append([]raft.Server(nil), s...)
		list[i] = server
		return configuration(list...)
	}
	odd := func(suffrage raft.ServerSuffrage, id, addr string) []byte {
		return configuration(append(append([]raft.Server(nil), s...), raft.Server{Suffrage: suffrage, ID: raft.ServerID(id), Address: raft.ServerAddress(addr)})...)
	}
	many := append([]raft.Server(nil), s...)
	for i := range roster.MaxMembers {
		many = append(many, raft.Server{ID: raft.ServerID(fmt.Sprint("m", i)), Address: raft.ServerAddress(fmt.Sprint("m:", i+1))})
	}
	return map[string][]byte{
		"nothing": nil, "a byte": {0xc1}, "cut short": configuration(s...)[:20], "a string": []byte("\xa5hello"), "huge": {0x81, 0xa7, 'S', 'e', 'r', 'v', 'e', 'r', 's', 0xdd, 255, 255, 255, 255},
		"nobody": configuration(), "two out": configuration(s[0]), "all others": configuration(raft.Server{ID: "x", Address: "x:1"}),
		"nobody votes": configuration(raft.Server{Suffrage: raft.Nonvoter, ID: s[0].ID, Address: s[0].Address}),
		"twice an id":  odd(raft.Voter, string(s[0].ID), "x:1"), "twice an address": odd(raft.Voter, "x", string(s[0].Address)),
		"no id": odd(raft.Voter, "", "x:1"), "a blank": odd(raft.Voter, "x y", "x:1"), "no address": odd(raft.Voter, "x", ""), "no port": odd(raft.Voter, "x", "x"), "a line": odd(raft.Voter, "x", "x\n:1"),
		"suffrage 9": odd(9, "x", "x:1"), "staging": odd(raft.Staging, "x", "x:1"),
		"two moved": func() []byte {
			list := append([]raft.Server(nil), s...)
			list[1].Address, list[2].Address = "evil:1", "evil:2"
			return configuration(list...)
		}(),
		"exchanged": with(0, raft.Server{ID: "x", Address: "x:1"}), "many": configuration(many...),
	}
}

// appends returns requests that no leader sends. Most are requests that the leader could send, with one field changed.
func (a *alone) appends() map[string]*raft.AppendEntriesRequest {
	list := map[string]*raft.AppendEntriesRequest{}
	with := func(what string, change func(req *raft.AppendEntriesRequest)) {
		req := a.next()
		change(req)
		list[what] = req
	}
	entry := func(what string, change func(l *raft.Log)) {
		with("entry: "+what, func(req *raft.AppendEntriesRequest) { change(req.Entries[0]) })
		with("second entry: "+what, func(req *raft.AppendEntriesRequest) {
			second := *req.Entries[0]
			second.Index++
			req.Entries = append(req.Entries, &second)
			change(&second)
		})
	}
	for _, n := range []uint64{math.MaxUint64, 1 << 63, roster.Highest, roster.Highest - 1, tooFar, 0} {
		with(fmt.Sprint("term ", n), func(req *raft.AppendEntriesRequest) { req.Term = n })
		entry(fmt.Sprint("index ", n), func(l *raft.Log) { l.Index = n })
		entry(fmt.Sprint("term ", n), func(l *raft.Log) { l.Term = n })
		with(fmt.Sprint("previous term ", n), func(req *raft.AppendEntriesRequest) { req.PrevLogTerm = n })
	}
	for _, n := range []uint64{math.MaxUint64, 1 << 63, roster.Highest, 0, 1, 2, 4, 99} {
		with(fmt.Sprint("previous ", n), func(req *raft.AppendEntriesRequest) { req.PrevLogEntry = n })
	}
	for _, n := range []uint64{math.MaxUint64, 1 << 63, roster.Highest} {
		with(fmt.Sprint("commit index ", n), func(req *raft.AppendEntriesRequest) { req.LeaderCommitIndex = n })
	}
	for kind := range 256 {
		if kind := raft.LogType(kind); kind != raft.LogCommand && kind != raft.LogNoop && kind != raft.LogBarrier {
			entry(fmt.Sprint("type ", kind), func(l *raft.Log) { l.Type = kind })
		}
	}
	for what, data := range map[string][]byte{"nothing": nil, "a byte": {1}, "a flip": append(bytes.Clone(taken(4, 5, "x").Data), 0), "version 9": append([]byte{9}, taken(4, 5, "x").Data[1:]...), "version 0": append([]byte{0}, taken(4, 5, "x").Data[1:]...)} {
		entry("command: "+what, func(l *raft.Log) { l.Data = data })
	}
	for _, kind := range []raft.LogType{raft.LogNoop, raft.LogBarrier} { // the entry was a command; a damaged disk has changed its type
		entry(fmt.Sprintf("type %s with data", kind), func(l *raft.Log) { l.Type = kind })
	}
	entry("extensions", func(l *raft.Log) { l.Extensions = []byte("x") })
	for what, data := range a.configurations() {
		entry("configuration: "+what, func(l *raft.Log) { l.Type, l.Data = raft.LogConfiguration, data })
	}
	with("two changes of the members", func(req *raft.AppendEntriesRequest) {
		s := a.log.raft.GetConfiguration().Configuration().Servers
		req.Entries = []*raft.Log{
			{Index: 4, Term: 5, Type: raft.LogConfiguration, Data: configuration(s[:2]...)},
			{Index: 5, Term: 5, Type: raft.LogConfiguration, Data: configuration(s[2])}}
	})
	for first := uint64(1); first <= 3; first++ { // replaces a committed entry
		with(fmt.Sprint("other entries from ", first), func(req *raft.AppendEntriesRequest) {
			*req = raft.AppendEntriesRequest{RPCHeader: req.RPCHeader, Term: 6, PrevLogEntry: first - 1, PrevLogTerm: map[uint64]uint64{2: 1, 3: 5}[first], LeaderCommitIndex: 9}
			for i := first; i <= 4; i++ {
				l := taken(i, 6, "thief")
				req.Entries = append(req.Entries, l)
			}
		})
	}
	for what, h := range a.headers() {
		with("header: "+what, func(req *raft.AppendEntriesRequest) { req.RPCHeader = h })
		list["heartbeat: "+what] = &raft.AppendEntriesRequest{RPCHeader: h, Term: 6}
	}
	for _, n := range []uint64{math.MaxUint64, roster.Highest, tooFar} {
		list[fmt.Sprint("heartbeat: term ", n)] = &raft.AppendEntriesRequest{RPCHeader: a.header(), Term: n}
	}
	return list
}

// next returns the request that the leader could send next.
func (a *alone) next() *raft.AppendEntriesRequest {
	return &raft.AppendEntriesRequest{RPCHeader: a.header(), Term: 5, PrevLogEntry: 3, PrevLogTerm: 5, LeaderCommitIndex: 3, Entries: []*raft.Log{taken(4, 5, "thief")}}
}

func (a *alone) snapshot() *raft.InstallSnapshotRequest {
	s := a.log.raft.GetConfiguration().Configuration().Servers
	return &raft.InstallSnapshotRequest{RPCHeader: a.header(), SnapshotVersion: 1, Term: 5, LastLogIndex: 9, LastLogTerm: 5, Configuration: configuration(s...), ConfigurationIndex: 1, Size: 3}
}

// others returns requests of the other kinds that no member sends.
func (a *alone) others() map[string]any {
	list := map[string]any{}
	snap := func(what string, change func(req *raft.InstallSnapshotRequest)) {
		req := a.snapshot()
		change(req)
		list["snapshot: "+what] = req
	}
	vote := func(what string, h raft.RPCHeader, term, index, lastTerm uint64) {
		list["vote: "+what] = &raft.RequestVoteRequest{RPCHeader: h, Term: term, LastLogIndex: index, LastLogTerm: lastTerm, LeadershipTransfer: true}
		list["question: "+what] = &raft.RequestPreVoteRequest{RPCHeader: h, Term: term, LastLogIndex: index, LastLogTerm: lastTerm}
	}
	for what, h := range a.headers() {
		vote(what, h, 6, 9, 5)
		snap(what, func(req *raft.InstallSnapshotRequest) { req.RPCHeader = h })
		if what != "its own id" { // such a request names this node's own directory, whose name no other node knows
			list["handover: "+what] = &raft.TimeoutNowRequest{RPCHeader: h}
		}
	}
	stranger := a.header()
	stranger.ID = []byte("n3")
	list["handover by who does not lead"] = &raft.TimeoutNowRequest{RPCHeader: stranger}
	for _, n := range []uint64{math.MaxUint64, 1 << 63, roster.Highest, tooFar, 0} {
		vote(fmt.Sprint("term ", n), a.header(), n, 9, 5)
		snap(fmt.Sprint("term ", n), func(req *raft.InstallSnapshotRequest) { req.Term = n })
		snap(fmt.Sprint("last term ", n), func(req *raft.InstallSnapshotRequest) { req.LastLogTerm = n })
	}
	for _, n := range []uint64{math.MaxUint64, 1 << 63, roster.Highest} {
		vote(fmt.Sprint("last index ", n), a.header(), 6, n, 5)
		vote(fmt.Sprint("last term ", n), a.header(), 6, 9, n)
	}
	vote("last term 7 of a candidate of 6", a.header(), 6, 9, 7)
	for _, n := range []uint64{math.MaxUint64, 1 << 63, roster.Highest, 0, 1, 2} {
		snap(fmt.Sprint("last index ", n), func(req *raft.InstallSnapshotRequest) { req.LastLogIndex = n })
	}
	snap("configuration from beyond", func(req *raft.InstallSnapshotRequest) { req.ConfigurationIndex = 10 })
	for _, n := range []raft.SnapshotVersion{-1, 0, 2, 99} {
		snap(fmt.Sprint("version ", n), func(req *raft.InstallSnapshotRequest) { req.SnapshotVersion = n })
	}
	for _, n := range []int64{math.MinInt64, -1, maxSnapshot + 1, math.MaxInt64} {
		snap(fmt.Sprint("size ", n), func(req *raft.InstallSnapshotRequest) { req.Size = n })
	}
	for what, data := range a.configurations() {
		switch what {
		case "two out", "all others", "two moved", "exchanged": // the node may have missed the steps in between
		default:
			snap("configuration: "+what, func(req *raft.InstallSnapshotRequest) { req.Configuration = data })
		}
	}
	snap("no state", func(req *raft.InstallSnapshotRequest) { req.Size = 3 })
	return list
}

// overTCP makes connections to a node as another node does.
type overTCP struct{ outgoing }

func (o overTCP) Dial(addr raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	return o.Port.Connect(string(addr), peerport.ProtoRaft, timeout)
}

// mustRefuse makes a request by the function ask. The node must refuse it, and nothing may change.
func (a *alone) mustRefuse(what string, before portrait, ask func() (taken bool, err error)) {
	a.t.Helper()
	if taken, _ := ask(); taken {
		a.t.Errorf("%s: it is taken", what)
	}
	if after := a.portrait(); !reflect.DeepEqual(after, before) {
		a.t.Fatalf("%s has changed\n%+v to\n%+v", what, before, after)
	}
	if addr, id := a.log.raft.LeaderWithID(); id != "" && (string(id) != a.peer || addr != "127.0.0.1:2") {
		a.t.Errorf("%s: %s at %s leads now", what, id, addr)
	}
}

// TestNoFieldOfAPeerIsBelieved: a request of Raft with any one absurd field does not end the node and changes nothing. The leader
// can go on.
func TestNoFieldOfAPeerIsBelieved(t *testing.T) {
	a := startAlone(t)
	a.settle()
	before := a.portrait()
	self, addr := raft.ServerID(a.log.cfg.ID), raft.ServerAddress(a.log.cfg.Addr)
	plain := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{Stream: overTCP{outgoing{stream{a.log.port}}}, MaxPool: 1, Timeout: time.Second, Logger: hclog.NewNullLogger()})
	defer plain.Close()
	codec := newAppender(a.log.port, transportTimeout, a.log.cfg)
	for what, req := range a.appends() {
		a.mustRefuse(what, before, func() (bool, error) {
			var resp raft.AppendEntriesResponse
			err := codec.ask(addr, req, &resp)
			return err == nil && resp.Success, err
		})
		a.mustRefuse(what+", Raft's own way", before, func() (bool, error) {
			var resp raft.AppendEntriesResponse
			err := plain.AppendEntries(self, addr, req, &resp)
			return err == nil && resp.Success, err
		})
	}
	for what, req := range a.others() {
		a.mustRefuse(what, before, func() (bool, error) {
			switch req := req.(type) {
			case *raft.RequestVoteRequest:
				var resp raft.RequestVoteResponse
				err := plain.RequestVote(self, addr, req, &resp)
				return err == nil && resp.Granted, err
			case *raft.RequestPreVoteRequest:
				var resp raft.RequestPreVoteResponse
				err := plain.RequestPreVote(self, addr, req, &resp)
				return err == nil && resp.Granted, err
			case *raft.TimeoutNowRequest:
				err := plain.TimeoutNow(self, addr, req, &raft.TimeoutNowResponse{})
				return err == nil, err
			case *raft.InstallSnapshotRequest:
				var resp raft.InstallSnapshotResponse
				err := plain.InstallSnapshot(self, addr, req, &resp, strings.NewReader("abc"))
				return err == nil && resp.Success, err
			}
			panic(what)
		})
	}
	if resp := a.append(5, 3, 5, 3, taken(4, 5, "next")); !resp.Success {
		t.Errorf("the leader is refused: %+v", resp)
	}
}

// settledEvery: each time after so many writes, the log notes which entries are committed.
const settledEvery = 16

// TestCommittedEntriesAreNotCut: the log refuses to cut off committed entries, even after a restart, when Raft does not know yet
// which are committed.
func TestCommittedEntriesAreNotCut(t *testing.T) {
	a := startAlone(t)
	a.settle()
	for i := uint64(4); i < 4+2*settledEvery; i++ {
		if resp := a.append(5, i-1, 5, i-1, &raft.Log{Index: i, Term: 5, Type: raft.LogNoop}); !resp.Success {
			t.Fatalf("entry %d: %+v", i, resp)
		}
	}
	check := func(when string, log *datadir.Log, settled uint64) {
		t.Helper()
		last, err := log.LastIndex()
		if err != nil || log.Settled() < settled {
			t.Fatalf("%s: settled up to %d of %d, %v", when, log.Settled(), last, err)
		}
		for _, first := range []uint64{1, 2, 3, log.Settled()} {
			if err := log.DeleteRange(first, last); err == nil {
				t.Errorf("%s: the log is cut from entry %d on", when, first)
			}
			if err := log.StoreLogs([]*raft.Log{taken(first, 9, "thief")}); err == nil {
				t.Errorf("%s: entry %d is written anew", when, first)
			}
		}
		var l raft.Log
		if err := log.GetLog(3, &l); err != nil || !bytes.Equal(l.Data, taken(3, 5, "owner").Data) {
			t.Errorf("%s: the lock is gone: %+v, %v", when, l, err)
		}
		if err := log.DeleteRange(last, last); err != nil {
			t.Errorf("%s: what is not committed is not cut: %v", when, err)
		}
	}
	check("Raft runs", a.log.dir.Log, 3+2*settledEvery-1)
	a.close()
	dir, err := openDirectory(a.log.cfg, a.log.cfg.Data, hclog.NewNullLogger(), datadir.Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	check("a new start", dir.Log, settledEvery)
	dir.Close()
}

// plainLog is a log in memory, against which a request is checked.
type plainLog struct {
	terms   map[uint64]uint64
	configs map[uint64]raft.Configuration
}

func (l *plainLog) TermAt(i uint64) uint64 { return l.terms[i] }

func (l *plainLog) ConfigurationBefore(i uint64) (conf raft.Configuration) {
	at := uint64(0)
	for index, c := range l.configs {
		if index < i && index > at {
			at, conf = index, c
		}
	}
	return conf
}

// TestEntriesInThePlaceOfAChangeOfMembers: a change of members is checked against the membership before it, without a former
// leader's change that is being replaced.
func TestEntriesInThePlaceOfAChangeOfMembers(t *testing.T) {
	configuration := func(ids ...string) (c raft.Configuration) {
		for _, id := range ids {
			c.Servers = append(c.Servers, raft.Server{Suffrage: raft.Voter, ID: raft.ServerID(id), Address: raft.ServerAddress("127.0.0.1:700" + id[1:])})
		}
		return c
	}
	members := func(ids ...string) []byte { return raft.EncodeConfiguration(configuration(ids...)) }
	log := &plainLog{terms: map[uint64]uint64{1: 1, 7: 2, 8: 2}, configs: map[uint64]raft.Configuration{
		1: configuration("n1", "n2", "n3"),
		8: configuration("n1", "n2", "n3", "n5"), // this change is not committed
	}}
	s := &asSeen{term: 4, settled: 7, log: log, self: "n1"}
	add := &raft.Log{Index: 9, Term: 3, Type: raft.LogConfiguration, Data: members("n1", "n2", "n3", "n6")}
	two := &raft.Log{Index: 9, Term: 3, Type: raft.LogConfiguration, Data: members("n1", "n2", "n6", "n7")}
	for what, c := range map[string]struct {
		prev, prevTerm uint64
		entries        []*raft.Log
		ok             bool
	}{
		"behind an entry that differs":              {8, 3, []*raft.Log{add}, true},
		"in the place of the change":                {7, 2, []*raft.Log{{Index: 8, Term: 3, Type: raft.LogNoop}, add}, true},
		"behind entries that are not here":          {20, 3, []*raft.Log{{Index: 21, Term: 4, Type: raft.LogConfiguration, Data: members("n1", "n2", "n4", "n5")}}, true},
		"two at once, in the place of the change":   {7, 2, []*raft.Log{{Index: 8, Term: 3, Type: raft.LogNoop}, two}, false},
		"two at once, behind the change":            {8, 2, []*raft.Log{two}, false},
		"two at once, behind a change of a request": {7, 2, []*raft.Log{{Index: 8, Term: 3, Type: raft.LogConfiguration, Data: members("n1", "n2", "n3", "n4")}, two}, false},
	} {
		err := s.look(&raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: 3, ID: []byte("n3"), Addr: []byte("127.0.0.1:7003")},
			Term: 4, PrevLogEntry: c.prev, PrevLogTerm: c.prevTerm, LeaderCommitIndex: 12, Entries: c.entries})
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", what, err)
		}
	}
}
