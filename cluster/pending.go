package cluster

import (
	"sync"

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
	p.list = append(p.list, b)
	p.mu.Unlock()
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

// applied resolves the batches whose fate an applied entry settles.
func (p *pendingBatches) applied(boot uint64, out raftfsm.Outcome) {
	p.mu.Lock()
	var done []*batch
	kept := p.list[:0]
	for _, b := range p.list {
		mine := out.Proposer == boot && out.Batch == b.number
		if mine || out.Accepted && out.Prev == b.prev {
			done = append(done, b)
		} else {
			kept = append(kept, b)
		}
	}
	p.list = kept
	p.mu.Unlock()
	for _, b := range done {
		if out.Accepted && out.Proposer == boot && out.Batch == b.number {
			b.finish(nil)
		} else {
			b.finish(errNotExecuted)
		}
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
