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

// memoryShare is how much of a container's memory Go's may grow to before the garbage
// collector works harder. The rest is for what is not Go's: threads, and pages of the
// log that are mapped.
const memoryShare = 0.9

// memoryPlan says what may take how much of a limited memory; 0: no limit. The rest is what
// an entry takes on its way to the disk and to the other nodes, and what waits to be
// collected: the collector must not run all the time.
type memoryPlan struct {
	data   int64 // maxmemory
	script int64 // what one script may hold
	reply  int64 // of one command
	client int64 // maxmemory-clients
	count  int   // maxclients; 0: as in Redis
}

// perClient is how much memory a container has for each client. A connection that does
// nothing takes up to 13 KB, with TLS up to 53 KB: all of them, a fifth.
const perClient = 256 << 10

// The shares were measured: see TestGrowth and docs/operations.md.
func planMemory(limit int64) memoryPlan {
	if limit <= 0 || limit == math.MaxInt64 {
		return memoryPlan{}
	}
	// In a small container, what does not depend on the data takes its part first.
	free := max(limit-fixedMemory, limit/4)
	return memoryPlan{data: min(limit*2/5, free/2), script: min(limit/8, 256<<20), client: min(limit/8, free/8),
		reply: min(max(limit/16, 9<<20), store.DefaultMaxReply), count: int(min(max(limit/perClient, 1), 10000))}
}

// fixedMemory is what a node may take beside data and clients: entries of 8 MB on their way, the end of the log, segments'
// buffers, replies to followers.
const fixedMemory = 72 << 20

// ofMachine bounds what clients hold where nothing limits the node: a stranger must not
// fill the machine. How much data there may be is for the operator to say.
func (p *memoryPlan) ofMachine(memory memlimit.Provider) {
	if p.client > 0 {
		return
	}
	if all, err := memory(); err == nil && all <= math.MaxInt64 {
		p.client = int64(all) / 8
	}
}

// limitMemory gives the garbage collector the limit of the container or service that the
// node runs in, unless GOMEMLIMIT says another one. Otherwise the heap may double before
// it is collected, and the kernel kills a process that would have had room. It returns
// what the memory is for.
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
	if set := debug.SetMemoryLimit(-1); set != l.set { // else by a node in this process
		l.planned, l.set = set, collectorLimit(set)
		debug.SetMemoryLimit(l.set)
		brake.Set(brakeLimit(set), int64(len(ballast)))
	}
	return planMemory(l.planned)
}

// memoryLimit is what Go's heap may grow to, and what the collector was told.
var memoryLimit struct {
	sync.Mutex
	planned, set int64
}

// collectorLimit is the limit that the collector is given. While it runs, memory is taken,
// and without end when it has run half of the time: a flood must find it begun, and done,
// before what there is has been used up. The ballast counts for the collector and takes
// nothing; without it the collector would run all the time in a small container.
func collectorLimit(limit int64) int64 {
	if limit == math.MaxInt64 {
		return limit
	}
	return limit - min(limit/8, 256<<20) + int64(len(ballast))
}

// brakeLimit is from where on who brings in data waits for the collector (package brake): where that begins to work all
// the time, because what is in use or thrown away by then grows until it has been once through all data.
func brakeLimit(limit int64) int64 {
	if limit == math.MaxInt64 {
		return 0
	}
	return collectorLimit(limit) - int64(len(ballast))
}

// limits reads --maxmemory and --max-entry-size.
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
