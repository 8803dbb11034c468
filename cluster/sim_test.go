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
// Three or five real nodes run in a testing/synctest bubble, in virtual time. The simulation provides their clocks, network,
// disks and clients, and an adversarial log that takes Raft's place behind the interface consensus. Three fields of Config
// exist for the simulation: random, dial and ready.
//
// Everything that crosses the boundary of a node waits in a queue of events. One goroutine, the driver, lets the events happen
// one by one. It does the next event, and waits until no goroutine of any node has anything left to do. Then it collects what
// the nodes want now: a proposal, a frame, a reply. The order in which it collects them does not depend on how goroutines were
// scheduled. The driver draws with the seed's random numbers when each of them is to happen, and goes on with the next event.
// So a seed always gives the same run, whatever the scheduler does.
//
// Each run has some of these kinds of faults:
//
//   - The log refuses proposals, delays them, loses them, or commits them after their proposer gave up.
//   - Leaders do not know that they were replaced. Elections come in storms. Leadership is transferred.
//   - Nodes crash, and restart from the last snapshot and the log.
//   - Processes stand still for up to two seconds: nothing crosses their boundary, but their clocks go on.
//   - Links are cut, in one or both directions. Connections break. Frames arrive up to three seconds later.
//   - Wall clocks jump. Clocks run up to 2 % too fast or too slow.
//   - Snapshots are taken, installed and compared.
//   - Members leave and come back, with their data or without it.
//
// These things are checked:
//
//   - Each key's history can be explained (linearizable) as that of a counter, list, register (with WATCH), lock, reentrant
//     lock or queue.
//   - A lease lasts its time from the leader's reply, by the true time. That holds also for a reply that is given again.
//   - After the faults, a lease is over within its time and the time of one election.
//   - CLUSTERDOWN means that the command had no effect.
//   - A client gets INDETERMINATE only after FailoverWait, or after a snapshot has replaced entries.
//   - On all nodes, each entry has the same outcome and each state has the same bytes.
//   - When the faults are over, everything is answered and every lock becomes free.
//
// If no client was told the outcome of a write, the checker looks it up in the log. Each write carries a mark that is in no
// other write. If the mark is in no accepted entry, the operation did not take place. So the search for an order has to guess
// only INCRs and pops of unknown outcome, and it does not matter which of these it takes. A history that the search cannot
// decide fails the test.
//
// These things are not simulated: Raft itself; disks (a committed entry is there); a pause in the middle of a computation;
// frames that come twice on one connection (TCP and TLS do not do that); Lua that runs for long.
//
// TestSimulationIsDeterministic plays three hundred seeds twice and compares every event. To fix the order in which goroutines
// run, the driver does only one thing at a time that wakes goroutines, and waits until the nodes are still again (settle). The
// remaining order is that of Go's run queue on one processor, without garbage collection in between (quietly). What Go draws by
// lot must not matter: in the product nothing depends on the order of a map, or on which of several ready channels select
// takes. One thing is not decided by the seed: a goroutine that the machine keeps waiting for 10 ms is moved behind the others.
// The simulation notices that (disturbed), and plays the run again if the run must be exact. The race detector runs goroutines
// in random order, so with it a few seeds in a hundred differ.
//
// To run it: go test ./cluster -run 'TestSimulation$' plays thousands of seeds, and make simulation SEEDS=1000000 plays as many
// as wanted. With LOCKSTEP_SEED=n the test plays only that seed, and prints what happens. make mutations shows that the
// simulation finds deliberate bugs.

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

// settle waits until no goroutine of any node has anything left to do. It is called after each event, so that events wake
// goroutines one after the other.
func (s *simulation) settle() {
	s.mark()
	synctest.Wait()
	s.mark()
}

// mark notes whether the machine has taken the processor away for long. If a goroutine has run for 10 ms by the machine's
// clock, Go's runtime lets other goroutines run first. Then the seed no longer decides the order. Goroutines that wake one
// another share one time slice, so mark ends the slice early by Gosched.
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
