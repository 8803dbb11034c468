package main

import (
	"errors"
	"log/slog"
	"math"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

func TestLimitMemory(t *testing.T) {
	was := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(was) })
	none := func(err error) memlimit.Provider { return func() (uint64, error) { return 0, err } }
	for what, c := range map[string]struct {
		limit memlimit.Provider
		env   string
		want  int64
	}{
		"a container of 1000 MB": {memlimit.Limit(1e9), "", 9e8},
		"GOMEMLIMIT says other":  {memlimit.Limit(1e9), "500MB", 7e8},
		"none is set":            {none(memlimit.ErrNoLimit), "", math.MaxInt64},
		"it cannot be read":      {none(errors.New("no cgroups")), "", 7e8},
	} {
		t.Run(what, func(t *testing.T) {
			if c.env != "" {
				t.Setenv("GOMEMLIMIT", c.env)
			}
			debug.SetMemoryLimit(7e8) // as Go has read it at the start
			for range 2 {             // a second node in the process leaves it as it is
				plan := limitMemory(c.limit, slog.New(slog.DiscardHandler))
				if got := debug.SetMemoryLimit(-1); got != collectorLimit(c.want) {
					t.Errorf("the limit is %d, want %d", got, collectorLimit(c.want))
				}
				if plan != planMemory(c.want) {
					t.Errorf("the plan is %+v, want that of %d", plan, c.want)
				}
			}
		})
	}
}

func TestLimitProcessors(t *testing.T) {
	was := runtime.GOMAXPROCS(0)
	t.Cleanup(func() { runtime.GOMAXPROCS(was) })
	t.Setenv("GOMAXPROCS", "")
	runtime.SetDefaultGOMAXPROCS()
	all := runtime.GOMAXPROCS(0)
	for range 2 { // a second node in the process leaves it as it is
		limitProcessors()
		if got := runtime.GOMAXPROCS(0); got != max(1, all-1) {
			t.Errorf("%d processors of %d", got, all)
		}
	}
	t.Setenv("GOMAXPROCS", "7")
	runtime.GOMAXPROCS(7) // as Go has read it at the start
	if limitProcessors(); runtime.GOMAXPROCS(0) != 7 {
		t.Errorf("%d processors, GOMAXPROCS says 7", runtime.GOMAXPROCS(0))
	}
}
