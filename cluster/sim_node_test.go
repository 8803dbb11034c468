package cluster

import (
	"bytes"
	"cmp"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/peers"
	"github.com/lockstep-io/lockstep/cluster/internal/raftnode"
	"github.com/lockstep-io/lockstep/luavm"
	"github.com/lockstep-io/lockstep/store"
)

// simNode is a machine of the simulation. It has the process, if one runs, and everything that
// outlives the process.
type simNode struct {
	s      *simulation
	i      int
	id     string
	addr   string
	clock  *simClock
	member atomic.Bool // the node is a member, by the log

	n     *Node // nil: no process
	m     *simMember
	leads chan raftnode.Leadership
	boots int
	conns []*simConn

	removed  bool          // the node may know that it is no member
	returned time.Duration // when the node last learned that it is a member again; 0: never

	paused   bool
	isolated bool // from all others
	cut      []bool
	follows  bool // an event to apply entries is on its way

	snapshot []byte
	snapAt   int
	jumped   time.Duration // when a snapshot last replaced the state
}

// out reports whether, at some time after since, the node may have believed that it was no member.
func (n *simNode) out(since time.Duration) bool {
	return n.removed || n.returned > 0 && n.returned+2*peers.Period > since
}

// back notes that the node believes that it is a member.
func (n *simNode) back() {
	if n.removed && n.member.Load() {
		n.removed, n.returned = false, n.s.now()
	}
}

// heldUp reports whether the log does not reach the node.
func (n *simNode) heldUp() bool { return n.paused || n.isolated }

// tell tells a node who leads.
func (n *simNode) tell(l raftnode.Leadership) {
	n.leads <- l
	n.s.settle()
}

// simClock is the clock of a node. It has its own rate and its own time of day.
type simClock struct {
	s    *simulation
	mu   sync.Mutex
	rate float64
	base time.Duration
	wall time.Duration // how far the wall clock is ahead of the true time of day
}

var _ TimeSource = (*simClock)(nil)

func (c *simClock) elapsed(d time.Duration) time.Duration {
	return time.Duration(float64(d) * c.rate)
}

// Monotonic implements TimeSource.
func (c *simClock) Monotonic() time.Duration { return c.base + c.elapsed(c.s.now()) }

// Busy implements TimeSource.
func (c *simClock) Busy() time.Duration { return c.Monotonic() }

// Wall implements TimeSource. The result has no monotonic part: with it, a node could learn the true time.
func (c *simClock) Wall() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.s.start.Round(0).Add(c.wall + c.s.now())
}

func (c *simClock) jump(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall += d
}

// simTable is made once, because making a Lua state takes longer than a whole run.
var simTable = sync.OnceValue(func() *store.Table {
	engine := luavm.New(luavm.Options{})
	var mu sync.Mutex
	rows := engine.Commands()
	for i := range rows {
		if run := rows[i].Run; run != nil {
			rows[i].Run = func(c *store.Ctx) store.Reply {
				mu.Lock()
				defer mu.Unlock()
				return run(c)
			}
		}
	}
	table := store.NewTable(store.Commands(), rows)
	engine.Bind(table)
	return table
})

func (s *simulation) startNodes() {
	for i := range s.plan.nodes {
		n := &simNode{s: s, i: i, id: fmt.Sprintf("n%d", i+1), addr: fmt.Sprintf("n%d:1", i+1), cut: make([]bool, s.plan.nodes)}
		n.clock = &simClock{s: s, rate: 1, base: time.Duration(s.r.Int64N(int64(time.Hour)))}
		if s.plan.clocks {
			n.clock.rate = 1 + (s.r.Float64()*2-1)*simDrift
			n.clock.wall = s.between(-time.Hour, time.Hour)
		}
		n.member.Store(true)
		s.nodes = append(s.nodes, n)
	}
	for _, n := range s.nodes {
		s.boot(n)
	}
	s.elect(s.nodes[s.r.IntN(len(s.nodes))])
	s.startFaults()
}

// simDrift bounds the part by which a clock may be too fast or too slow: a hundred times that of a quartz clock.
const simDrift = 0.02

// boot starts a process with the data that the machine has kept.
func (s *simulation) boot(n *simNode) {
	n.boots++
	n.back()
	boot := n.boots
	random := rand.New(rand.NewPCG(s.seed, uint64(n.i)<<32|uint64(boot)))
	var mu sync.Mutex
	cfg := Default()
	cfg.ID, cfg.Advertise, cfg.RunID = n.id, "client-"+n.id, fmt.Sprint(n.id, ".", boot)
	cfg.Table, cfg.Time, cfg.Logger = simTable(), n.clock, slog.New(slog.DiscardHandler)
	cfg.Fatal = func(err error) { s.violate("%s: %v", n.id, err) }
	cfg.random = func() uint64 {
		mu.Lock()
		defer mu.Unlock()
		return random.Uint64()
	}
	cfg.dial = func(addr string, proto byte, _ time.Duration) (net.Conn, error) { return s.dial(n, boot, addr, proto) }
	cfg.ready = func(q *sequencer) { s.ready(n, boot, q) }
	n.n = nodeOf(cfg)
	n.m = &simMember{diskless: diskless{n.n.fsm}, s: s, node: n}
	n.n.cons = n.m
	n.conns, n.follows, n.paused = nil, false, false
	if n.snapshot != nil {
		if err := n.n.fsm.Restore(bytes.NewReader(n.snapshot), uint64(n.snapAt)); err != nil {
			s.violate("%s cannot read its snapshot: %v", n.id, err)
			return
		}
		n.m.applied = n.snapAt
		seq, lease := n.n.fsm.Position()
		n.n.restored(seq, lease)
	}
	n.n.fsm.Replay(uint64(len(s.log.entries)))
	n.n.peers.Look()
	close(n.n.opened)
	n.leads = make(chan raftnode.Leadership, 1<<10)
	n.n.work.Add(1)
	go n.n.watch(n.leads)
	if s.plan.discovery {
		n.n.work.Go(n.n.peers.Run)
	}
	s.note("%s starts with %d entries", n.id, n.m.applied)
	s.follow(n)
}

// ready lets a sequencer take its batch when all requests of this instant have come. It puts blocking commands behind the other
// requests.
func (s *simulation) ready(n *simNode, boot int, q *sequencer) {
	done := make(chan struct{})
	s.arrive(n.i, arriveBatch, boot, func() {
		q.in.Look(func(waiting []*request) {
			slices.SortStableFunc(waiting, func(a, b *request) int {
				return cmp.Compare(store.Flag(a.blockedClient != nil).Int, store.Flag(b.blockedClient != nil).Int)
			})
		})
		close(done)
	})
	<-done
}

// crash ends a process at once.
func (s *simulation) crash(n *simNode) {
	s.note("%s dies", n.id)
	node, m := n.n, n.m
	s.mu.Lock()
	m.dead, m.leading = true, false
	s.mu.Unlock()
	for _, a := range m.asks {
		if a.kind == askPropose && a.index == 0 {
			s.log.limbo = append(s.log.limbo, a)
		}
		a.over = true
		a.result <- simAnswer{err: errUnknown}
	}
	for _, c := range n.conns {
		c.die()
	}
	node.cancel()
	n.n, n.m, n.follows = nil, nil, false
	if s.log.leader == n {
		s.log.leader = nil
	}
	for _, c := range n.conns {
		s.endStream(c.pair, c.side)
		s.pump(c.pair, c.side)
	}
	n.conns = nil
	for _, c := range s.clients {
		c.lost(n)
	}
	s.closing.Add(1)
	go func() {
		_ = node.Close() // Close of a simMember cannot fail
		s.closing.Add(-1)
	}()
	s.touch()
}

// takeSnapshot writes a snapshot to the machine's disk.
func (s *simulation) takeSnapshot(n *simNode) {
	var buf bytes.Buffer
	if err := n.n.fsm.Snapshot().Encode(&buf); err != nil {
		s.violate("%s cannot write a snapshot: %v", n.id, err)
		return
	}
	n.snapshot, n.snapAt = buf.Bytes(), n.m.applied
	s.compare(n, buf.Bytes())
}

// compare checks that nodes that have applied the same entries have the same state, byte by byte.
func (s *simulation) compare(n *simNode, state []byte) {
	h := fnv.New64a()
	h.Write(state)
	sum := h.Sum64()
	if other, ok := s.log.hashes[n.m.applied]; ok && other != sum {
		s.violate("the state of %s after %d entries is not that of another node", n.id, n.m.applied)
	}
	s.log.hashes[n.m.applied] = sum
	s.note("%s after %d entries: %016x", n.id, n.m.applied, sum)
}

// install gives a node the snapshot of another one that has applied more entries. It returns false if there is no such snapshot.
func (s *simulation) install(n *simNode) bool {
	for _, d := range s.nodes {
		if d == n || d.snapAt <= n.m.applied || d.n == nil {
			continue
		}
		s.note("%s gets the snapshot of %s: %d instead of %d", n.id, d.id, d.snapAt, n.m.applied)
		if err := n.n.fsm.Restore(bytes.NewReader(d.snapshot), uint64(d.snapAt)); err != nil {
			s.violate("%s cannot read the snapshot of %s: %v", n.id, d.id, err)
			return false
		}
		s.mu.Lock()
		n.m.applied = d.snapAt
		s.mu.Unlock()
		n.snapshot, n.snapAt, n.jumped = d.snapshot, d.snapAt, s.now()
		seq, lease := n.n.fsm.Position()
		n.n.restored(seq, lease)
		return true
	}
	return false
}

// stopNodes ends all processes, so that no goroutine is left in the bubble.
func (s *simulation) stopNodes() {
	s.ending, s.limit = true, s.steps+simStepLimit
	s.heal()
	for _, n := range s.nodes {
		if n.n != nil {
			s.crash(n)
		}
	}
	s.until(func() bool { return s.closing.Load() == 0 })
	s.timer.Stop()
}
