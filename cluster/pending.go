package cluster

import (
	"sync"
	"time"

	"lockstep/raftfsm"
)

// pendingBatches holds the proposals of this node whose fate is not known yet. When a leader is replaced with a
// proposal in flight, compare-and-append settles the fate: of all entries evaluated on one state only the first
// in the log takes effect, so the next accepted entry is either this batch or proof that the batch never takes
// effect.
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

// leave notes that the sequencer no longer waits for b, because it no longer leads. If b was accepted
// already, leave answers it.
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

// applied answers the batches whose fate an applied entry settles. A batch that began before the monotonic time
// since is left to the sequencer, which first checks that it still leads.
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

// giveUp gives up the batches that were evaluated on a state before seq. Either a snapshot from the
// leader has replaced the entries that would have settled their fate, or the node ends.
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
