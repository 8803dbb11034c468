package raftnode

import (
	"strings"
	"testing"

	"github.com/hashicorp/raft"
)

// headerOf is the header of a leader of the cluster with this name.
func (a *alone) headerOf(cluster string) raft.RPCHeader {
	h := a.header()
	parts := strings.Split(string(h.Addr), string(separator))
	parts[2] = string(named) + cluster
	h.Addr = []byte(strings.Join(parts, string(separator)))
	return h
}

// lead sends the node the first entry of a leader of a cluster, and returns the error.
func (a *alone) lead(cluster string) error {
	first := &raft.Log{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: configuration(raft.Server{ID: "n2", Address: "127.0.0.1:1"})}
	req := &raft.AppendEntriesRequest{RPCHeader: a.headerOf(cluster), Term: 2, Entries: []*raft.Log{first}}
	cfg := a.log.cfg
	return a.log.trans.NetworkTransport.AppendEntries(raft.ServerID(cfg.ID), raft.ServerAddress(cfg.Addr), req, &raft.AppendEntriesResponse{})
}

// vote asks the node for its vote, in the name of a cluster.
func (a *alone) vote(cluster string) error {
	cfg := a.log.cfg
	req := &raft.RequestVoteRequest{RPCHeader: a.headerOf(cluster), Term: 2, LastLogIndex: 1, LastLogTerm: 1}
	return a.log.trans.NetworkTransport.RequestVote(raft.ServerID(cfg.ID), raft.ServerAddress(cfg.Addr), req, &raft.RequestVoteResponse{})
}

func (a *alone) mustTakeNothing(when, cluster string) {
	a.t.Helper()
	if err := a.lead(cluster); err == nil {
		a.t.Errorf("%s: an entry of %s is taken", when, cluster)
	}
	if err := a.vote(cluster); err == nil {
		a.t.Errorf("%s: a vote is given in %s", when, cluster)
	}
	if r := a.log.raft; r.CurrentTerm() != 0 || r.LastIndex() != 0 {
		a.t.Fatalf("%s: term %d, last entry %d", when, r.CurrentTerm(), r.LastIndex())
	}
}

func joinsThrough(addr ...string) func(*Config) {
	return func(cfg *Config) { cfg.Peers, cfg.Join = nil, addr }
}

// TestJoiningNodeTakesOneCluster: a joining node takes nothing before it knows the name of its cluster, and afterwards
// nothing of another one.
func TestJoiningNodeTakesOneCluster(t *testing.T) {
	a := startAlone(t, joinsThrough("127.0.0.1:1"))
	a.mustTakeNothing("before it knows a cluster", "blue")
	if err := a.log.Bind("blue"); err != nil {
		t.Fatal(err)
	}
	if err := a.log.Bind("red"); err != ErrBegun {
		t.Errorf("it is bound to two clusters: %v", err)
	}
	a.mustTakeNothing("when it knows another cluster", "red")
	if err := a.lead("blue"); err != nil {
		t.Errorf("its own leader is refused: %v", err)
	}
	if err := a.log.Bind("red"); err != errOtherCluster {
		t.Errorf("it is bound to two clusters: %v", err)
	}
	if err := a.log.Joined("red"); err != errOtherCluster {
		t.Errorf("it becomes a member of another cluster: %v", err)
	}
}

// TestJoiningNodeTakesItsFirstLeader: a joining node that has nobody to ask notes the cluster of the first leader before it
// takes an entry.
func TestJoiningNodeTakesItsFirstLeader(t *testing.T) {
	a := startAlone(t, joinsThrough("127.0.0.1:1"))
	a.log.cfg.Join = nil // as if it had been started again without --join
	if err := a.vote("red"); err == nil {
		t.Error("a vote is given before the cluster is known")
	}
	if err := a.lead("blue"); err != nil {
		t.Fatalf("the first leader is refused: %v", err)
	}
	if got := a.log.Cluster(); got != "blue" || !a.log.Joining() {
		t.Errorf("it joins %q", got)
	}
	if err := a.lead("red"); err == nil {
		t.Error("an entry of a second cluster is taken")
	}
}
