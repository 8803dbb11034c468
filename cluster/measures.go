package cluster

import (
	"cmp"
	"sync/atomic"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/raftnode"
	"github.com/lockstep-io/lockstep/cluster/tally"
	"github.com/lockstep-io/lockstep/store"
)

// Measures are what a node counts from its start on, for /metrics.
type Measures struct {
	Commit     *tally.Histogram // leader: from the evaluation of a batch with writes to its answer
	Batch      *tally.Histogram // leader: requests of a batch
	LogSync    *tally.Histogram // a write of the Raft log to the disk, or a cut of its end
	Apply      *tally.Histogram // an entry applied to the state; not on an ephemeral node
	Lengthened atomic.Uint64    // leases that the leader has lengthened because their replies were late
	// Locks counts waits on the node of the waiting client, and everything else on the leader.
	Locks *tally.Locks
}

func newMeasures() Measures {
	return Measures{Commit: tally.New(tally.Work), Batch: tally.New(tally.Count), LogSync: tally.New(tally.Work), Apply: tally.New(tally.Work),
		Locks: tally.NewLocks(store.LockKinds())}
}

// Measures returns what this node has counted.
func (n *Node) Measures() *Measures { return &n.measures }

// RaftMetric is one of the metrics of hashicorp/raft.
type RaftMetric = raftnode.Metric

// The kinds of a RaftMetric; every other one is a counter.
const (
	RaftGauge   = raftnode.Gauge
	RaftSummary = raftnode.Summary
)

// RaftMetrics returns the metrics of hashicorp/raft in this process.
func RaftMetrics() []RaftMetric { return raftnode.Emitted() }

// batched counts a batch that this leader has answered. took is how long its entry took; entry is false if it wrote nothing.
func (m *Measures) batched(requests int, took time.Duration, entry bool) {
	if requests > 0 {
		m.Batch.Observe(int64(requests))
	}
	if entry {
		m.Commit.Took(took)
	}
}

// enter registers a command, and counts it if it waits for a lock. The caller holds mu.
func (k *blockRegistry) enter(b *Blocked) {
	k.next++
	b.id, b.began = k.next, k.n.cfg.Time.Monotonic() // it may leave before it begins, at the gate
	k.all[b.id] = b
	if store.TakesLock(b.Call.Cmd) {
		b.lockKind = cmp.Or(store.AskedKind(b.Call.Args), tally.OtherKind)
		k.n.measures.Locks.Waits(b.lockKind)
	}
}

// exit removes a command that has ended with a reply, and counts the end of its wait. The caller holds mu.
func (k *blockRegistry) exit(b *Blocked, reply store.Reply) {
	delete(k.all, b.id)
	if b.lockKind == "" {
		return
	}
	how := tally.Left
	switch {
	case reply.IsError():
		how = tally.Refused
	case reply.Kind == store.Array:
		how = tally.Got
	case reply.Kind == store.NullArray:
		how = tally.TimedOut
	}
	k.n.measures.Locks.Waited(b.lockKind, how, k.n.cfg.Time.Monotonic()-b.began)
	b.lockKind = ""
}
