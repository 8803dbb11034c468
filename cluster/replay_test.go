package cluster

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/lockstep-io/lockstep/raftfsm"
	"github.com/lockstep-io/lockstep/store"
)

// longLog is more entries than Raft hands to a state machine that does not keep up: at most 128 times 64.
const longLog = 12_000

// stopLonger stops all nodes, the leader last, so that no node stands for election meanwhile. Then it gives all nodes the same
// long log.
func (c *three) stopLonger() {
	c.t.Helper()
	c.same()
	seq, _ := c.nodes[0].fsm.Position()
	leader := c.leader()
	for i := range 3 {
		c.stop((leader + 1 + i) % 3)
	}
	for i := range 3 {
		c.lengthen(i, seq)
	}
}

// lengthen adds entries to the log of a stopped node, as if the node had received them but not applied them yet. The entries
// change nothing.
func (c *three) lengthen(i int, seq uint64) {
	c.t.Helper()
	cfg := &c.cfg[i]
	dir := openStopped(c.t, cfg)
	defer dir.Close()
	last, err := dir.Log.LastIndex()
	if err != nil {
		c.t.Fatal(err)
	}
	var end raft.Log
	if err := dir.Log.GetLog(last, &end); err != nil {
		c.t.Fatal(err)
	}
	var more []*raft.Log
	for k := range uint64(longLog) {
		e := raftfsm.Entry{Prev: seq + k, Lease: 1, Proposer: 1, Batch: k}
		more = append(more, &raft.Log{Index: last + 1 + k, Term: end.Term, Type: raft.LogCommand, Data: e.Append(nil)})
	}
	for some := range slices.Chunk(more, 1000) {
		if err := dir.Log.StoreLogs(some); err != nil {
			c.t.Fatal(err)
		}
	}
}

// stuck is a Sink. No write set takes effect before the test lets the Sink go.
type stuck struct {
	notes
	free chan struct{}
}

func (s *stuck) Applied([]byte) { <-s.free }
func (s *stuck) Missed()        {}

var _ store.KeySink = (*stuck)(nil)

// A node that still applies a long log is not ready, but it acknowledges entries and votes.
func TestNodeVotesWhileItAppliesItsLog(t *testing.T) {
	c := startThree(t)
	c.start(0, 1, 2)
	c.expect(c.leader(), "OK", "SET k v")
	c.stopLonger()
	c.start(0, 1) // one of these two wins the election before the third node asks for votes
	sink := &stuck{free: make(chan struct{})}
	letGo := func() {
		select {
		case <-sink.free:
		default:
			close(sink.free)
		}
	}
	t.Cleanup(letGo) // before the nodes are stopped
	c.sinks[2], c.cfg[2].Sink = &sink.notes, sink
	n, err := Open(c.cfg[2])
	if err != nil {
		t.Fatal(err)
	}
	c.nodes[2] = n
	c.until("its link to the leader", n.Reaches)
	leader := slices.IndexFunc(c.nodes[:2], func(n *Node) bool { return n.leads() })
	c.expect(leader, "OK", "SET k after")
	told := c.nodes[leader].position()
	c.until("its hearing what is committed", func() bool {
		return raftOf(n).Told >= told
	})
	if n.Ready() {
		t.Error("ready with its log to apply")
	}
	if at := n.Progress(); at.Committed < told || at.Applied >= told { // an entry is being applied, so the state is locked
		t.Errorf("%+v, while %d is committed", at, told)
	}
	c.crash(leader)
	start := time.Now()
	c.expect(1-leader, "OK", "SET k again")
	if took := time.Since(start); took > c.cfg[0].FailoverWait/2 {
		t.Errorf("the two that live served nobody for %v", took)
	}
	if n.Ready() {
		t.Error("ready with its log to apply, under another leader")
	}
	if why := n.WaitReady(shortly(t, 50*ms)); why != context.DeadlineExceeded {
		t.Errorf("WaitReady: %v", why)
	}
	letGo()
	if err := n.WaitReady(shortly(t, 20*time.Second)); err != nil {
		t.Errorf("its log is applied: %v", err)
	}
	c.expect(2, "again", "GET k")
	if at := n.Progress(); at.Applied < told {
		t.Errorf("%+v, and %d is applied", at, told)
	}
	c.same()
}

// A starting node takes a due snapshot once its log is applied: its process may end before Raft's own check.
func TestSnapshotIsTakenAtTheStart(t *testing.T) {
	c := startThree(t, func(cfg *Config) {
		cfg.SnapshotThreshold, cfg.SnapshotInterval, cfg.TrailingLogs = 100, time.Hour, 10
	})
	newest := func(i int) uint64 { return raftOf(c.nodes[i]).Dir.Snapshots.Newest().Index }
	c.start(0, 1, 2)
	c.expect(0, "OK", "SET k v")
	for i := range 3 {
		if got := newest(i); got != 0 {
			t.Errorf("n%d has a snapshot at %d", i+1, got)
		}
	}
	c.stopLonger()
	c.start(0, 1, 2)
	for i := range 3 {
		c.until("a snapshot", func() bool { return newest(i) > longLog })
	}
	c.expect(1, "v", "GET k")
	c.same()
}
