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
// The nodes are real ones in a bubble of virtual time; clocks, network, log,
// disks and clients are the simulation's. Everything that crosses a node's
// boundary waits in a queue of events, and one goroutine, the driver, lets them
// happen one by one: it does the next event, waits until every goroutine of
// every node has nothing left to do, takes in what they want (a proposal, a
// frame, a reply) in an order that does not depend on how they were scheduled,
// decides with the seed's random numbers when that is to happen, and goes on. So a seed
// is a run, whatever the scheduler does.
//
// Three or five nodes run without Raft in a testing/synctest bubble; an adversarial log behind
// consensus takes Raft's place. Three fields of Config exist for the simulation: random, dial and
// ready.
//
// Faults, some kinds in each run: the log refuses proposals, delays them, loses them, or commits them
// after their proposer gave up; leaders do not know that they were replaced; elections come in storms;
// leadership is transferred; nodes crash and restart from the last snapshot and the log; processes
// stand still for up to two seconds (nothing crosses their boundary, clocks go on); links are cut, in
// one or both directions; connections break, and frames arrive up to three seconds later; wall clocks
// jump, clocks run 2 % too fast or slow; snapshots are taken, installed and compared; members leave
// and come back, empty or not.
//
// Checks: each key's history has an explanation as a counter, list, register (with WATCH), lock,
// reentrant lock or queue (linearizable). A lease lasts its time from the leader's reply, by the true
// time, also from a reply that is given again; after the faults it is over within its time and that of
// one election. CLUSTERDOWN means no effect. INDETERMINATE is told only after FailoverWait or a
// snapshot's jump. Each entry has the same outcome and each state the same bytes on all nodes. When
// the faults are over everything is answered and every lock comes free.
//
// What no client was told is looked up: each write carries a mark that is in no other write. If the
// mark is in no accepted entry, the operation did not take place. So the search for an order has to
// guess only INCRs and pops of unknown outcome, which are as good as each other. A history that the
// search cannot decide fails the test.
//
// Not simulated: Raft itself; disks (a committed entry is there); a pause in the middle of a
// computation; frames that come twice on one connection (TCP and TLS do not do that); Lua that runs
// for long.
//
// TestSimulationIsDeterministic plays three hundred seeds twice and compares every event. What wakes
// several goroutines is done one at a time, and the next waits until the nodes are still again
// (settle). The rest is the order of Go's run queue on one processor, without garbage collection in
// between (quietly). What Go draws by lot must not matter: in the product nothing depends on the order
// of a map, nor on which of several ready channels select takes. One thing is not decided by the seed:
// a goroutine that the machine keeps waiting for 10 ms is moved behind the others. The simulation
// notices that (disturbed) and plays a run that must be exact again. The race detector runs goroutines
// in random order, so with it a few seeds in a hundred differ.
//
// To run it: go test ./cluster -run 'TestSimulation$' plays thousands of seeds, make simulation
// SEEDS=1000000 as many as wanted, LOCKSTEP_SEED=n one of them, with what happened. make mutations
// shows that it finds deliberate bugs.

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
	limit  int // of steps

	nodes   []*simNode
	clients []*simClient
	log     simLog
	pairs   int
	history []*simOp
	keys    map[string]*simKey
	calm    bool          // faults are over …
	calmAt  time.Duration // … since then
	asking  int           // final questions that have not been put
	ending  bool          // the run is over
	closing atomic.Int32  // processes that are ending

	mu    sync.Mutex // of what goroutines of the nodes touch
	inbox []simArrival
	wake  chan struct{}

	yielded   time.Duration
	marked    time.Duration // by the machine's clock
	disturbed bool

	trace     *simTrace
	violation string
	stats     simStats
}

// simStats count what a run was like.
type simStats struct {
	ops, unknown, undecided, refused, faults, elections, entries, rejected int
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

// simArrival is something that a node wants of the world. Of those that come
// at one instant the order is that of node, kind and key.
type simArrival struct {
	node, kind, key int
	do              func()
}

const (
	arriveAsk = iota // of the log
	arriveDial
	arriveBytes
	arriveReply
	arriveBatch // after the rest
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

// arrive is called by any goroutine of a node.
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

// settle waits until every goroutine of every node has nothing left to do. Two
// of them that are woken for different reasons are woken one after the other.
func (s *simulation) settle() {
	s.mark()
	synctest.Wait()
	s.mark()
}

// mark notes if the machine has taken the processor away for long. The runtime takes it
// from a goroutine that has had it for 10 ms, by the machine's clock, and others
// of the same instant run first: then the order is not the seed's. Gosched ends the
// time that goroutines share that wake one another.
func (s *simulation) mark() {
	now := machineTime()
	s.disturbed = s.disturbed || s.marked > 0 && now-s.marked > 5*ms
	s.marked = now
	if now-s.yielded > ms {
		runtime.Gosched()
		s.yielded = now
	}
}

// machineTime is not that of the bubble.
func machineTime() time.Duration {
	var tv syscall.Timeval
	if err := syscall.Gettimeofday(&tv); err != nil {
		panic(err)
	}
	return time.Duration(tv.Nano())
}

// after has something happen later; in is after with the time left to chance.
func (s *simulation) after(d time.Duration, do func()) {
	s.order++
	heap.Push(&s.events, simEvent{s.now() + d, s.order, do})
}

func (s *simulation) in(least, most time.Duration, do func()) { s.after(s.between(least, most), do) }

// between draws a time, to the nanosecond: so what is not meant to happen at
// one instant does not.
func (s *simulation) between(least, most time.Duration) time.Duration {
	return least + time.Duration(s.r.Int64N(int64(most-least)+1))
}

// chance is true once in n times.
func (s *simulation) chance(n int) bool { return s.r.IntN(n) == 0 }

// simStepLimit is far beyond the longest run.
const simStepLimit = 1_000_000

// until lets events happen until done, or until something is wrong.
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

// violate notes the first thing that must not be.
func (s *simulation) violate(format string, args ...any) {
	if s.violation == "" {
		s.violation = fmt.Sprintf(format, args...)
		s.note("VIOLATION %s", s.violation)
	}
}

func (s *simulation) note(format string, args ...any) {
	s.trace.add(s.now(), format, args...)
}

// simTrace is what happened: its digest always, its text if somebody reads it.
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

// simResult is what is left of a run.
type simResult struct {
	violation string
	digest    uint64
	stats     simStats
	steps     int
	disturbed bool // the run may not have been the seed's
}

// simulated counts runs.
var simulated atomic.Uint64

// simulate runs a seed. show, if not nil, is given the trace, line by line.
func simulate(t *testing.T, seed uint64, show func(string)) (res simResult) {
	if simulated.Add(1)%32 == 0 {
		runtime.GC() // between runs, for it would disturb one
	}
	bubble(t, func(t *testing.T) {
		s := newSimulation(t, seed, newSimTrace(show))
		s.run()
		res = simResult{violation: s.violation, digest: s.trace.digest, stats: s.stats, steps: s.steps, disturbed: s.disturbed}
	})
	return res
}

// run is the life of a cluster: it starts, has its faults, gets well again, and
// is looked at.
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
