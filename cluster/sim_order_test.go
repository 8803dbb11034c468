package cluster

import (
	"bytes"
	"time"

	"github.com/lockstep-io/lockstep/raftfsm"
)

// What the log says about operations: whether and when they were executed, and in which order clients got a lock.

// executed looks up in the log whether a write of unknown outcome was executed, by its mark. So the checker need not guess the
// outcome.
func (s *simulation) executed(op *simOp) (at time.Duration, ok bool) {
	if g, ok := s.granted(op); ok {
		return g.entry.at, true
	}
	return 0, false
}

// placed returns the operations. Each write that the log knows takes place at the moment of its entry.
func (s *simulation) placed(ops []*simOp) []*simOp {
	list := make([]*simOp, len(ops))
	for i, op := range ops {
		list[i] = op
		if op.mark == "" {
			continue
		}
		if at, ok := s.executed(op); ok && at <= op.ret {
			c := *op
			c.call, c.ret = at, at
			list[i] = &c
		}
	}
	return list
}

// placing returns a function that notes the place of an operation that waits for a lock.
func (s *simulation) placing(op *simOp, n *Node, b *Blocked) func() {
	return func() {
		n.blockRegistry.mu.Lock()
		place := b.place
		n.blockRegistry.mu.Unlock()
		s.mu.Lock()
		defer s.mu.Unlock()
		op.placed, op.place = s.now(), place
	}
}

// ordered reports whether the plan has nothing that may change the order of waiting clients. A node whose link is renewed joins its clients
// again, in their old places, but others may get a lock meanwhile.
func (p *simPlan) ordered() bool {
	return !p.elections && !p.storms && !p.transfers && !p.refuse && !p.slowNet && !p.stale && !p.breaks && !p.crashes && !p.pauses && !p.cuts && !p.members
}

// simGrant says which entry of the log executed an operation.
type simGrant struct {
	index int
	entry *simEntry
}

// granted looks for the entry of an operation, by its mark.
func (s *simulation) granted(op *simOp) (simGrant, bool) {
	for i := range s.log.entries {
		e := &s.log.entries[i]
		if !e.out.Accepted || e.at < op.call {
			continue
		}
		if d, err := raftfsm.DecodeEntry(e.data); err == nil && bytes.Contains(d.Writes, []byte(op.mark)) {
			return simGrant{i, e}, true
		}
	}
	return simGrant{}, false
}

// checkOrder checks that clients got a lock in the order of their places, and before those that came later, if the leader stayed the same
// meanwhile.
func (s *simulation) checkOrder(k *simKey) {
	if !k.kind.leased() || !s.plan.ordered() {
		return
	}
	got := map[*simOp]simGrant{}
	for _, op := range k.ops {
		if op.placed > 0 || op.verb == opWait || op.verb == opJoin || op.verb == opAcquire {
			if g, ok := s.granted(op); ok {
				got[op] = g
			}
		}
	}
	for _, first := range k.ops {
		if first.placed == 0 || first.unseen {
			continue
		}
		own, served := got[first]
		gone := min(first.ret, first.call+first.wait*98/100) - 200*ms // from then on it may have been leaving
		for later, g := range got {
			before := served && g.index < own.index || !served && g.entry.at < gone
			behind := later.place > first.place || later.place == 0 && later.call > first.placed
			if before && behind && g.entry.at > first.placed && g.entry.term == first.place>>placeBits {
				s.violate("client %d (place %x) got %s by entry %d before client %d (place %x), which waited since %.6f",
					later.client, later.place, k.name, g.index+1, first.client, first.place, first.placed.Seconds())
			}
			if before || served && g.index > own.index {
				s.stats.ordered++
			}
		}
	}
}
