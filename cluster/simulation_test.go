package cluster

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/clustertest"
	"github.com/lockstep-io/lockstep/store"
)

// environment returns the number in the environment variable name. If the variable is not set, it returns the parameter
// otherwise.
func environment(t *testing.T, name string, otherwise uint64) uint64 {
	v := os.Getenv(name)
	if v == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		t.Fatalf("%s=%q: want a number", name, v)
	}
	return n
}

// TestSimulation plays thousands of seeds. `make simulation SEEDS=1000000` plays more, by LOCKSTEP_SEEDS and LOCKSTEP_FROM.
// LOCKSTEP_SEED=n plays one seed and prints what happens.
func TestSimulation(t *testing.T) {
	clustertest.Slow(t)
	if os.Getenv("LOCKSTEP_SEED") != "" {
		seed := environment(t, "LOCKSTEP_SEED", 0)
		res := simulate(t, seed, func(line string) { t.Log(line) })
		t.Logf("digest %016x, %d steps, %+v", res.digest, res.steps, res.stats)
		if res.violation != "" {
			t.Errorf("seed %d: %s", seed, res.violation)
		}
		return
	}
	defer quietly()()
	count := uint64(3000)
	if underRace {
		count = 200
	}
	from := environment(t, "LOCKSTEP_FROM", 1)
	count = environment(t, "LOCKSTEP_SEEDS", count)
	step := environment(t, "LOCKSTEP_STEP", 1) // several processes share the seeds
	var sum simStats
	began, found := time.Now(), 0
	for i := uint64(0); i < count; i++ {
		seed := from + i*step
		res := simulate(t, seed, nil)
		sum.add(res.stats)
		if res.violation != "" {
			fmt.Printf("seed %d: %s\n", seed, res.violation) // printed at once, because the run may be long
			t.Errorf("seed %d: %s\n\tLOCKSTEP_SEED=%d go test ./cluster -run 'TestSimulation$' -v", seed, res.violation, seed)
			if found++; found == 20 || os.Getenv("LOCKSTEP_FIRST") != "" {
				t.Fatal("enough")
			}
		}
		if res.stats.undecided > 0 {
			fmt.Printf("seed %d: undecided\n", seed)
		}
		if i%5000 == 4999 {
			fmt.Printf("seeds %d to %d, every %d: %d seeds in %v, %d violations, %d undecided\n",
				from, seed, step, i+1, time.Since(began).Round(time.Second), found, sum.undecided)
		}
	}
	t.Logf("%d seeds: %+v", count, sum)
	if sum.undecided > 0 {
		t.Errorf("%d histories could not be decided", sum.undecided)
	}
	if count >= 500 && (sum.unknown == 0 || sum.refused == 0 || sum.rejected == 0 || sum.faults == 0 || sum.ordered == 0) {
		t.Errorf("some of what is looked for has not happened: %+v", sum)
	}
}

func (s *simStats) add(o simStats) {
	s.ops += o.ops
	s.unknown += o.unknown
	s.undecided += o.undecided
	s.refused += o.refused
	s.faults += o.faults
	s.elections += o.elections
	s.entries += o.entries
	s.rejected += o.rejected
	s.ordered += o.ordered
}

// Seeds that have found bugs of the program itself. A seed plays another run when the program changes.
func TestSimulationSeeds(t *testing.T) {
	for _, test := range []struct {
		seed  uint64
		found string
	}{
		{63515, "a lease that was answered 85 ms late had not been lengthened when another leader began right after"},
		{32326, "the same, with another order of events"},
		{44016, "a lease was lengthened by seconds for a reply that nobody waited for any more"},
		{130756, "the same, before a crash that kept it from being taken back"},
		{123345, "a grant that was answered 40 ms late ended by as much too early when another leader began right after"},
		{178796, "a grant confirmed a second time by a leader whose clock was set back was not lengthened by the delay of that confirmation"},
		{21386, "a grant told again by a leader whose clock was set back, and late, was not lengthened by the delay"},
	} {
		t.Run(fmt.Sprint(test.seed), func(t *testing.T) {
			if res := simulate(t, test.seed, nil); res.violation != "" {
				t.Errorf("%s (it found first: %s)", res.violation, test.found)
			}
		})
	}
}

// A seed always gives the same run: the same events, byte by byte.
func TestSimulationIsDeterministic(t *testing.T) {
	clustertest.Slow(t)
	if underRace {
		t.Skip("the race detector has goroutines run in random order")
	}
	defer quietly()()
	seeds := environment(t, "LOCKSTEP_TWICE", 300)
	from := environment(t, "LOCKSTEP_FROM", 1)
	compared, busy, began := 0, 0, machineTime()
	for seed := from; seed < from+seeds && (busy == 0 || machineTime()-began < simPatience); seed++ {
		first, ok := undisturbed(t, seed)
		second, again := undisturbed(t, seed)
		switch {
		case !ok || !again:
			busy++
		case first.digest != second.digest || first.violation != second.violation:
			t.Errorf("seed %d: digest %016x and %016x; %s", seed, first.digest, second.digest, parting(t, seed))
		default:
			compared++
		}
	}
	if t.Logf("%d seeds were the same run twice; for %d the machine was too busy", compared, busy); compared == 0 && !t.Failed() {
		t.Skip("the machine is too busy to let a run be what it is")
	}
}

// simPatience bounds the time for comparing seeds on a machine that is too busy for exact runs.
const simPatience = 30 * time.Second

// undisturbed plays a seed up to five times, until the machine does not disturb the run.
func undisturbed(t *testing.T, seed uint64) (res simResult, ok bool) {
	for range 5 {
		if res = simulate(t, seed, nil); !res.disturbed {
			return res, true
		}
	}
	return res, false
}

// quietly makes goroutines take turns on one processor, in a fixed order that the garbage collector would disturb.
func quietly() (restore func()) {
	procs, percent := runtime.GOMAXPROCS(1), debug.SetGCPercent(-1)
	limit := debug.SetMemoryLimit(2 << 30)
	return func() {
		runtime.GOMAXPROCS(procs)
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	}
}

// parting plays a seed until two runs of it differ, and says where they part.
func parting(t *testing.T, seed uint64) string {
	var first []string
	simulate(t, seed, func(line string) { first = append(first, line) })
	for range 200 {
		var lines []string
		simulate(t, seed, func(line string) { lines = append(lines, line) })
		for i := range min(len(lines), len(first)) {
			if lines[i] != first[i] {
				from := max(0, i-6)
				return fmt.Sprintf("they part at line %d:\n\t%s\nand\n\t%s", i,
					strings.Join(first[from:min(i+3, len(first))], "\n\t"), strings.Join(lines[i:min(i+3, len(lines))], "\n\t"))
			}
		}
	}
	return "not seen again"
}

// The checker refuses histories that no correct lock could give.
func TestLinearizable(t *testing.T) {
	ok, nothing := store.OK, store.Nil
	lock := func(verb simVerb, token string, reply store.Reply, call, ret int) *simOp {
		op := &simOp{verb: verb, arg: token, ttl: 100 * ms, reply: reply, call: time.Duration(call) * ms, ret: time.Duration(ret) * ms}
		op.lease = op.call
		return op
	}
	grant := func(owner string, token int64, call, ret int) *simOp {
		return lock(opWait, owner, store.List(store.Int(token), store.Int(100), store.One), call, ret)
	}
	incr := func(n int64, call, ret int) *simOp {
		return &simOp{verb: opIncr, reply: store.Int(n), call: time.Duration(call), ret: time.Duration(ret)}
	}
	lost := incr(0, 1, 2)
	lost.unseen, lost.ret = true, simNever
	for _, test := range []struct {
		name string
		step simStep
		ops  []*simOp
		ok   bool
	}{
		{"a lock that is taken twice", stepLock, []*simOp{lock(opAcquire, "a", ok, 0, 1), lock(opAcquire, "b", ok, 2, 90)}, false},
		{"a lock that is taken when the lease is over", stepLock, []*simOp{lock(opAcquire, "a", ok, 0, 1), lock(opAcquire, "b", ok, 2, 101)}, true},
		{"a lock that is lost", stepLock, []*simOp{lock(opAcquire, "a", ok, 0, 1), lock(opGet, "", nothing, 2, 3)}, false},
		{"a lock that is free and cannot be taken", stepLock, []*simOp{lock(opAcquire, "a", nothing, 0, 1)}, false},
		{"a release that took a lock of another", stepLock, []*simOp{lock(opAcquire, "a", ok, 0, 1), lock(opRelease, "b", store.One, 2, 3)}, false},
		{"tokens that rise", stepLock, []*simOp{grant("a", 5, 0, 1), lock(opRenew, "a", store.One, 2, 3), lock(opToken, "a", store.Int(5), 4, 5),
			lock(opRelease, "a", store.One, 6, 7), grant("b", 6, 8, 9)}, true},
		{"a token that is given twice", stepLock, []*simOp{grant("a", 5, 0, 1), lock(opRelease, "a", store.One, 2, 3), grant("b", 5, 4, 5)}, false},
		{"a token that is given again after the lease", stepLock, []*simOp{grant("a", 5, 0, 1), grant("b", 5, 2, 101)}, false},
		{"a token that a renewal changes", stepLock,
			[]*simOp{grant("a", 5, 0, 1), lock(opRenew, "a", store.One, 2, 3), lock(opToken, "a", store.Int(6), 4, 5)}, false},
		{"a count that is told twice", stepCounter, []*simOp{incr(1, 0, 1), incr(1, 2, 3)}, false},
		{"counts in another order", stepCounter, []*simOp{incr(2, 0, 5), incr(1, 1, 5)}, true},
		{"a count that nobody was told of", stepCounter, []*simOp{lost, incr(2, 3, 4)}, true},
		{"a count that nobody has made", stepCounter, []*simOp{incr(2, 3, 4)}, false},
		{"counts out of order", stepCounter, []*simOp{incr(2, 0, 1), incr(1, 2, 3)}, false},
	} {
		if got, _ := linearizable(test.step, test.ops, simConfigLimit); got == simUndecided || (got == simExplained) != test.ok {
			t.Errorf("%s: got %v, want %v", test.name, got, test.ok)
		}
	}
}
