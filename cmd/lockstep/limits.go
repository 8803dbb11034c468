package main

import (
	"fmt"
	"log/slog"
	"os"
	"runtime"

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

// limitProcessors leaves one of the processors to the kernel, which needs it for sockets
// and the disk, unless GOMAXPROCS says how many there are. A durable node's work is a
// chain of goroutines that wake one another, and each time the runtime wakes a thread for
// every idle processor, to look for work that is being done already: with two processors
// that costs more than the second one brings.
func limitProcessors() {
	if os.Getenv("GOMAXPROCS") != "" {
		return
	}
	runtime.SetDefaultGOMAXPROCS() // in a container that is not the machine's
	runtime.GOMAXPROCS(max(1, runtime.GOMAXPROCS(0)-1))
}
