package cluster

import (
	"slices"
	"sync"
	"time"

	"github.com/lockstep-io/lockstep/raftfsm"
)

// pendingBatches holds the proposals of this node whose fate is not known yet. Of all entries evaluated on one state,
// compare-and-append lets only the first in the log take effect. So the next accepted entry is the batch's own, or proof that the
// batch never takes effect.
//
// While the sequencer waits for Raft, applied answers a batch whose entry is applied soon enough (promptly). Otherwise the
// sequencer answers, after it has checked the clock and that it still leads. After it has lost its leadership, leave or applied
// answers with errLate. A watchdog answers a batch that has waited for too long. The first answer counts (batch.end).
type pendingBatches struct {
	stalled func() // the watchdog of a batch calls it when the batch has waited for too long

	mu   sync.Mutex
	list []*batch
}

// begin adds a batch that is about to be proposed. After patience, its watchdog answers errUnknown, because clients must not wait
// for ever.
func (p *pendingBatches) begin(b *batch, patience time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b.proposing = true
	b.watchdog = time.AfterFunc(patience, func() {
		if !b.answered.Load() {
			p.stalled()
		}
		b.end(errUnknown)
	})
	p.list = append(p.list, b)
}

// stalledEvery is the least time between two log lines of stalled.
const stalledEvery = 10 * time.Second

// stalled logs why clients get INDETERMINATE although this node leads: that reply does not give the reason.
func (n *Node) stalled() {
	now, last := n.cfg.Time.Monotonic(), n.saidStalled.Load()
	if last != 0 && now-time.Duration(last) < stalledEvery || !n.saidStalled.CompareAndSwap(last, int64(max(now, 1))) {
		return
	}
	n.cfg.Logger.Warn("An entry is not committed: the disk of this leader stalls, or its way to a majority; clients are told INDETERMINATE", "after", n.cfg.FailoverWait)
}

// settle answers errNotExecuted to the requests of a batch that had no effect: its proposal has failed, or was not accepted.
func (p *pendingBatches) settle(b *batch) {
	p.remove(b)
	b.answer(errNotExecuted)
}

// leave notes that the sequencer no longer waits for b, because it no longer leads. If b has taken effect already, leave answers
// errLate.
func (p *pendingBatches) leave(b *batch) {
	p.mu.Lock()
	b.proposing = false
	accepted := b.accepted != 0
	p.mu.Unlock()
	if accepted {
		p.remove(b)
		b.answer(errLate)
	}
}

func (p *pendingBatches) len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.list)
}

func (p *pendingBatches) remove(b *batch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, x := range p.list {
		if x == b {
			p.list = slices.Delete(p.list, i, i+1)
			return
		}
	}
}

// ofTerm reports whether b was evaluated in its entry's term. Otherwise leases must begin anew (errLate): nobody may have led in
// between.
func (b *batch) ofTerm(out raftfsm.Outcome) bool { return out.Term == 0 || out.Term == b.term }

// applied answers the batches whose fate out settles, except an accepted one that began before since: its sequencer first checks
// that it still leads.
func (p *pendingBatches) applied(boot uint64, out raftfsm.Outcome, since time.Duration) {
	p.mu.Lock()
	var void []*batch
	var done, late *batch
	kept := p.list[:0]
	for _, b := range p.list {
		mine := out.Proposer == boot && out.Batch == b.number
		accepted := mine && out.Accepted
		if accepted {
			b.accepted = out.Sequence
		}
		switch {
		case accepted && (!b.proposing || !b.ofTerm(out)):
			late = b
		case accepted && b.began < since:
			kept = append(kept, b)
		case accepted:
			done = b
		case mine || out.Accepted && out.Prev == b.prev:
			void = append(void, b)
		default:
			kept = append(kept, b)
		}
	}
	clear(p.list[len(kept):])
	p.list = kept
	p.mu.Unlock()
	if done != nil {
		done.answer(nil)
	}
	if late != nil {
		late.answer(errLate)
	}
	for _, b := range void {
		b.answer(errNotExecuted)
	}
}

// giveUp answers errUnknown to the batches evaluated before seq: after a snapshot or a stop, their fate will not be known here.
func (p *pendingBatches) giveUp(seq uint64) {
	p.mu.Lock()
	var lost []*batch
	kept := p.list[:0]
	for _, b := range p.list {
		if b.prev < seq {
			lost = append(lost, b)
		} else {
			kept = append(kept, b)
		}
	}
	clear(p.list[len(kept):])
	p.list = kept
	p.mu.Unlock()
	for _, b := range lost {
		b.answer(errUnknown)
	}
}
