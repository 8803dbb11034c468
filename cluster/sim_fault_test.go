package cluster

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/raftnode"
)

// simPlan is what a seed decides. A run has only a few kinds of faults, because some bugs show only without other faults.
type simPlan struct {
	nodes, clients, ops int
	length              time.Duration

	elections, storms          bool
	refuse, slowLog, slowApply bool
	slowNet, stale, breaks     bool
	crashes, pauses, cuts      bool
	clocks, snapshots          bool
	members, transfers         bool
	discovery                  bool
	pace                       time.Duration // between faults
	think                      time.Duration // between a client's requests
	kinds                      []simKind     // what clients do
}

func newSimPlan(r *rand.Rand) simPlan {
	p := simPlan{nodes: 3, clients: 2 + r.IntN(4), ops: 30 + r.IntN(50), length: 6 * time.Second,
		think: time.Duration(5+r.IntN(60)) * ms, pace: time.Duration(30+r.IntN(300)) * ms}
	if r.IntN(8) == 0 {
		p.nodes = 5
	}
	if r.IntN(16) == 0 {
		p.ops, p.length = 300, 20*time.Second
	}
	p.kinds = []simKind{simKinds[r.IntN(len(simKinds))]}
	for _, k := range simKinds {
		if k != p.kinds[0] && r.IntN(3) == 0 {
			p.kinds = append(p.kinds, k)
		}
	}
	p.discovery = r.IntN(16) == 0
	if r.IntN(16) == 0 {
		return p // no faults at all
	}
	for _, f := range []*bool{&p.elections, &p.storms, &p.refuse, &p.slowLog, &p.slowApply, &p.slowNet, &p.stale, &p.breaks,
		&p.crashes, &p.pauses, &p.cuts, &p.clocks, &p.snapshots, &p.members, &p.transfers} {
		*f = r.IntN(3) == 0
	}
	return p
}

// simCalmLimit is the time after the last fault by which everything must be answered.
const simCalmLimit = simLastLease + 3*time.Second

func (s *simulation) startFaults() {
	s.in(ms, s.plan.pace, s.disturb)
	s.in(0, 500*ms, s.lookAfter)
}

// lookAfter elects a leader if there is no useful one and a majority is up. It runs again after a random time.
func (s *simulation) lookAfter() {
	if s.ending {
		return
	}
	if l := s.log.leader; (l == nil || l.heldUp() || !l.member.Load()) && s.quorum() {
		s.elect(s.anybody(func(n *simNode) bool { return s.electable(n) }))
	}
	least, most := 200*ms, 1200*ms
	if s.calm {
		least, most = 50*ms, 100*ms
	}
	s.in(least, most, s.lookAfter)
}

func (s *simulation) electable(n *simNode) bool { return n.n != nil && !n.heldUp() && n.member.Load() }

// quorum reports whether a majority of the members can hear each other.
func (s *simulation) quorum() bool {
	members, up := 0, 0
	for _, n := range s.nodes {
		if n.member.Load() {
			members++
			if s.electable(n) {
				up++
			}
		}
	}
	return up > members/2
}

// anybody draws one of the nodes that the parameter which accepts. If it accepts none, anybody returns nil.
func (s *simulation) anybody(which func(*simNode) bool) *simNode {
	var list []*simNode
	for _, n := range s.nodes {
		if which(n) {
			list = append(list, n)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return list[s.r.IntN(len(list))]
}

// elect makes a node the leader of a new term. The other nodes hear of it later.
func (s *simulation) elect(n *simNode) {
	if n == nil {
		return
	}
	s.stats.elections++
	s.fates()
	s.log.term++
	s.log.whole = false
	term := s.log.term
	s.note("%s leads in term %d", n.id, term)
	s.log.leader = n
	again := n.m.leading
	if again && s.chance(2) {
		s.depose(n)
		n.tell(raftnode.Leadership{})
		again = false
	}
	s.mu.Lock()
	n.m.term, n.m.leading = term, true
	s.mu.Unlock()
	n.m.told = term
	n.back()
	if again { // the node is deposed and leads again before any of its goroutines knows
		s.forsake(n)
		n.tell(raftnode.Leadership{})
	}
	n.tell(raftnode.Leadership{ID: n.id, Self: true})
	s.touch()
	for _, other := range s.nodes {
		if other != n && other.m != nil {
			s.after(s.delay(s.plan.elections || s.plan.storms), func() { s.learn(other, n, term) })
		}
	}
}

// learn tells a node who leads.
func (s *simulation) learn(n, leader *simNode, term uint64) {
	switch {
	case n.m == nil || n.m.told >= term || n.m.term > term || !n.member.Load():
		return
	case n.heldUp() || s.isCut(leader, n):
		s.in(5*ms, 50*ms, func() { s.learn(n, leader, term) })
		return
	}
	if n.m.leading {
		s.depose(n)
	}
	s.mu.Lock()
	n.m.term = term
	s.mu.Unlock()
	n.m.told = term
	n.back()
	s.note("%s learns that %s leads in term %d", n.id, leader.id, term)
	if s.chance(2) {
		n.tell(raftnode.Leadership{})
	}
	n.tell(raftnode.Leadership{ID: leader.id, Addr: leader.addr})
	s.touch()
}

// depose takes leadership away from a node. The node does not learn the fate of its proposals in flight.
func (s *simulation) depose(n *simNode) {
	s.mu.Lock()
	n.m.leading = false
	s.mu.Unlock()
	s.forsake(n)
}

// forsake makes the calls fail that a node has in flight.
func (s *simulation) forsake(n *simNode) {
	s.note("%s is deposed with %d calls in flight", n.id, len(n.m.asks))
	for _, a := range slices.Clone(n.m.asks) {
		err := errDeposed
		if a.kind == askPropose {
			err = errUnknown
		}
		n.m.reply(a, simAnswer{err: err})
	}
}

// touch updates which nodes hear from the leader.
func (s *simulation) touch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.log.leader
	for _, n := range s.nodes {
		if n.m == nil {
			continue
		}
		in := l != nil && l.n != nil && !l.heldUp() && !n.heldUp() && n.m.term == s.log.term
		if n.m.inTouch && !in {
			n.m.heard = s.now()
		}
		n.m.inTouch = in
	}
}

// simFaults are what disturb chooses from.
var simFaults = []struct {
	on func(*simPlan) bool
	do func(*simulation)
}{
	{func(p *simPlan) bool { return p.elections }, func(s *simulation) { s.elect(s.anybody(s.electable)) }},
	{func(p *simPlan) bool { return p.storms }, (*simulation).storm},
	{func(p *simPlan) bool { return p.breaks }, (*simulation).breakSome},
	{func(p *simPlan) bool { return p.crashes }, (*simulation).crashSome},
	{func(p *simPlan) bool { return p.pauses }, (*simulation).pauseSome},
	{func(p *simPlan) bool { return p.cuts }, (*simulation).cutSome},
	{func(p *simPlan) bool { return p.clocks }, (*simulation).jumpSome},
	{func(p *simPlan) bool { return p.snapshots }, (*simulation).snapshotSome},
	{func(p *simPlan) bool { return p.members }, (*simulation).changeMembers},
	{func(p *simPlan) bool { return p.transfers }, (*simulation).transferSome},
}

// disturb causes one fault, if there is a quorum, and schedules its own next call.
func (s *simulation) disturb() {
	if s.calm {
		return
	}
	var list []func(*simulation)
	for _, f := range simFaults {
		if f.on(&s.plan) {
			list = append(list, f.do)
		}
	}
	if len(list) > 0 && s.quorum() {
		s.stats.faults++
		list[s.r.IntN(len(list))](s)
	}
	s.in(ms, 2*s.plan.pace, s.disturb)
}

func (s *simulation) storm() {
	for at := time.Duration(0); !s.chance(4); at += s.between(0, 30*ms) {
		s.after(at, func() {
			if !s.calm && s.quorum() {
				s.elect(s.anybody(s.electable))
			}
		})
	}
}

func (s *simulation) up(n *simNode) bool { return n.n != nil }

func (s *simulation) breakSome() {
	n := s.anybody(s.up)
	for _, c := range n.conns {
		if s.chance(2) {
			s.breakPair(c.pair)
		}
	}
}

func (s *simulation) crashSome() {
	n := s.anybody(s.up)
	if s.log.leader != nil && s.log.leader.n != nil && s.chance(2) {
		n = s.log.leader
	}
	s.crash(n)
	boots := n.boots
	s.in(ms, 1500*ms, func() { s.reboot(n, boots) })
}

func (s *simulation) reboot(n *simNode, boots int) {
	if n.n == nil && n.boots == boots && !s.ending {
		s.boot(n)
		s.introduce(n)
	}
}

// introduce tells a node of the present leader.
func (s *simulation) introduce(n *simNode) {
	if l := s.log.leader; l != nil && l != n && n.member.Load() {
		term := s.log.term
		s.after(s.delay(true), func() { s.learn(n, l, term) })
	}
}

// pauseSome stops a process for 10 ms to 2 s. Many leases end within that time.
func (s *simulation) pauseSome() {
	n := s.anybody(s.up)
	if s.log.leader != nil && s.log.leader.n != nil && s.chance(2) {
		n = s.log.leader
	}
	n.paused = true
	s.note("%s stands still", n.id)
	s.touch()
	boots := n.boots
	s.in(10*ms, 2*time.Second, func() {
		if n.boots == boots && n.paused {
			n.paused = false
			s.note("%s goes on", n.id)
			s.touch()
		}
	})
}

// cutSome cuts off one node, or one direction between two nodes.
func (s *simulation) cutSome() {
	n := s.nodes[s.r.IntN(len(s.nodes))]
	if s.chance(2) {
		n.isolated = true
		s.note("%s is cut off", n.id)
		s.in(10*ms, 2*time.Second, func() { n.isolated = false; s.note("%s is reached again", n.id); s.touch() })
	} else {
		to := s.r.IntN(len(s.nodes))
		n.cut[to] = true
		s.note("%s does not reach n%d", n.id, to+1)
		s.in(10*ms, 2*time.Second, func() { n.cut[to] = false; s.note("%s reaches n%d", n.id, to+1) })
	}
	s.touch()
}

func (s *simulation) jumpSome() {
	n, d := s.nodes[s.r.IntN(len(s.nodes))], s.between(-time.Minute, time.Minute)
	if s.chance(3) {
		d *= 100
	}
	s.note("the wall clock of %s jumps by %v", n.id, d)
	n.clock.jump(d)
}

func (s *simulation) snapshotSome() {
	if n := s.anybody(s.up); n.m.applied > n.snapAt {
		s.takeSnapshot(n)
	}
}

// changeMembers removes a follower from the cluster, or adds a removed one again, with its old data or without any.
func (s *simulation) changeMembers() {
	if n := s.anybody(func(n *simNode) bool { return !n.member.Load() }); n != nil {
		s.admit(n)
		return
	}
	n := s.anybody(func(n *simNode) bool { return n != s.log.leader })
	members := 0
	for _, x := range s.nodes {
		if x != n && s.electable(x) {
			members++
		}
	}
	if members < 2 {
		return
	}
	s.note("%s is no member", n.id)
	n.member.Store(false)
	n.removed = true
	if n.m != nil && n.m.leading {
		s.depose(n)
		n.tell(raftnode.Leadership{})
	}
}

func (s *simulation) admit(n *simNode) {
	s.note("%s is a member", n.id)
	if s.chance(2) {
		if n.n != nil {
			s.crash(n)
		}
		n.snapshot, n.snapAt = nil, 0
	}
	n.member.Store(true)
	if n.n == nil {
		s.boot(n)
	}
	s.follow(n)
	s.introduce(n)
}

// transferSome hands leadership over. The old leader still reaches the others, and proposes nothing more before the handover.
func (s *simulation) transferSome() {
	l := s.log.leader
	if l == nil || !s.electable(l) || !l.m.leading {
		return
	}
	to := s.anybody(func(n *simNode) bool { return n != l && s.electable(n) })
	if to == nil {
		return
	}
	s.note("%s hands over to %s", l.id, to.id)
	l.n.handing.Store(true)
	s.elect(to)
	s.learn(l, to, s.log.term)
}

// heal ends every fault.
func (s *simulation) heal() {
	s.calm, s.calmAt = true, s.now()
	for _, n := range s.nodes {
		n.paused, n.isolated = false, false
		clear(n.cut)
	}
}

// becalm ends the faults: every node becomes a member and runs, and clients ask for all keys (askAll).
func (s *simulation) becalm() {
	s.note("faults are over")
	s.heal()
	for _, n := range s.nodes {
		if !n.member.Load() {
			s.admit(n)
		} else if n.n == nil {
			s.boot(n)
		}
	}
	s.touch()
	s.askAll()
	// Some nodes may not have heard of the present leader. So there is one more election, and all nodes hear of its winner.
	s.asking++
	s.in(ms, 100*ms, func() {
		s.asking--
		s.elect(s.anybody(s.electable))
	})
}
