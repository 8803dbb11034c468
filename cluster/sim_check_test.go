package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// The checks of a simulated run. The operations on each key must have an order that explains their replies (linearizability). Each
// takes place between its request and its reply; if its outcome is unknown, at any time or never.

// simState is the state of a key in the model.
type simState struct {
	s   string        // value, elements or owner
	n   int           // count; of a lock the owner's token, or 0 if nobody knows it
	max int           // the largest token of the owners before
	end time.Duration // the lease ends at this time at the earliest
}

// simStep returns the states in which an operation can leave the key. It returns none if the
// operation cannot have got its reply in that state.
type simStep func(*simOp, simState) []simState

var simModels = map[simKind]simStep{
	simCounter: stepCounter, simList: stepList, simRegister: stepRegister, simLock: stepLock, simHold: stepHold, simQueue: stepList,
	simShare: stepHolders, simPermit: stepHolders,
}

// simLinear searches for an order of operations, event by event. A configuration is a possible state of the key, with the unfinished
// operations in effect.
type simLinear struct {
	step    simStep
	limit   int      // how many configurations may be looked at for one event
	open    []*simOp // unfinished operations, by slot
	free    []int
	unknown simSlots // slots of operations that may have no effect at all
	configs []simConfig
}

type simConfig struct {
	state simState
	done  simSlots // slots of operations that have taken effect
}

// simSlots is a set of slots.
type simSlots [4]uint64

func (s simSlots) has(slot int) bool { return s[slot/64]&(1<<(slot%64)) != 0 }

func (s simSlots) with(slot int) simSlots {
	s[slot/64] |= 1 << (slot % 64)
	return s
}

func (s simSlots) without(slot int) simSlots {
	s[slot/64] &^= 1 << (slot % 64)
	return s
}

// A search that has looked at so many configurations for one event gives up. simPlacedLimit is for writes whose places in the log are
// known.
const (
	simConfigLimit = 5000
	simPlacedLimit = 10 * simConfigLimit
)

// simVerdict is the result of linearizable.
type simVerdict int

const (
	simExplained simVerdict = iota
	simImpossible
	simUndecided
)

// linearizable looks for an order of operations, and returns the operation at which the search fails.
func linearizable(step simStep, ops []*simOp, limit int) (simVerdict, *simOp) {
	type event struct {
		at  time.Duration
		end bool
		op  *simOp
	}
	events := make([]event, 0, 2*len(ops))
	for _, op := range ops {
		events = append(events, event{op.call, false, op})
		if op.ret < simNever {
			events = append(events, event{op.ret, true, op})
		}
	}
	slices.SortStableFunc(events, func(a, b event) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(store.Flag(a.end).Int, store.Flag(b.end).Int))
	})
	l := simLinear{step: step, limit: limit, configs: []simConfig{{}}}
	for _, e := range events {
		if !e.end {
			slot, ok := l.begin(e.op)
			if !ok {
				return simUndecided, e.op
			}
			e.op.slot = slot
			continue
		}
		if v := l.end(e.op.slot); v != simExplained {
			return v, e.op
		}
	}
	return simExplained, nil
}

func (l *simLinear) begin(op *simOp) (slot int, ok bool) {
	if n := len(l.free); n > 0 {
		slot = l.free[n-1]
		l.free = l.free[:n-1]
		l.open[slot] = op
	} else if slot = len(l.open); slot == 64*len(simSlots{}) {
		return 0, false
	} else {
		l.open = append(l.open, op)
	}
	if op.ret == simNever {
		l.unknown = l.unknown.with(slot)
	}
	return slot, true
}

// end keeps the configurations in which the operation of a slot has taken
// effect.
func (l *simLinear) end(slot int) simVerdict {
	var kept, work []simConfig
	put := func(c simConfig) {
		list := &work
		if c.done.has(slot) {
			c.done, list = c.done.without(slot), &kept
		}
		if !l.covered(*list, c) {
			*list = append(*list, c)
		}
	}
	for _, c := range l.configs {
		put(c)
	}
	for i := 0; i < len(work); i++ {
		if len(work)+len(kept) > l.limit {
			return simUndecided
		}
		c := work[i]
		for j, op := range l.open {
			if op == nil || c.done.has(j) || l.unknown.has(j) && l.laterOf(c, j) {
				continue
			}
			for _, next := range l.step(op, c.state) {
				put(simConfig{next, c.done.with(j)})
			}
		}
	}
	l.configs = kept
	l.open[slot] = nil
	l.free = append(l.free, slot)
	if len(kept) == 0 {
		return simImpossible
	}
	return simExplained
}

// covered reports whether everything that is possible from c is also possible from a configuration in the list.
func (l *simLinear) covered(list []simConfig, c simConfig) bool {
	for i := range list {
		d := &list[i]
		if d.state.s == c.state.s && d.state.n == c.state.n && d.state.end <= c.state.end && l.leaves(d.done, c.done) {
			return true
		}
	}
	return false
}

// leaves reports whether the sets a and b are the same, except for operations of unknown outcome that only b has.
func (l *simLinear) leaves(a, b simSlots) bool {
	for i := range a {
		if a[i]&^b[i] != 0 || (a[i]^b[i])&^l.unknown[i] != 0 {
			return false
		}
	}
	return true
}

// laterOf reports whether an earlier operation of unknown outcome does the same as the operation of the slot.
func (l *simLinear) laterOf(c simConfig, slot int) bool {
	op := l.open[slot]
	for i, other := range l.open {
		if l.unknown.has(i) && !c.done.has(i) && i != slot && other.verb == op.verb && other.mark == op.mark && other.arg == op.arg &&
			(other.call < op.call || other.call == op.call && i < slot) {
			return true
		}
	}
	return false
}

func one(ok bool, st simState) []simState {
	if ok {
		return []simState{st}
	}
	return nil
}

func stepCounter(op *simOp, st simState) []simState {
	if op.verb == opIncr {
		return one(op.unseen || op.reply.Int == int64(st.n+1), simState{n: st.n + 1})
	}
	if op.reply.Kind == store.Null {
		return one(st.n == 0, st)
	}
	return one(op.reply.Str == strconv.Itoa(st.n), st)
}

// stepList is the model of lists and of queues.
func stepList(op *simOp, st simState) []simState {
	head, rest, _ := strings.Cut(st.s, " ")
	switch {
	case op.verb == opPush:
		return one(op.unseen || op.reply.Int == int64(st.n+1), simState{s: strings.TrimSpace(st.s + " " + op.arg), n: st.n + 1})
	case op.verb == opRange:
		return one(text(op.reply.Elems) == st.s, st)
	case op.unseen:
		return one(st.n > 0, simState{s: rest, n: st.n - 1})
	case op.reply.Kind == store.NullArray:
		return one(st.n == 0, st)
	}
	return one(st.n > 0 && op.reply.Elems[1].Str == head, simState{s: rest, n: st.n - 1})
}

func stepRegister(op *simOp, st simState) []simState {
	switch op.verb {
	case opSet:
		return one(true, simState{s: op.arg})
	case opGet:
		return one(op.reply.Str == st.s, st)
	case opExec:
		if !op.unseen && op.reply.Kind == store.NullArray {
			return one(true, st)
		}
		return one(op.watched.reply.Str == st.s, simState{s: op.arg})
	}
	return one(true, st) // WATCH
}

// over reports whether the lease may have ended by the time of the operation.
func (op *simOp) over(st simState) bool { return op.ret >= st.end }

// until returns the earliest time at which the lease that the operation sets may end.
func (op *simOp) until() time.Duration {
	from := op.lease
	if op.unseen {
		from = op.call
	}
	return from + time.Duration(float64(op.ttl)/(1+simDrift))
}

func stepLock(op *simOp, st simState) []simState {
	mine := simState{s: op.arg, n: st.n, max: st.max, end: op.until()}
	none := simState{max: max(st.max, st.n)}
	free := st.s == "" || op.over(st)
	without := st // the state after the operation has found that its owner does not hold the lock
	if st.s == op.arg {
		without = none
	}
	switch op.verb {
	case opAcquire:
		if op.unseen || op.reply.Kind == store.Simple {
			mine.n, mine.max = 0, none.max
			return one(free, mine)
		}
		return one(st.s != "", st)
	case opWait:
		switch {
		case op.unseen:
			mine.n, mine.max = 0, none.max
			return one(free, mine)
		case op.reply.Kind != store.Array:
			return one(st.s != "", st)
		}
		mine.n, mine.max = int(op.reply.Elems[0].Int), none.max
		return one(free && mine.n > none.max, mine)
	case opLeave:
		if op.unseen || op.reply.Kind == store.Integer {
			return one(st.s == op.arg, none)
		}
		return one(st.s != op.arg || free, without)
	case opToken:
		if op.reply.Kind == store.Integer {
			known := st
			known.n = int(op.reply.Int)
			return one(st.s == op.arg && (st.n == known.n || st.n == 0 && known.n > st.max), known)
		}
		return one(op.unseen || st.s != op.arg || free, without)
	case opRenew:
		if op.unseen || op.reply.Int == 1 {
			return one(st.s == op.arg, mine)
		}
		return one(st.s != op.arg || free, without)
	case opRelease:
		if op.unseen || op.reply.Int == 1 {
			return one(st.s == op.arg, none)
		}
		return one(st.s != op.arg || free, without)
	}
	if op.reply.Kind == store.Null {
		return one(free, none)
	}
	return one(op.reply.Str == st.s, st)
}

func stepHold(op *simOp, st simState) (next []simState) {
	end := op.until()
	mine := st.s == op.arg
	if op.verb == opHold {
		if op.reply.Kind == store.Integer && !op.unseen {
			return one(st.s != "" && !mine, st)
		}
		if st.s == "" || op.over(st) {
			next = append(next, simState{s: op.arg, n: 1, end: end})
		}
		if mine {
			next = append(next, simState{s: op.arg, n: st.n + 1, end: end})
		}
		return next
	}
	less := simState{s: op.arg, n: st.n - 1, end: end}
	switch {
	case op.unseen:
		if mine && st.n == 1 {
			return []simState{{}}
		}
		return one(mine, less)
	case op.reply.Kind == store.Null && mine:
		return one(op.over(st), simState{})
	case op.reply.Kind == store.Null:
		return one(true, st)
	case op.reply.Int == 0:
		return one(mine && st.n > 1, less)
	}
	return one(mine && st.n == 1, simState{})
}

// askAll makes a client ask for each key once more: it reads the key, or takes the lock when the lease must have ended.
func (s *simulation) askAll() {
	for i, k := range s.plan.kinds {
		for j := range 2 {
			key := s.keys[fmt.Sprintf("%c%d", k, j)]
			if key == nil {
				continue
			}
			op, wait := &simOp{key: key.name, verb: opGet}, s.between(ms, 100*ms)
			switch k {
			case simList, simQueue:
				op.verb = opRange
			case simLock, simShare, simPermit:
				op.verb, op.arg, op.ttl, wait = opAcquire, "last", time.Second, simLastLease
			case simHold:
				op.verb, op.arg, op.ttl, wait = opHold, "last", time.Second, simLastLease
			}
			c := s.clients[(i+j)%len(s.clients)]
			s.asking++
			s.after(wait, func() {
				s.asking--
				c.final = append(c.final, op)
				c.next()
			})
		}
	}
}

// simLastLease after the end of the faults, every lease must have ended.
const simLastLease = 3*time.Second*102/100 + 1500*ms

func (s *simulation) settled() bool {
	for _, c := range s.clients {
		if len(c.ops) > 0 || len(c.final) > 0 {
			return false
		}
	}
	for _, n := range s.nodes {
		if n.m == nil || len(n.m.asks) > 0 {
			return false
		}
	}
	return s.asking == 0
}

func (s *simulation) unsettled() string {
	var list []string
	for _, c := range s.clients {
		for _, op := range append(slices.Clone(c.ops), c.final...) {
			list = append(list, fmt.Sprintf("client %d on %s: %s %s since %v", c.i, c.node.id, op.verb, op.key, op.call))
		}
	}
	return strings.Join(list, ", ")
}

// finish makes the checks that are possible only at the end of a run.
func (s *simulation) finish() {
	if s.violation != "" {
		return
	}
	for _, n := range s.nodes {
		n.m.applyTo(len(s.log.entries))
		s.takeSnapshot(n)
		if left := n.n.pending.len(); left > 0 && s.violation == "" {
			s.violate("%d batches of %s are still pending", left, n.id)
		}
		if !n.n.queue.Empty() {
			s.violate("somebody still waits in the queue of %s", n.id)
		}
	}
	for _, kind := range simKinds {
		for j := range 2 {
			if k := s.keys[fmt.Sprintf("%c%d", kind, j)]; k != nil {
				s.checkKey(k)
				s.checkOrder(k)
			}
		}
	}
}

// simNever is the end time of an operation that has no known end.
const simNever = time.Duration(1<<63 - 1)

func (s *simulation) checkKey(k *simKey) {
	var ops []*simOp
	for _, op := range k.ops {
		if op.unseen && (op.verb == opGet || op.verb == opRange || op.verb == opWatch || op.verb == opToken) {
			continue // the operation tells nothing and changes nothing
		}
		if op.unseen && op.mark != "" {
			at, ok := s.executed(op)
			if !ok {
				continue
			}
			op.ret = at
		}
		ops = append(ops, op)
		if k.kind.leased() && op.arg == "last" && !op.unseen {
			if ok := op.reply.Kind == store.Simple || op.reply.Kind == store.Null && op.verb == opHold; !ok {
				s.violate("%s is not free %v after the faults", k.name, op.ret-s.calmAt)
			}
		}
	}
	verdict, op := linearizable(simModels[k.kind], ops, simConfigLimit)
	if verdict == simUndecided && k.kind.leased() {
		verdict, op = linearizable(simModels[k.kind], ops, simPlacedLimit) // unlike other keys, locks need not have the order of the log
	}
	if verdict == simUndecided && !k.kind.leased() {
		// There are too many orders to look at all of them. The order of the log is as good as any.
		if again, _ := linearizable(simModels[k.kind], s.placed(ops), simPlacedLimit); again == simExplained {
			verdict = again
		}
	}
	switch verdict {
	case simUndecided:
		s.stats.undecided++
	case simImpossible:
		s.violate("no order explains that client %d was told %s by %s %s %s, sent at %.6f, answered at %.6f",
			op.client, text([]store.Reply{op.reply}), op.verb, op.key, op.arg, op.call.Seconds(), op.ret.Seconds())
	}
}
