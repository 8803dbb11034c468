package cluster

import (
	"slices"
	"sync"
	"time"

	"lockstep/raftfsm"
)

// pendingBatches holds the proposals of this node whose fate is not known yet. When a leader is replaced with a proposal in
// flight, compare-and-append settles the fate: of all entries evaluated on one state only the first in the log takes effect. So
// the next accepted entry is either the entry of the batch, or proof that the batch never takes effect.
//
// Who answers a batch?
//
//   - While the sequencer waits for Raft, the method applied answers under two conditions: the entry is applied soon enough
//     after the evaluation (the constant promptly), and this node is not transferring its leadership. Otherwise the sequencer
//     answers, after it has checked the clock and that it still leads.
//   - After the sequencer has lost its leadership, the method leave or applied answers with errLate. That is so even if this
//     node leads again, and the entry of the batch belongs to its later term.
//   - If a batch has waited for too long, its watchdog answers.
//
// The first answer counts (batch.end).
type pendingBatches struct {
	stalled func() // the watchdog of a batch calls it when the batch has waited for too long

	mu   sync.Mutex
	list []*batch
}

// begin adds a batch that the sequencer is about to propose. When the time patience has passed, the watchdog of the batch answers
// errUnknown: a stalled disk or a lost majority must not keep the clients waiting for ever.
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

// leave notes that the sequencer no longer waits for b, because it no longer leads. If b has taken effect already,
// leave answers b's requests with errLate. Otherwise a later call of the method applied or giveUp, or the watchdog, answers them.
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

// ofTerm reports whether b was evaluated in the term of its entry. The terms can differ: this node may have been deposed and
// elected again before its sequencer noticed. Then the leases in the batch must begin anew (errLate), because the clock of the
// sequencer does not include the time without a leader between the two terms.
func (b *batch) ofTerm(out raftfsm.Outcome) bool { return out.Term == 0 || out.Term == b.term }

// applied answers the batches whose fate an applied entry settles, with one exception. If the accepted batch began before
// since, a monotonic time, and the sequencer still waits for it, applied leaves the batch to the sequencer. The sequencer
// answers it after a check that it still leads.
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

// giveUp answers errUnknown to the batches that were evaluated on a state before seq. Their fate will not be known here: a snapshot
// from the leader has replaced the entries that would have settled it, or the node stops.
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
