package main

import (
	"fmt"
	"log/slog"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// memoryShare is how much of a container's memory Go's may grow to before the garbage
// collector works harder. The rest is for what is not Go's: threads, and pages of the
// log that are mapped.
const memoryShare = 0.9

// limitMemory gives the garbage collector the limit of the container or service that the
// node runs in, unless GOMEMLIMIT says another one. Otherwise the heap may double before
// it is collected, and the kernel kills a process that would have had room.
func limitMemory(limit memlimit.Provider, log *slog.Logger) {
	if got, err := memlimit.Set(memlimit.WithProvider(limit), memlimit.WithRatio(memoryShare)); err != nil {
		// A machine without cgroups limits nothing.
		log.Debug("no limit of memory is known", "error", err)
	} else {
		log.Debug("memory", "limit", fmt.Sprint(got))
	}
}
