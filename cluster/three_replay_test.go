package cluster

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"lockstep/raftfsm"
	"lockstep/store"
)

// longLog is more than Raft hands to the state machine before it waits for it:
// 128 times 64 entries.
const longLog = 12_000

// stopLonger stops all nodes, the leader last, so that nobody stands for election
// meanwhile, and gives all of them the same long log.
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

// lengthen adds entries that change nothing to the log of a stopped node: what it
// has received, and not applied when it was stopped.
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

// stuck is a Sink that lets no write set take effect until it is let go.
type stuck struct {
	notes
	free chan struct{}
}

func (s *stuck) Applied([]byte) { <-s.free }
func (s *stuck) Missed()        {}

var _ store.KeySink = (*stuck)(nil)

// A node that has a long log still to apply is not ready, but it is a member: it
// acknowledges entries and gives its vote, so when the leader dies it and the
// third one are a majority.
func TestNodeVotesWhileItAppliesItsLog(t *testing.T) {
	c := startThree(t)
	c.start(0, 1, 2)
	c.expect(c.leader(), "OK", "SET k v")
	c.stopLonger()
	c.start(0, 1) // one of them wins before the third asks
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
		p := &n.cons.(*raftLog).trans.progress
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.told >= told
	})
	if n.Ready() {
		t.Error("ready with its log to apply")
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
	c.same()
}

// Raft is told of a commit no faster than the state machine follows, and always
// a little.
func TestCommitIndexIsToldInPortions(t *testing.T) {
	var p progress
	tell := func(commit uint64) uint64 {
		req := raft.AppendEntriesRequest{LeaderCommitIndex: commit}
		p.pace(&req)
		return req.LeaderCommitIndex
	}
	for _, step := range []struct{ done, told, want uint64 }{
		{0, 0, 0}, // a request that says nothing of it
		{0, 10, 10},
		{0, 1_000_000, paceWindow},
		{0, 1_000_000, paceWindow + paceStep}, // these may be entries that never reach the state machine
		{paceWindow, 1_000_000, 2 * paceWindow},
		{500_000, 1_000_000, 500_000 + paceWindow},
		{999_990, 1_000_000, 1_000_000},
		{1_000_000, 1_000_001, 1_000_001},
		{1_000_000, 7, 7}, // a new leader that knows less
	} {
		p.done.Store(step.done)
		if got := tell(step.told); got != step.want {
			t.Errorf("%+v: Raft is told %d", step, got)
		}
	}
}

// Caught up is who has applied what was committed when he asked, and what came
// in the meantime.
func TestCaughtUp(t *testing.T) {
	var p progress
	done := uint64(0)
	caught := func() bool { return p.caughtUp(func(index uint64) bool { return done >= index }) }
	var said []string
	look := func() {
		if caught() {
			said = append(said, "yes")
		} else {
			said = append(said, "no")
		}
	}
	tell := func(commit uint64) { p.pace(&raft.AppendEntriesRequest{LeaderCommitIndex: commit}) }
	look() // nobody has told anything
	tell(5000)
	look()
	tell(9000)
	done = 5000
	look() // what was asked for, but more has come
	done = 9000
	look()
	tell(50_000)
	look() // it is and remains so …
	p.reset()
	look() // … until there is another leader
	tell(50_000)
	look()
	done = 50_000
	look()
	if got, want := strings.Join(said, " "), "no no no yes yes no no yes"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A process that never lives for as long as Raft takes to look whether a snapshot
// is due takes it when it has applied its log.
func TestSnapshotIsTakenAtTheStart(t *testing.T) {
	c := startThree(t, func(cfg *Config) {
		cfg.SnapshotThreshold, cfg.SnapshotInterval, cfg.TrailingLogs = 100, time.Hour, 10
	})
	newest := func(i int) uint64 { return c.nodes[i].cons.(*raftLog).dir.Snapshots.Newest().Index }
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
