package main

import (
	"math"
	"strings"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/lockstep-io/lockstep/store"
)

func TestMemoryPlan(t *testing.T) {
	if p := planMemory(math.MaxInt64); p != (memoryPlan{}) {
		t.Errorf("without a limit: %+v", p)
	}
	p := planMemory(230 << 20)
	if p.data < 75<<20 || p.data > 85<<20 || p.script > 32<<20 || p.client > 20<<20 {
		t.Errorf("of 230 MiB: %+v", p)
	}
	for limit := int64(1 << 20); limit < 1<<40; limit *= 2 {
		p := planMemory(limit)
		if p.data < limit/9 || p.data > limit*2/5 || p.client < limit/33 || p.client > limit/8 {
			t.Errorf("of %d MB: %+v", limit>>20, p)
		}
	}
	if p.count != 920 || planMemory(8<<30).count != 10000 || planMemory(1).count != 1 {
		t.Errorf("%d clients of 230 MiB, %d of 8 GiB, %d of nothing", p.count, planMemory(8<<30).count, planMemory(1).count)
	}
	for flags, want := range map[options]store.Limits{
		{}:                                     {Memory: p.data, Reply: p.reply, Entry: store.DefaultMaxEntry},
		{maxMemory: "0"}:                       {Reply: p.reply, Entry: store.DefaultMaxEntry},
		{maxMemory: "10mb", maxEntry: "100kb"}: {Memory: 10 << 20, Reply: p.reply, Entry: 100 << 10},
	} {
		if got, err := flags.limits(p); err != nil || got != want {
			t.Errorf("%q %q: %+v, %v; want %+v", flags.maxMemory, flags.maxEntry, got, err, want)
		}
	}
	for _, flags := range []options{{maxMemory: "much"}, {maxMemory: "-1"}, {maxEntry: "1gb"}, {maxEntry: "1"}, {maxEntry: "x"}} {
		if _, err := flags.limits(p); err == nil || !strings.Contains(err.Error(), "want an amount of memory") {
			t.Errorf("%q %q: %v", flags.maxMemory, flags.maxEntry, err)
		}
	}
}

// TestMemoryOfTheMachine: without a memory limit of a container, clients may use an eighth of the machine's memory. Nothing
// else is limited.
func TestMemoryOfTheMachine(t *testing.T) {
	var free memoryPlan
	free.ofMachine(memlimit.Limit(16 << 30))
	if free != (memoryPlan{client: 2 << 30}) {
		t.Errorf("of 16 GiB: %+v", free)
	}
	contained := planMemory(230 << 20)
	before := contained
	contained.ofMachine(memlimit.Limit(16 << 30))
	if contained != before {
		t.Errorf("in a container: %+v, was %+v", contained, before)
	}
	var unknown memoryPlan
	unknown.ofMachine(func() (uint64, error) { return 0, memlimit.ErrNoLimit })
	if unknown != (memoryPlan{}) {
		t.Errorf("of an unknown machine: %+v", unknown)
	}
}
