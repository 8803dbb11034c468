package hostile

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/judge"
	"github.com/lockstep-io/lockstep/conformance/shrink"
)

const (
	// short is how long all attacks together last in `make test`, those on three nodes and those on a single node.
	short = 24 * time.Second
	// A run ends after enough violations.
	enough = 8
	// shrinkLimit bounds the search for the fewest inputs that cause one violation.
	shrinkLimit = 2 * time.Minute
	// sameFleet is how many rounds are played on one fleet.
	sameFleet = 200
)

// span returns how long the attack lasts, and its seed.
func span(t *testing.T) (time.Duration, uint64) {
	t.Helper()
	length, seed := short, uint64(time.Now().UnixNano())
	if s := os.Getenv("LOCKSTEP_HOSTILE"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil {
			t.Fatalf("LOCKSTEP_HOSTILE: %v", err)
		}
		length = d
	}
	if s := os.Getenv("LOCKSTEP_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("LOCKSTEP_SEED: %v", err)
		}
		seed = n
	}
	return length, seed
}

// choose returns the attack that "only" names, or all: in `make test`, without those that still break a rule.
func choose(t *testing.T, only string, inMakeTest bool) (chosen []attack) {
	t.Helper()
	for _, a := range attacks {
		switch {
		case only != "" && a.name != only:
		case only == "" && inMakeTest && a.open != "":
			t.Logf("not played, because it still breaks %s: %s", a.open, a.name)
		default:
			chosen = append(chosen, a)
		}
	}
	if len(chosen) == 0 {
		t.Fatalf("there is no attack %q", only)
	}
	return chosen
}

// run is a whole run of attacks on many fleets.
type run struct {
	count      tally
	rounds     map[string]int
	violations int
	strangers  []*recording // recordings of the fleet before this one
	found      map[judge.Fault]int
	counted    map[string]int
	worst      time.Duration
	fleets     int
	grouped    bool
}

// TestHostile attacks three nodes and a single node in turn.
func TestHostile(t *testing.T) {
	length, seed := span(t)
	t.Logf("seed %d, for %v", seed, length)
	r := &run{rounds: map[string]int{}, found: map[judge.Fault]int{}, counted: map[string]int{}}
	chosen := choose(t, os.Getenv("LOCKSTEP_ATTACK"), os.Getenv("LOCKSTEP_HOSTILE") == "")
	half := length / 2
	if length > 10*time.Minute {
		half = 5 * time.Minute
	}
	for end, n := time.Now().Add(length), 3; time.Now().Before(end) && r.violations < enough; n = 4 - n {
		until := time.Now().Add(min(half, time.Until(end)))
		t.Run(fmt.Sprintf("%d nodes", n), func(t *testing.T) { r.besiege(t, n, seed, chosen, until) })
		seed++
	}
	r.report(t)
}

// besiege attacks one fleet until the given time, or until an attack breaks a rule.
func (r *run) besiege(t *testing.T, n int, seed uint64, chosen []attack, until time.Time) {
	s := besiege(t, n, seed, &r.count, answerBound)
	r.fleets++
	r.grouped = s.f.ungrouped == nil
	rng := rand.New(rand.NewPCG(seed, 0))
	defer func() {
		s.innocents.stop()
		for what, n := range s.f.judge.Counted() {
			r.counted[what] += n
		}
		r.worst = max(r.worst, s.worst)
		if s.recorded != nil {
			r.strangers = s.recorded
		}
	}()
	var order []int
	for played := 0; played < sameFleet && time.Now().Before(until); played++ {
		if len(order) == 0 {
			order = rng.Perm(len(chosen))
		}
		a := chosen[order[0]]
		order = order[1:]
		inputs := a.round(seed+uint64(played)<<32, n, s.recorded, r.strangers)
		if len(inputs) == 0 {
			continue
		}
		r.rounds[a.name]++
		began := time.Now()
		found := s.round(inputs)
		if testing.Verbose() {
			t.Logf("%s: %d inputs, %.1f s", a.name, len(inputs), time.Since(began).Seconds())
		}
		if len(found) == 0 {
			continue
		}
		r.violations++
		for what, n := range found {
			r.found[what] += n
			t.Errorf("seed %d, round %d, %s: %d %s", seed, played, a.name, n, what)
		}
		s.innocents.stop()
		if found[unlikeRedis] < 1 {
			s.stacks(t)
		}
		r.shorten(t, n, seed, s.recorded, inputs, found)
		return
	}
}

// shorten looks for the fewest inputs that break the same rules again, on new fleets, and prints these inputs.
func (r *run) shorten(t *testing.T, n int, seed uint64, recorded []*recording, inputs []input, found map[judge.Fault]int) {
	deadline := time.Now().Add(shrinkLimit)
	var unused tally
	fails := func(fewer []input) (failed bool, err error) {
		if time.Now().After(deadline) {
			return false, fmt.Errorf("not looked further after %v", shrinkLimit)
		}
		t.Run("shrink", func(t *testing.T) {
			s := besiege(quiet{t}, n, seed, &unused, answerBound)
			s.settle = 2 * time.Second
			for what := range s.round(fewer) {
				failed = failed || found[what] > 0
			}
			s.innocents.stop()
		})
		return failed, nil
	}
	if again, err := fails(inputs); !again {
		t.Logf("the round alone does not break new nodes (%v); its inputs:\n%s", err, told(inputs))
		return
	}
	fewest, err := shrink.List(inputs, fails)
	for i, in := range fewest {
		if err == nil {
			fewest[i].pieces, err = shrink.List(in.pieces, func(p [][]byte) (bool, error) {
				fewer := slices.Clone(fewest)
				fewer[i].pieces = p
				return fails(fewer)
			})
		}
	}
	t.Logf("the fewest inputs that break it (%v):\n%s", err, told(fewest))
}

// quiet is a test that does not print the faults that its judge finds.
type quiet struct{ testing.TB }

func (quiet) Logf(string, ...any) {}

func told(inputs []input) (text string) {
	for i, in := range inputs {
		if i == 12 {
			return text + fmt.Sprintf("and %d inputs more\n", len(inputs)-i)
		}
		text += in.String() + "\n"
	}
	return text
}

// report prints the counts.
func (r *run) report(t *testing.T) {
	t.Helper()
	var b strings.Builder
	c := &r.count
	fmt.Fprintf(&b, "%d fleets, %d rounds; memory bounded by control groups: %v\n", r.fleets, total(r.rounds), r.grouped)
	fmt.Fprintf(&b, "attackers: %d inputs, %d connections (%d refused), %d frames, of these %d scripts (%d commands compared with redis-server, %d of them again, alone; of these %d are much work for Redis, too, and a limit stopped them; %d get either reply from Redis); %d MiB sent, %d MiB received\n",
		c.inputs.Load(), c.connections.Load(), c.refused.Load(), c.frames.Load(), c.scripts.Load(), c.compared.Load(), c.again.Load(), c.much.Load(), c.unsteady.Load(), c.sent.Load()>>20, c.received.Load()>>20)
	for _, name := range slices.Sorted(maps.Keys(r.rounds)) {
		fmt.Fprintf(&b, "  %8d rounds of %s\n", r.rounds[name], name)
	}
	fmt.Fprintf(&b, "innocents: %d clients a fleet, longest wait %v\n", innocentClients, r.worst.Round(time.Millisecond))
	for _, what := range slices.Sorted(maps.Keys(r.counted)) {
		fmt.Fprintf(&b, "  %8d %s\n", r.counted[what], what)
	}
	fmt.Fprintf(&b, "violations: %d\n", r.violations)
	for _, what := range faults {
		fmt.Fprintf(&b, "  %8d %s\n", r.found[what], what)
	}
	t.Log("\n" + b.String())
	for _, what := range []string{"commands of innocents", "locks granted", "locks renewed", "leases read before their end"} {
		if r.counted[what] == 0 {
			t.Errorf("%s: none, so nothing was judged", what)
		}
	}
}

func total(counts map[string]int) (n int) {
	for _, k := range counts {
		n += k
	}
	return n
}
