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
	for seed := range uint64(200) {
		if res := simulate(t, seed, nil); res.violation != "" {
			t.Errorf("seed %d: %s", seed, res.violation)
		}
	}
}
