package main

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"sync"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"lockstep/cluster/brake"
	"lockstep/store"
)

// memoryShare is the part of a container's memory to which Go's memory may grow before the garbage
// collector works harder. The rest is for memory that is not Go's: threads, and mapped pages of the
// log.
const memoryShare = 0.9

// memoryPlan is the division of a limited memory. If no limit is known, its fields are 0 and the defaults apply. The memory that
// the plan does not assign is for entries on their way to the disk and to the other nodes, and for garbage, so that the collector
// does not run all the time.
type memoryPlan struct {
	data   int64 // maxmemory
	script int64 // the memory of one script
	reply  int64 // the reply of one command
	client int64 // maxmemory-clients
	count  int   // maxclients; 0: as in Redis
	all    int64 // the memory of the container or of the machine
}

// perClient is how much memory a container must have for each client. An idle connection takes up to 13
// KB, with TLS up to 53 KB, so maxclients idle clients take at most about a fifth of the container's memory.
const perClient = 256 << 10

// planMemory divides a memory limit. The shares were measured: see TestGrowth and docs/operations.md.
func planMemory(limit int64) memoryPlan {
	if limit <= 0 || limit == math.MaxInt64 {
		return memoryPlan{}
	}
	// In a small container, memory that does not depend on the data gets its part first.
	free := max(limit-fixedMemory, limit/4)
	return memoryPlan{data: min(limit*2/5, free/2), script: min(limit/8, 256<<20), client: min(limit/8, free/8),
		reply: min(max(limit/16, 9<<20), store.DefaultMaxReply), count: int(min(max(limit/perClient, 1), 10000))}
}

// fixedMemory is what a node may take besides data and clients: entries of 8 MB on their way, the end
// of the log, buffers of segments, and replies to followers.
const fixedMemory = 72 << 20

// ofMachine bounds the memory that clients hold if the node has no memory limit: a stranger must not
// fill the memory of the machine. The operator decides how much data there may be.
func (p *memoryPlan) ofMachine(memory memlimit.Provider) {
	if p.client > 0 {
		return
	}
	if all, err := memory(); err == nil && all <= math.MaxInt64 {
		p.client = int64(all) / 8
	}
}

// memoryOf returns the least of several amounts of memory; 0 if none is known.
func memoryOf(providers ...memlimit.Provider) (least int64) {
	for _, memory := range providers {
		if n, err := memory(); err == nil && n > 0 && n < math.MaxInt64 && (least == 0 || int64(n) < least) {
			least = int64(n)
		}
	}
	return least
}

// limitMemory gives the garbage collector the memory limit of the container or service in which the
// node runs, unless GOMEMLIMIT sets another one. Without a limit, the heap could double before it is
// collected, and the kernel would kill a process that has enough memory. limitMemory returns the plan
// for the memory.
func limitMemory(limit memlimit.Provider, log *slog.Logger) memoryPlan {
	if got, err := memlimit.Set(memlimit.WithProvider(limit), memlimit.WithRatio(memoryShare)); err != nil {
		// A machine without cgroups limits nothing.
		log.Debug("no limit of memory is known", "error", err)
	} else {
		log.Debug("memory", "limit", fmt.Sprint(got))
	}
	memoryLimit.Lock()
	defer memoryLimit.Unlock()
	l := &memoryLimit
	if set := debug.SetMemoryLimit(-1); set != l.set { // otherwise another node in this process has set it
		l.planned, l.set = set, collectorLimit(set)
		debug.SetMemoryLimit(l.set)
		brake.Set(brakeLimit(set), int64(len(ballast)))
	}
	return planMemory(l.planned)
}

// memoryLimit is the planned limit of Go's heap, and the limit that the collector has.
var memoryLimit struct {
	sync.Mutex
	planned, set int64
}

// collectorLimit returns the limit for the collector. Memory grows while the collector runs, and it grows without bound once the
// collector takes half of the processor time. So in a flood, a collection must begin and end before all memory is used. The ballast
// counts for the collector but takes no memory; without the ballast, the collector would run all the time in a small container.
func collectorLimit(limit int64) int64 {
	if limit == math.MaxInt64 {
		return limit
	}
	return limit - min(limit/8, 256<<20) + int64(len(ballast))
}

// brakeLimit returns the heap size from which on goroutines that bring in data wait for the collector
// (package brake). At this size the collector begins to run all the time, because live data and garbage
// grow until it has been through all data once.
func brakeLimit(limit int64) int64 {
	if limit == math.MaxInt64 {
		return 0
	}
	return collectorLimit(limit) - int64(len(ballast))
}

// limits parses --maxmemory and --max-entry-size.
func (o *options) limits(plan memoryPlan) (store.Limits, error) {
	l := store.Limits{Memory: plan.data, Entry: store.DefaultMaxEntry, Reply: plan.reply}
	var faults []error
	if o.maxMemory != "" {
		n, ok := store.ParseMemory(o.maxMemory)
		if !ok {
			faults = append(faults, fmt.Errorf("--maxmemory %q: want an amount of memory, such as 100mb", o.maxMemory))
		}
		l.Memory = n
	}
	if o.maxEntry != "" {
		n, ok := store.ParseMemory(o.maxEntry)
		if !ok || n < store.MinEntry || n > store.MaxEntry {
			faults = append(faults, fmt.Errorf("--max-entry-size %q: want an amount of memory from %d to %d, such as 8mb", o.maxEntry, store.MinEntry, store.MaxEntry))
		}
		l.Entry = n
	}
	return l, errors.Join(faults...)
}

// limitProcessors leaves one processor to the kernel, which needs it for sockets and the disk. It does
// nothing if GOMAXPROCS is set. A durable node's work is a chain of goroutines that wake one another.
// At each wake-up, the runtime wakes a thread for every idle processor, to look for work that another
// thread does already: with two processors that costs more than the second processor gains.
func limitProcessors() {
	if os.Getenv("GOMAXPROCS") != "" {
		return
	}
	runtime.SetDefaultGOMAXPROCS() // a container may have fewer processors than the machine
	runtime.GOMAXPROCS(max(1, runtime.GOMAXPROCS(0)-1))
}
