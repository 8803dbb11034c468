package cluster

import (
	"os"
	"strconv"
	"testing"
)

// LOCKSTEP_SEED=n plays one seed and prints what happens.
func TestSimulation(t *testing.T) {
	if one, err := strconv.ParseUint(os.Getenv("LOCKSTEP_SEED"), 10, 64); err == nil {
		res := simulate(t, one, func(line string) { t.Log(line) })
		t.Logf("%+v", res)
		if res.violation != "" {
			t.Errorf("seed %d: %s", one, res.violation)
		}
		return
	}
	n := uint64(200)
	if more, err := strconv.ParseUint(os.Getenv("LOCKSTEP_SEEDS"), 10, 64); err == nil {
		n = more
	}
	from, _ := strconv.ParseUint(os.Getenv("LOCKSTEP_FROM"), 10, 64)
	var sum simStats
	steps := 0
	defer func() { t.Logf("%+v steps %d", sum, steps) }()
	for seed := from; seed < from+n; seed++ {
		res := simulate(t, seed, nil)
		steps += res.steps
		sum.ops += res.stats.ops
		sum.unknown += res.stats.unknown
		sum.refused += res.stats.refused
		sum.entries += res.stats.entries
		sum.rejected += res.stats.rejected
		sum.elections += res.stats.elections
		if res.violation != "" {
			t.Errorf("seed %d: %s", seed, res.violation)
		}
	}
}
