package raftnode

import (
	"encoding/binary"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/lockstep-io/lockstep/raftfsm"
	"github.com/lockstep-io/lockstep/store"
)

// alone is one of three members. The test plays the two others.
type alone struct {
	t    *testing.T
	fsm  *raftfsm.FSM
	log  *Node
	peer string // id of one of the others

	close func() // closes the member before the test ends
}

func startAlone(t *testing.T, change ...func(*Config)) *alone {
	t.Helper()
	cfg := memberConfig(t, filepath.Join(t.TempDir(), "n1"))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Addr = ln.Addr().String()
	cfg.Listen = func() (net.Listener, error) { return ln, nil }
	cfg.Peers = []Peer{{ID: "n1", Addr: cfg.Addr}, {ID: "n2", Addr: "127.0.0.1:2"}, {ID: "n3", Addr: "127.0.0.1:3"}}
	for _, fn := range change {
		fn(cfg)
	}
	r, fsm, closeEarly := openMember(t, cfg)
	return &alone{t, fsm, r, "n2", closeEarly}
}

func (a *alone) header() raft.RPCHeader {
	addr := strings.Join([]string{"127.0.0.1:2", "directory-of-" + a.peer, string(named) + a.log.dir.Cluster()}, string(separator))
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(a.peer), Addr: []byte(addr)}
}

// append sends entries as a leader of a term would, and returns the answer.
func (a *alone) append(term, prev, prevTerm, commit uint64, entries ...*raft.Log) raft.AppendEntriesResponse {
	a.t.Helper()
	req := &raft.AppendEntriesRequest{RPCHeader: a.header(), Term: term, PrevLogEntry: prev, PrevLogTerm: prevTerm,
		Entries: entries, LeaderCommitIndex: commit}
	var resp raft.AppendEntriesResponse
	cfg := a.log.cfg
	if err := a.log.trans.NetworkTransport.AppendEntries(raft.ServerID(cfg.ID), raft.ServerAddress(cfg.Addr), req, &resp); err != nil {
		a.t.Fatal(err)
	}
	return resp
}

// taken is a log entry that gives the lock to an owner, evaluated on an empty state.
func taken(index, term uint64, owner string) *raft.Log {
	txn := store.New().Begin(store.Time{Lease: 1}, 1, store.Env{})
	txn.SetString(0, []byte("lock"), owner, 0)
	e := raftfsm.Entry{Lease: 1, Proposer: term, Batch: 1, Writes: txn.Writes().Bytes()}
	return &raft.Log{Index: index, Term: term, Type: raft.LogCommand, Data: e.Append(nil)}
}

func (a *alone) owner() (owner string) {
	a.fsm.View(func(st *store.Store, _ uint64) {
		if e := st.Begin(store.Time{Lease: 1}, 1, store.Env{}).Lookup(0, []byte("lock")); e != nil {
			owner = e.Str()
		}
	})
	return owner
}

// A request's commit index commits nothing beyond the request's last entry: there, a node may have a former leader's entry.
func TestCommitIndexBeyondWhatWasCompared(t *testing.T) {
	a := startAlone(t)
	noop := &raft.Log{Index: 2, Term: 5, Type: raft.LogNoop}
	for _, step := range []raft.AppendEntriesResponse{
		a.append(5, 1, 1, 1, noop),
		a.append(5, 2, 5, 2, taken(3, 5, "nobody")),
		a.append(6, 1, 1, 4, noop), // the new leader has another entry 3 by now
	} {
		if !step.Success {
			t.Fatalf("refused: %+v", step)
		}
	}
	time.Sleep(100 * time.Millisecond)
	if owner := a.owner(); owner != "" || a.log.raft.CommitIndex() > 2 {
		t.Errorf("entry %d counts as committed, the lock is of %q", a.log.raft.CommitIndex(), owner)
	}
	// The disk has room now.
	a.append(6, 2, 5, 4, taken(3, 6, "owner"), &raft.Log{Index: 4, Term: 6, Type: raft.LogNoop})
	for range 100 {
		if a.owner() != "" {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if owner := a.owner(); owner != "owner" {
		t.Errorf("the lock is of %q", owner)
	}
}

// termGate is a disk that writes a later term slowly, so that an earlier term is written after it.
type termGate struct {
	raft.StableStore
	later   uint64
	begun   chan struct{} // closed when the later term is about to be written
	resume  chan struct{} // lets it be written
	written chan struct{} // closed when the vote in it has been given
}

func (g *termGate) Set(k, v []byte) error {
	if string(k) == "CurrentTerm" {
		switch binary.BigEndian.Uint64(v) {
		case g.later:
			close(g.begun)
			<-g.resume
		case g.later - 1:
			<-g.written
		}
	}
	return g.StableStore.Set(k, v)
}

// A node that is writing the new term in which it votes does not follow the earlier term's leader.
func TestHeartbeatOfAnEarlierTermWhileVoting(t *testing.T) {
	gate := &termGate{later: 9, begun: make(chan struct{}), resume: make(chan struct{}), written: make(chan struct{})}
	a := startAlone(t, func(cfg *Config) {
		cfg.Disk.Stable = func(s raft.StableStore) raft.StableStore {
			gate.StableStore = s
			return gate
		}
	})
	self, addr := raft.ServerID(a.log.cfg.ID), raft.ServerAddress(a.log.cfg.Addr)
	voted := make(chan raft.RequestVoteResponse, 1)
	go func() {
		var resp raft.RequestVoteResponse
		err := a.log.trans.NetworkTransport.RequestVote(self, addr, &raft.RequestVoteRequest{RPCHeader: a.header(),
			Term: 9, LastLogIndex: 100, LastLogTerm: 7, LeadershipTransfer: true}, &resp)
		if err != nil {
			t.Error(err)
		}
		voted <- resp
	}()
	<-gate.begun
	beaten := make(chan raft.AppendEntriesResponse, 1)
	go func() { beaten <- a.append(8, 0, 0, 0) }()
	time.Sleep(100 * time.Millisecond)
	close(gate.resume)
	if vote := <-voted; !vote.Granted {
		t.Fatalf("no vote: %+v", vote)
	}
	close(gate.written)
	if beat := <-beaten; beat.Success {
		t.Error("it follows the leader of term 8 and has voted in term 9")
	}
	if resp := a.append(8, 1, 1, 1, taken(2, 8, "owner")); resp.Success {
		t.Error("it acknowledges an entry of term 8 and has voted in term 9")
	}
	if term := a.log.raft.CurrentTerm(); term != 9 {
		t.Errorf("its term is %d", term)
	}
}
