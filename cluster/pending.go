package cluster

import (
	"sync"
	"time"

	"lockstep/raftfsm"
)

// pendingBatches are this node's proposals whose fate is not known yet. When a
// leader is replaced with a proposal in flight, compare-and-append tells what
// became of it: of the entries evaluated on one state only the first in the
// log takes effect, so the next accepted entry is either this batch or proof
// that it never will be.
type pendingBatches struct {
	mu   sync.Mutex
	list []*batch
}

func (p *pendingBatches) add(b *batch) {
	p.mu.Lock()
	b.proposing = true
	p.list = append(p.list, b)
	p.mu.Unlock()
}

// leave tells that the sequencer waits for b no more, because it leads no more.
func (p *pendingBatches) leave(b *batch) {
	p.mu.Lock()
	b.proposing = false
	seq := b.committed
	p.mu.Unlock()
	if seq != 0 {
		p.remove(b)
		b.finishLate(seq)
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
			p.list = append(p.list[:i], p.list[i+1:]...)
			return
		}
	}
}

// applied resolves the batches whose fate an applied entry settles. Only what was
// evaluated since a monotonic time may be answered before the sequencer has
// looked whether it still leads.
func (p *pendingBatches) applied(boot uint64, out raftfsm.Outcome, since time.Duration) {
	p.mu.Lock()
	var void []*batch
	var done, late *batch
	kept := p.list[:0]
	for _, b := range p.list {
		mine := out.Proposer == boot && out.Batch == b.number
		switch {
		case mine && out.Accepted && !b.proposing:
			late = b
		case mine && out.Accepted && b.began < since:
			b.committed = out.Sequence
			kept = append(kept, b)
		case mine && out.Accepted:
			done = b
		case mine || out.Accepted && out.Prev == b.prev:
			void = append(void, b)
		default:
			kept = append(kept, b)
		}
	}
	p.list = kept
	p.mu.Unlock()
	if done != nil {
		done.finish(nil)
	}
	if late != nil {
		late.finishLate(out.Sequence)
	}
	for _, b := range void {
		b.finish(errNotExecuted)
	}
}

// giveUp gives up what was evaluated on a state before seq. A snapshot from the
// leader has jumped over the entries that would have told, or the node ends.
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
	p.list = kept
	p.mu.Unlock()
	for _, b := range lost {
		b.finish(errUnknown)
	}
}
