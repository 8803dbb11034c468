package raftnode

import (
	"math"
	"sync"
	"sync/atomic"

	metrics "github.com/hashicorp/go-metrics/compat"
)

// hashicorp/raft reports its metrics to a sink of the whole process. This file keeps those of the table, without labels: so neither peers
// nor clients can make more of them.

// MetricKind is how a Metric changes.
type MetricKind uint8

// The kinds.
const (
	Counter MetricKind = iota
	Gauge
	Summary // Count and Sum of values
)

// Metric is one metric of hashicorp/raft.
type Metric struct {
	Name, Help string // in the conventions of Prometheus, without a prefix
	Kind       MetricKind
	Count      uint64
	Value      float64 // of a Summary: the sum
}

// emitted is a metric that Raft reports.
type emitted struct {
	from       string // Raft's name
	name, help string
	kind       MetricKind
	per        float64 // Raft's unit over ours

	count atomic.Uint64
	bits  atomic.Uint64 // a float64
}

const ms = 1e-3 // Raft reports times in ms

// table has all metrics that are kept. Those that Raft reports for each peer are here for all peers together.
var table = []*emitted{
	{from: "raft.apply", name: "proposals_total", help: "Entries that this node has proposed as leader.", per: 1},
	{from: "raft.barrier", name: "barriers_total", help: "Barriers that this node has asked for as leader.", per: 1},
	{from: "raft.restore", name: "restores_total", help: "Restores of a snapshot that an operator has asked Raft for.", per: 1},
	{from: "raft.state.follower", name: "follower_transitions_total", help: "How often this node has become a follower.", per: 1},
	{from: "raft.state.candidate", name: "candidate_transitions_total", help: "How often this node has stood for election.", per: 1},
	{from: "raft.state.leader", name: "leader_transitions_total", help: "How often this node has become the leader.", per: 1},
	{from: "raft.transition.heartbeat_timeout", name: "heartbeat_timeouts_total", help: "How often this node has heard nothing from a leader for the heartbeat timeout.", per: 1},
	{from: "raft.transition.leader_lease_timeout", name: "leader_lease_timeouts_total", help: "How often this node has given up its lead because no majority answered.", per: 1},
	{from: "raft.verify_leader", name: "leadership_checks_total", help: "How often this leader has asked the majority whether it still leads.", per: 1},
	{from: "raft.replication.appendEntries.logs", name: "replicated_entries_total", help: "Entries that this leader has sent to followers, counted for each follower.", per: 1},

	{from: "raft.commitNumLogs", name: "last_committed_entries", help: "Entries that were last committed at once.", kind: Gauge, per: 1},
	{from: "raft.leader.dispatchNumLogs", name: "last_dispatched_entries", help: "Entries that this leader last wrote at once.", kind: Gauge, per: 1},
	{from: "raft.leader.oldestLogAge", name: "oldest_entry_age_seconds", help: "Age of the oldest entry in the log of this leader.", kind: Gauge, per: ms},
	{from: "raft.fsm.lastRestoreDuration", name: "last_restore_seconds", help: "How long it took to read the last snapshot that was restored.", kind: Gauge, per: ms},

	{from: "raft.commitTime", name: "commit_seconds", help: "Time from the proposal of an entry to its commit.", kind: Summary, per: ms},
	{from: "raft.leader.dispatchLog", name: "dispatch_seconds", help: "Time in which this leader stores entries for its own log.", kind: Summary, per: ms},
	{from: "raft.leader.lastContact", name: "last_contact_seconds", help: "How long ago this leader heard from a follower, whenever it looks.", kind: Summary, per: ms},
	{from: "raft.fsm.enqueue", name: "state_enqueue_seconds", help: "Time in which committed entries wait for room in the queue of the state machine.", kind: Summary, per: ms},
	{from: "raft.fsm.apply", name: "state_apply_seconds", help: "Time in which the state machine applies an entry.", kind: Summary, per: ms},
	{from: "raft.fsm.restore", name: "state_restore_seconds", help: "Time in which the state machine reads a snapshot.", kind: Summary, per: ms},
	{from: "raft.fsm.snapshot", name: "state_snapshot_seconds", help: "Time in which the state machine copies itself for a snapshot.", kind: Summary, per: ms},
	{from: "raft.snapshot.takeSnapshot", name: "snapshot_seconds", help: "Time that a snapshot takes as a whole.", kind: Summary, per: ms},
	{from: "raft.snapshot.persist", name: "snapshot_write_seconds", help: "Time in which a snapshot is written.", kind: Summary, per: ms},
	{from: "raft.compactLogs", name: "log_compaction_seconds", help: "Time in which the log is shortened after a snapshot.", kind: Summary, per: ms},
	{from: "raft.candidate.electSelf", name: "election_seconds", help: "Time in which a candidate votes for itself and asks the others.", kind: Summary, per: ms},
	{from: "raft.candidate.preElectSelf", name: "preelection_seconds", help: "Time in which a node asks the others whether they would vote for it.", kind: Summary, per: ms},
	{from: "raft.rpc.appendEntries", name: "append_handling_seconds", help: "Time in which a follower handles entries.", kind: Summary, per: ms},
	{from: "raft.rpc.appendEntries.storeLogs", name: "append_store_seconds", help: "Time in which a follower stores entries.", kind: Summary, per: ms},
	{from: "raft.rpc.requestVote", name: "vote_handling_seconds", help: "Time in which a node handles the request for its vote.", kind: Summary, per: ms},
	{from: "raft.rpc.installSnapshot", name: "snapshot_install_seconds", help: "Time in which a follower receives and restores a snapshot.", kind: Summary, per: ms},
	{from: "raft.replication.appendEntries.rpc", name: "append_round_trip_seconds", help: "Time from sending entries to a follower to its answer.", kind: Summary, per: ms},
	{from: "raft.replication.heartbeat", name: "heartbeat_round_trip_seconds", help: "Time from a heartbeat to the answer of the follower.", kind: Summary, per: ms},
	{from: "raft.replication.installSnapshot", name: "snapshot_send_seconds", help: "Time in which a follower gets a snapshot.", kind: Summary, per: ms},
	{from: "raft.thread.main.saturation", name: "main_saturation_ratio", help: "Share of its time in which Raft's main goroutine is busy.", kind: Summary, per: 1},
	{from: "raft.thread.fsm.saturation", name: "state_saturation_ratio", help: "Share of its time in which Raft's goroutine of the state machine is busy.", kind: Summary, per: 1},
}

// sink takes the metrics of all nodes of this process.
type sink struct{ byName map[string]*emitted }

// listen makes Raft report to the table.
var listen = sync.OnceFunc(func() {
	s := sink{map[string]*emitted{}}
	for _, e := range table {
		s.byName[e.from] = e
	}
	conf := metrics.DefaultConfig("")
	conf.EnableHostname, conf.EnableRuntimeMetrics = false, false
	if _, err := metrics.NewGlobal(conf, s); err != nil {
		panic(err) // it fails only for a wrong configuration
	}
})

// Emitted returns what Raft has reported so far.
func Emitted() []Metric {
	list := make([]Metric, len(table))
	for i, e := range table {
		list[i] = Metric{Name: e.name, Help: e.help, Kind: e.kind, Count: e.count.Load(), Value: math.Float64frombits(e.bits.Load())}
	}
	return list
}

// of returns the entry of the table for a key, or nil.
func (s sink) of(key []string) *emitted {
	var room [64]byte
	name := room[:0]
	for i, word := range key {
		if len(name)+len(word) >= len(room) {
			return nil // longer than any name in the table: it ends with the id of a peer
		}
		if i > 0 {
			name = append(name, '.')
		}
		name = append(name, word...)
	}
	return s.byName[string(name)]
}

func (s sink) add(key []string, val float32) {
	e := s.of(key)
	if e == nil {
		return
	}
	e.count.Add(1)
	for {
		old := e.bits.Load()
		sum := math.Float64frombits(old) + float64(val)*e.per
		if e.bits.CompareAndSwap(old, math.Float64bits(sum)) {
			return
		}
	}
}

func (s sink) set(key []string, val float32) {
	if e := s.of(key); e != nil {
		e.bits.Store(math.Float64bits(float64(val) * e.per))
	}
}

// The methods of metrics.MetricSink.

func (s sink) SetGauge(key []string, val float32)                               { s.set(key, val) }
func (s sink) SetGaugeWithLabels(key []string, val float32, _ []metrics.Label)  { s.set(key, val) }
func (s sink) EmitKey([]string, float32)                                        {}
func (s sink) IncrCounter(key []string, val float32)                            { s.add(key, val) }
func (s sink) AddSample(key []string, val float32)                              { s.add(key, val) }
func (s sink) AddSampleWithLabels(key []string, val float32, _ []metrics.Label) { s.add(key, val) }
func (s sink) IncrCounterWithLabels(key []string, val float32, _ []metrics.Label) {
	s.add(key, val)
}
