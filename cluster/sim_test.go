package cluster

import (
	"cmp"
	"container/heap"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A deterministic simulation of everything above Raft.
//
// Real nodes run in a testing/synctest bubble, in virtual time. The simulation provides their clocks, network, disks and clients, and
// an adversarial log behind the interface consensus.
//
// Everything that crosses the boundary of a node waits in a queue of events. One goroutine, the driver, lets one event happen, and
// waits until no goroutine of any node has anything left to do. Then it draws with the seed's random numbers when each new wish of the
// nodes is to happen. So a seed always gives the same run.
//
// Each run has some of these kinds of faults:
//
//  - The log refuses proposals, delays them, loses them, or commits them after their proposer gave up.
//  - Leaders do not know that they were replaced. Elections come in storms. Leadership is transferred.
//  - Nodes crash, and restart from the last snapshot and the log.
//  - Processes stand still, but their clocks go on. Wall clocks jump. Clocks run too fast or too slow.
//  - Links are cut, in one or both directions. Connections break. Frames arrive late.
//  - Members leave and come back, with their data or without it.
//
// These things are checked:
//
//  - Each key's history can be explained (linearizable).
//  - A lease lasts its time from the leader's reply and, after the faults, no longer than an election more.
//  - CLUSTERDOWN means that the command had no effect. INDETERMINATE has its conditions (simClient.failed).
//  - On all nodes, each entry has the same outcome and each state has the same bytes.
//  - When the faults are over, everything is answered and every lock becomes free.
//
// Not simulated are Raft itself, disks, a pause in the middle of a computation, frames that come twice, and Lua that runs for long.
//
// What Go draws by lot, such as the order of a map, must not matter in the product. If the machine keeps a goroutine waiting for 10
// ms, the seed no longer decides (disturbed). With the race detector, a few seeds in a hundred differ.
//
// make simulation SEEDS=1000000 plays as many seeds as wanted. With LOCKSTEP_SEED=n the test plays only that seed, and prints what
// happens.

// simulation is the run of one seed.
type simulation struct {
	t    testing.TB
	seed uint64
	r    *rand.Rand
	plan simPlan

	start  time.Time
	timer  *time.Timer
	events simEvents
	order  uint64
	steps  int
	limit  int // how many steps the run may have

	nodes   []*simNode
	clients []*simClient
	log     simLog
	pairs   int
	history []*simOp
	keys    map[string]*simKey
	calm    bool          // the faults are over
	calmAt  time.Duration // when the faults ended
	asking  int           // final questions that have not been put
	ending  bool          // the run is over
	closing atomic.Int32  // processes that are ending

	mu    sync.Mutex // guards what goroutines of the nodes touch
	inbox []simArrival
	wake  chan struct{}

	yielded   time.Duration
	marked    time.Duration // machine time of the last call of mark
	disturbed bool

	trace     *simTrace
	violation string
	stats     simStats
}

// simStats counts what happened in a run.
type simStats struct {
	ops, unknown, undecided, refused, faults, elections, entries, rejected int

	ordered int // pairs of clients whose order was checked
}

// simEvent is something that is going to happen.
type simEvent struct {
	at    time.Duration
	order uint64
	do    func()
}

type simEvents []simEvent

func (q simEvents) Len() int { return len(q) }
func (q simEvents) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].order < q[j].order
}
func (q simEvents) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *simEvents) Push(x any)   { *q = append(*q, x.(simEvent)) }

func (q *simEvents) Pop() any {
	old := *q
	e := old[len(old)-1]
	old[len(old)-1] = simEvent{}
	*q = old[:len(old)-1]
	return e
}

// simArrival is something that a node wants from the simulation. Arrivals of the same instant are sorted by node, kind and key.
type simArrival struct {
	node, kind, key int
	do              func()
}

const (
	arriveAsk = iota // a call of consensus
	arriveDial
	arriveBytes
	arriveReply
	arriveBatch // comes after the other kinds
)

func newSimulation(t testing.TB, seed uint64, trace *simTrace) *simulation {
	s := &simulation{t: t, seed: seed, r: rand.New(rand.NewPCG(seed, 0x51)), start: time.Now(), wake: make(chan struct{}, 1),
		keys: map[string]*simKey{}, trace: trace}
	s.timer, s.limit = newStoppedTimer(), simStepLimit
	s.log.hashes = map[int]uint64{}
	s.plan = newSimPlan(s.r)
	return s
}

func (s *simulation) now() time.Duration { return time.Since(s.start) }

// arrive queues an arrival. Any goroutine of a node may call it.
func (s *simulation) arrive(node, kind, key int, do func()) {
	s.mu.Lock()
	s.arriveLocked(node, kind, key, do)
	s.mu.Unlock()
}

func (s *simulation) arriveLocked(node, kind, key int, do func()) {
	s.inbox = append(s.inbox, simArrival{node, kind, key, do})
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *simulation) drain() {
	for {
		s.mu.Lock()
		list := s.inbox
		s.inbox = nil
		s.mu.Unlock()
		if len(list) == 0 {
			return
		}
		slices.SortStableFunc(list, func(a, b simArrival) int {
			return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.kind, b.kind), cmp.Compare(a.key, b.key))
		})
		for _, a := range list {
			a.do()
			s.settle()
		}
	}
}

// settle waits until no goroutine of any node has anything left to do.
func (s *simulation) settle() {
	s.mark()
	synctest.Wait()
	s.mark()
}

// mark notes whether the machine has taken the processor away for long, so that the seed no longer decides. mark also ends the time
// slice.
func (s *simulation) mark() {
	now := machineTime()
	s.disturbed = s.disturbed || s.marked > 0 && now-s.marked > 5*ms
	s.marked = now
	if now-s.yielded > ms {
		runtime.Gosched()
		s.yielded = now
	}
}

// machineTime returns the time of the machine, not that of the bubble.
func machineTime() time.Duration {
	var tv syscall.Timeval
	if err := syscall.Gettimeofday(&tv); err != nil {
		panic(err)
	}
	return time.Duration(tv.Nano())
}

// after makes something happen after the time d. The method in does the same after a random time.
func (s *simulation) after(d time.Duration, do func()) {
	s.order++
	heap.Push(&s.events, simEvent{s.now() + d, s.order, do})
}

func (s *simulation) in(least, most time.Duration, do func()) { s.after(s.between(least, most), do) }

// between draws a time in nanoseconds. So things fall on the same instant only if they are meant to.
func (s *simulation) between(least, most time.Duration) time.Duration {
	return least + time.Duration(s.r.Int64N(int64(most-least)+1))
}

// chance returns true in one of n calls on average.
func (s *simulation) chance(n int) bool { return s.r.IntN(n) == 0 }

// simStepLimit is far beyond the longest run.
const simStepLimit = 1_000_000

// until lets events happen until the function done returns true, or until a check has failed.
func (s *simulation) until(done func() bool) {
	for {
		s.settle()
		s.drain()
		if s.violation != "" && !s.ending || done() {
			return
		}
		if s.steps++; s.steps > s.limit {
			s.violate("the run does not end")
			return
		}
		next := s.now() + time.Second
		if len(s.events) > 0 {
			next = s.events[0].at
		}
		if d := next - s.now(); d > 0 {
			s.timer.Reset(d)
			select {
			case <-s.wake:
			case <-s.timer.C:
			}
			continue
		}
		heap.Pop(&s.events).(simEvent).do()
	}
}

// violate notes the first violation in a run.
func (s *simulation) violate(format string, args ...any) {
	if s.violation == "" {
		s.violation = fmt.Sprintf(format, args...)
		s.note("VIOLATION %s", s.violation)
	}
}

func (s *simulation) note(format string, args ...any) {
	s.trace.add(s.now(), format, args...)
}

// simTrace records what happened: always as a digest, and as text if show is set.
type simTrace struct {
	digest uint64
	lines  int
	buf    []byte
	show   func(line string) // nil: nobody reads it
}

func newSimTrace(show func(string)) *simTrace {
	return &simTrace{digest: 14695981039346656037, show: show}
}

func (t *simTrace) add(now time.Duration, format string, args ...any) {
	t.buf = fmt.Appendf(fmt.Appendf(t.buf[:0], "%d ", now), format, args...)
	for _, c := range t.buf { // FNV-1a
		t.digest = (t.digest ^ uint64(c)) * 1099511628211
	}
	t.lines++
	if t.show != nil {
		t.show(fmt.Sprintf("%12.6f %s", now.Seconds(), fmt.Sprintf(format, args...)))
	}
}

// simResult is the result of a run.
type simResult struct {
	violation string
	digest    uint64
	stats     simStats
	steps     int
	disturbed bool // the machine may have changed the order of events
}

// simulated counts runs.
var simulated atomic.Uint64

// simulate plays a seed. If the function show is not nil, it is called with each line of the trace.
func simulate(t *testing.T, seed uint64, show func(string)) (res simResult) {
	if simulated.Add(1)%32 == 0 {
		runtime.GC() // between runs, because a collection would disturb a run
	}
	bubble(t, func(t *testing.T) {
		s := newSimulation(t, seed, newSimTrace(show))
		s.run()
		res = simResult{violation: s.violation, digest: s.trace.digest, stats: s.stats, steps: s.steps, disturbed: s.disturbed}
	})
	return res
}

// run plays the life of a cluster: the start, the time with faults, the recovery, and the final checks.
func (s *simulation) run() {
	s.note("plan %+v", s.plan)
	s.startNodes()
	s.startClients()
	end := s.plan.length
	s.until(func() bool { return s.now() > end || len(s.history) > s.plan.ops })
	s.becalm()
	limit := s.now() + simCalmLimit
	s.until(func() bool { return s.settled() || s.now() > limit })
	if s.violation == "" && !s.settled() {
		s.violate("after the faults something is still without an answer: %s", s.unsettled())
	}
	s.finish()
	s.stopNodes()
	s.stats.entries = len(s.log.entries)
}

func newStoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}
