package cluster

import (
	"hash/crc32"
	"slices"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/raftnode"
	"github.com/lockstep-io/lockstep/raftfsm"
)

// simLog keeps only Raft's promises: entries have one order; an entry that its leader knows to be committed stays; a replaced leader
// has no successes.
type simLog struct {
	entries []simEntry
	term    uint64
	leader  *simNode // the leader of the term; nil: it is gone
	limbo   []*simAsk
	seq     uint64         // number of the last write set that compare-and-append should have accepted
	whole   bool           // the leader has applied the entries of earlier terms
	hashes  map[int]uint64 // of the state, by the number of entries applied
}

type simEntry struct {
	data []byte
	term uint64          // the term in which the entry was proposed
	out  raftfsm.Outcome // the outcome on the first node that applied the entry
	seen bool
	at   time.Duration // when that node applied it
}

type askKind int

const (
	askPropose askKind = iota
	askVerify
	askBarrier
)

// simAsk is a call of consensus that waits for its result.
type simAsk struct {
	kind     askKind
	m        *simMember
	data     []byte
	term     uint64
	eligible bool // verify: the member led when the call began
	index    int  // propose: index of the entry, once it is in the log
	over     bool
	result   chan simAnswer
}

type simAnswer struct {
	out raftfsm.Outcome
	err error
}

// simMember is the part of the log that a node has while its process runs.
type simMember struct {
	s *simulation
	diskless
	node *simNode
	asks []*simAsk // used only by the driver
	told uint64    // the term of the last leader that the node was told of

	// Guarded by s.mu.
	dead    bool
	leading bool // the node believes that it leads
	term    uint64
	applied int

	inTouch bool          // the node hears from the leader that it knows
	heard   time.Duration // if inTouch is false: when the node last heard from that leader; 0: never

	acknowledged time.Duration // when it was last told that it led, or that a proposal took effect
}

var _ consensus = (*simMember)(nil)

func (m *simMember) call(kind askKind, data []byte) simAnswer {
	a := &simAsk{kind: kind, m: m, data: data, result: make(chan simAnswer, 1)}
	m.s.mu.Lock()
	switch {
	case m.dead:
		m.s.mu.Unlock()
		return simAnswer{err: errUnknown}
	case !m.leading:
		m.s.mu.Unlock()
		return simAnswer{err: errNotExecuted}
	}
	a.term = m.term
	m.s.arriveLocked(m.node.i, arriveAsk, int(kind), func() { m.s.asked(a) })
	m.s.mu.Unlock()
	return <-a.result
}

func (m *simMember) Propose(entry []byte) (raftfsm.Outcome, error) {
	r := m.call(askPropose, entry)
	return r.out, r.err
}

func (m *simMember) Verify() error  { return m.call(askVerify, nil).err }
func (m *simMember) Barrier() error { return m.call(askBarrier, nil).err }

func (m *simMember) Transfer(string) error { return ErrNoSuchMember }
func (m *simMember) Snapshot() error       { return nil }
func (m *simMember) Close() error          { return nil }

func (m *simMember) Members() ([]raftnode.Member, error) {
	var list []raftnode.Member
	for _, n := range m.s.nodes {
		if n.member.Load() {
			list = append(list, raftnode.Member{ID: n.id, PeerAddr: n.addr, Voter: true})
		}
	}
	return list, nil
}

func (m *simMember) LastContact() (time.Duration, bool) {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	c := m.node.clock
	switch {
	case m.inTouch:
		return c.Monotonic(), true
	case m.heard == 0:
		return 0, false
	}
	return c.Monotonic() - c.elapsed(m.s.now()-m.heard), true
}

func (m *simMember) Facts() raftnode.Facts {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	return raftnode.Facts{Term: m.term, Applied: uint64(m.applied), Commit: uint64(m.applied)}
}

// reply answers a call.
func (m *simMember) reply(a *simAsk, r simAnswer) {
	a.over = true
	m.asks = slices.DeleteFunc(m.asks, func(x *simAsk) bool { return x == a })
	a.result <- r
	m.s.settle()
}

// asked begins a call.
func (s *simulation) asked(a *simAsk) {
	m := a.m
	if m.dead {
		a.result <- simAnswer{err: errUnknown}
		return
	}
	m.asks = append(m.asks, a)
	if !m.leading || a.term != m.term {
		m.reply(a, simAnswer{err: errNotExecuted})
		return
	}
	a.eligible = s.leads(m)
	switch a.kind {
	case askPropose:
		s.note("%s proposes %d bytes, %08x", m.node.id, len(a.data), crc32.ChecksumIEEE(a.data))
		if s.plan.refuse && !s.calm && s.chance(25) {
			m.reply(a, simAnswer{err: errNotExecuted})
			return
		}
		s.after(s.delay(s.plan.slowLog), func() { s.commit(a) })
	case askVerify:
		s.after(s.delay(s.plan.slowLog), func() { s.verify(a) })
	case askBarrier:
		s.after(s.delay(s.plan.slowLog), func() { s.barrier(a) })
	}
}

// delay draws how long something takes. If slow is true, that is sometimes far too long.
func (s *simulation) delay(slow bool) time.Duration {
	if slow && !s.calm {
		switch s.r.IntN(12) {
		case 0:
			return s.between(ms, 900*ms)
		case 1:
			return s.between(ms, 100*ms)
		}
	}
	return s.between(200*time.Microsecond, 3*ms)
}

// leads reports whether a node is really the leader: a deposed node may believe that it leads.
func (s *simulation) leads(m *simMember) bool {
	return s.log.leader == m.node && m.leading && m.term == s.log.term && !m.dead
}

// later puts an event off while a node is held up, or while there is no quorum. It reports whether it has put the event off.
func (s *simulation) later(n *simNode, do func()) bool {
	if !n.heldUp() && s.quorum() {
		return false
	}
	s.in(2*ms, 20*ms, do)
	return true
}

func (s *simulation) commit(a *simAsk) {
	m := a.m
	if a.over || s.later(m.node, func() { s.commit(a) }) || !s.leads(m) {
		return // a deposed leader waits until it learns that it is deposed
	}
	s.append(a)
	s.after(s.delay(s.plan.slowApply), func() { s.acknowledge(a) })
}

// append puts a proposal into the log.
func (s *simulation) append(a *simAsk) {
	s.log.entries = append(s.log.entries, simEntry{data: a.data, term: a.term})
	a.index = len(s.log.entries)
	if a.current() {
		s.log.seq++
	}
	s.note("entry %d by %s", a.index, a.m.node.id)
	for _, n := range s.nodes {
		s.follow(n)
	}
}

// current reports whether the entry was evaluated on the state at the end of
// the log.
func (a *simAsk) current() bool {
	e, err := raftfsm.DecodeEntry(a.data)
	return err == nil && e.Prev == a.m.s.log.seq
}

// acknowledge makes the proposer of an entry apply it, and tells the proposer the outcome.
func (s *simulation) acknowledge(a *simAsk) {
	m := a.m
	if a.over || s.later(m.node, func() { s.acknowledge(a) }) {
		return
	}
	m.applyTo(a.index)
	out := s.log.entries[a.index-1].out
	s.note("%s is told of entry %d: accepted %v", m.node.id, a.index, out.Accepted)
	if out.Accepted {
		s.confirm(m)
	}
	m.reply(a, simAnswer{out: out})
}

// confirm notes that a leader learns that it led.
func (s *simulation) confirm(m *simMember) {
	if s.leads(m) {
		s.mu.Lock()
		m.acknowledged = s.now()
		s.mu.Unlock()
	}
}

func (s *simulation) verify(a *simAsk) {
	m := a.m
	switch {
	case a.over, s.later(m.node, func() { s.verify(a) }):
	case a.eligible, s.leads(m):
		s.confirm(m)
		m.reply(a, simAnswer{})
	case s.chance(2):
		m.reply(a, simAnswer{err: errDeposed})
	}
}

func (s *simulation) barrier(a *simAsk) {
	m := a.m
	if a.over || s.later(m.node, func() { s.barrier(a) }) || !s.leads(m) {
		return
	}
	m.applyTo(len(s.log.entries))
	s.log.whole = true
	m.reply(a, simAnswer{})
}

// follow makes a node apply the new entries of the log some time from now.
func (s *simulation) follow(n *simNode) {
	if n.m == nil || n.follows {
		return
	}
	n.follows = true
	boot := n.boots
	s.after(s.delay(s.plan.slowApply), func() {
		if n.boots == boot {
			s.catchUp(n)
		}
	})
}

func (s *simulation) catchUp(n *simNode) {
	m, end := n.m, len(s.log.entries)
	n.follows = false
	if m == nil || m.applied >= end || !n.member.Load() {
		return
	}
	if n.heldUp() {
		s.follow(n)
		return
	}
	if m.leading && !s.leads(m) {
		// The node gets entries of another term, so it knows that it does not lead any more. It may hear a little later which
		// node leads.
		s.depose(n)
		s.mu.Lock()
		m.term = s.log.term
		s.mu.Unlock()
	}
	if s.leads(m) {
		// The leader applies its own entries in acknowledge. Entries that others have left in the log may be applied late, too.
		end = m.applied + s.r.IntN(end-m.applied+1)
		for _, a := range m.asks {
			if a.index > 0 {
				end = min(end, a.index-1)
			}
		}
	} else if s.plan.snapshots && s.chance(6) && s.install(n) {
		end = m.applied
	} else if s.chance(4) {
		end = m.applied + 1 + s.r.IntN(end-m.applied)
	}
	m.applyTo(end)
	if m.applied < len(s.log.entries) {
		s.follow(n)
	}
}

// applyTo applies entries as Raft would.
func (m *simMember) applyTo(end int) {
	s, n := m.s, m.node.n
	for m.applied < end {
		e := &s.log.entries[m.applied]
		out, err := n.fsm.Apply(uint64(m.applied+1), e.data)
		if err != nil {
			s.violate("%s cannot apply entry %d: %v", m.node.id, m.applied+1, err)
			return
		}
		out.Term = e.term
		if e.seen && e.out != out {
			s.violate("entry %d is %+v on %s and %+v on another node", m.applied+1, out, m.node.id, e.out)
			return
		}
		if !e.seen {
			e.out, e.seen, e.at = out, true, s.now()
			if !out.Accepted {
				s.stats.rejected++
			}
		}
		s.mu.Lock()
		m.applied++
		s.mu.Unlock()
		n.applied(out)
	}
}

// fates decides whether proposals whose leader is being replaced get into the log now, later, or never.
func (s *simulation) fates() {
	for _, n := range s.nodes {
		if n.m == nil {
			continue
		}
		for _, a := range n.m.asks {
			if a.kind == askPropose && a.index == 0 && !slices.Contains(s.log.limbo, a) {
				s.log.limbo = append(s.log.limbo, a)
			}
		}
	}
	s.log.limbo = slices.DeleteFunc(s.log.limbo, func(a *simAsk) bool {
		switch s.r.IntN(4) {
		case 0, 1:
			if a.index == 0 {
				s.append(a)
			}
			return true
		case 2:
			return true // never
		}
		s.in(ms, 400*ms, func() { s.commitLate(a) })
		return false
	})
}

// commitLate puts an entry of an earlier term into the log, which Raft would not do. A whole log no longer accepts such an entry.
func (s *simulation) commitLate(a *simAsk) {
	i := slices.Index(s.log.limbo, a)
	if i < 0 {
		return
	}
	s.log.limbo = slices.Delete(s.log.limbo, i, i+1)
	if a.index == 0 && !(s.log.whole && a.current()) {
		s.append(a)
	}
}
