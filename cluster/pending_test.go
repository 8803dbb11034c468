package cluster

import (
	"slices"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/raftfsm"
)

// A snapshot makes the node give up exactly the batches that were evaluated before the snapshot's state.
func TestSnapshotGivesUpWhatItJumpedOver(t *testing.T) {
	var p pendingBatches
	told := map[uint64]error{}
	for _, prev := range []uint64{4, 5, 6} {
		r := &request{finish: func(r *request) { told[prev] = r.err }}
		p.begin(&batch{number: prev, prev: prev, requests: []*request{r}}, time.Hour)
	}
	p.giveUp(6)
	if len(told) != 2 || told[4] != errUnknown || told[5] != errUnknown {
		t.Errorf("told %v", told)
	}
	const boot = 77
	p.applied(boot, raftfsm.Outcome{Prev: 5, Accepted: true, Proposer: boot + 1, Batch: 6}, 0)
	if p.len() != 1 {
		t.Error("settled by an entry on another state")
	}
	p.applied(boot, raftfsm.Outcome{Prev: 6, Accepted: true, Proposer: boot, Batch: 6}, 0)
	if err, ok := told[6]; !ok || err != nil || p.len() != 0 {
		t.Errorf("the batch that took effect: %v, %v", err, ok)
	}
}

// Numbers of batches are unique only within one run of a node.
func TestBatchesOfAnEarlierRunAreNotMine(t *testing.T) {
	var p pendingBatches
	var told []error
	r := &request{finish: func(r *request) { told = append(told, r.err) }}
	p.begin(&batch{number: 1, prev: 9, requests: []*request{r}}, time.Hour)
	p.applied(2, raftfsm.Outcome{Prev: 9, Accepted: true, Proposer: 1, Batch: 1}, 0)
	if !slices.Equal(told, []error{errNotExecuted}) {
		t.Errorf("told %v", told)
	}
}

// TestBatchInALaterTerm: if a batch enters the log in a later term than its sequencer's, its leases begin anew.
func TestBatchInALaterTerm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.lead()
		before, _ := n.log.count()
		terms := uint64(2)
		n.log.decides(0, func(raftfsm.Entry) verdict {
			n.log.set(func(l *fakeLog) { l.term, terms = l.term+terms, 0 })
			return commit
		})
		n.expect("OK", "SET lock me NX PX 1000")
		// The three entries are that of the batch, the first one of the later term, and the one in which the lease begins anew.
		if proposals, _ := n.log.count(); proposals != before+3 {
			t.Errorf("%d proposals, want 3", proposals-before)
		}
		n.expect("1000", "PTTL lock")
	})
}

// TestPendingLetsGoOfBatches: a node does not keep a settled batch and its entry in memory.
func TestPendingLetsGoOfBatches(t *testing.T) {
	var p pendingBatches
	for _, settle := range []func(b *batch){
		p.remove,
		func(b *batch) {
			p.applied(1, raftfsm.Outcome{Proposer: 1, Batch: b.number, Accepted: true, Sequence: 1}, 0)
		},
		func(*batch) { p.giveUp(2) },
	} {
		b := &batch{number: 7, prev: 1}
		p.begin(b, time.Hour)
		settle(b)
		b.watchdog.Stop()
		for _, x := range p.list[:cap(p.list)] {
			if x != nil {
				t.Error("the batch is kept")
			}
		}
	}
}
