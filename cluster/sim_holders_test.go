package cluster

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"time"

	"lockstep/raftfsm"
	"lockstep/store"
)

// The model of a lock with several holders (simShare, simPermit). Each grant has an owner of its own.

// leased reports whether keys of a kind are locks.
func (k simKind) leased() bool { return strings.ContainsRune("khsp", rune(k)) }

// simHolder is an owner that holds the lock.
type simHolder struct {
	owner, mode string // the mode is "" for an exclusive holder, SHARED or LIMIT
	permits     int
	end         time.Duration // its place becomes free at this time at the earliest
	lease       time.Duration // its lease ends at this time at the earliest
}

// simHolders decodes the holders in a state.
func simHolders(st simState) (list []simHolder) {
	for _, text := range strings.Fields(st.s) {
		f := strings.Split(text, "|")
		h := simHolder{owner: f[0], mode: f[1]}
		h.permits, _ = strconv.Atoi(f[2])
		end, _ := strconv.ParseInt(f[3], 10, 64)
		lease, _ := strconv.ParseInt(f[4], 10, 64)
		h.end, h.lease = time.Duration(end), time.Duration(lease)
		list = append(list, h)
	}
	return list
}

// holding returns the state with other holders.
func (st simState) holding(list []simHolder) simState {
	var words []string
	for _, h := range list {
		words = append(words, strings.Join([]string{h.owner, h.mode, strconv.Itoa(h.permits), strconv.FormatInt(int64(h.end), 10), strconv.FormatInt(int64(h.lease), 10)}, "|"))
	}
	slices.Sort(words)
	st.s = strings.Join(words, " ")
	return st
}

// stepHolders is the model; max is the largest token so far.
func stepHolders(op *simOp, st simState) []simState {
	list := simHolders(st)
	i := slices.IndexFunc(list, func(h simHolder) bool { return h.owner == op.arg })
	without := slices.Clone(list)
	if i >= 0 {
		without = slices.Delete(without, i, i+1)
	}
	switch op.verb {
	case opJoin:
		if op.unseen || op.reply.Kind == store.Array {
			return op.joins(st, list)
		}
		return one(len(list) > 0, st)
	case opAcquire: // the last one: SET NX
		if op.unseen || op.reply.Kind == store.Simple {
			return op.joins(st, list)
		}
		return one(len(list) > 0, st)
	case opLeave:
		if op.unseen || op.reply.Kind == store.Integer {
			return one(i >= 0, st.holding(without))
		}
	case opKeep:
		if op.unseen || op.reply.Int > 0 {
			if i < 0 {
				return nil
			}
			renewed := slices.Clone(list)
			delay := renewed[i].end - renewed[i].lease
			renewed[i].lease = op.until()
			renewed[i].end = renewed[i].lease + delay
			return one(true, st.holding(renewed))
		}
	}
	if i < 0 {
		return one(true, st)
	}
	return one(op.ret >= list[i].lease, st) // its place may last for its delay
}

// joins returns the state after the owner has become a holder. Those that it cannot hold the lock with must have lost their places.
func (op *simOp) joins(st simState, list []simHolder) []simState {
	mine := simHolder{owner: op.arg, permits: 1, lease: op.until()}
	mine.end = mine.lease
	form := strings.Fields(op.form)
	for i, word := range form {
		switch word {
		case "SHARED", "LIMIT":
			mine.mode = word
		case "PERMITS":
			mine.permits, _ = strconv.Atoi(form[i+1])
		case "DELAY":
			mine.end += 98 * ms // of 100, because clocks drift
		}
	}
	// A holder whose time may be over stays in the state, as it may renew its lease, unless it cannot be there beside this one.
	var beside []simHolder
	used := mine.permits
	for _, h := range list {
		fits := h.mode == mine.mode && mine.mode != ""
		if op.ret < h.end {
			if !fits {
				return nil
			}
			used += h.permits
		}
		if fits {
			beside = append(beside, h)
		}
	}
	if mine.mode == "LIMIT" && used > 3 {
		return nil
	}
	next := st.holding(append(beside, mine))
	if !op.unseen && op.reply.Kind == store.Array {
		next.max = int(op.reply.Elems[0].Int)
	}
	return one(next.max > st.max || next.max == st.max && (op.unseen || op.reply.Kind != store.Array), next)
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

// simGrant says which entry of the log gave a client a lock.
type simGrant struct {
	index int
	entry *simEntry
}

// granted looks for the entry that gave a lock to an operation.
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
