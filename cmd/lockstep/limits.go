package main

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"syscall"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/lockstep-io/lockstep/cluster/brake"
	"github.com/lockstep-io/lockstep/store"
)

// memoryShare is the part of a container's memory to which Go's memory may grow. The rest is for threads and mapped pages of the log.
const memoryShare = 0.9

// memoryPlan is the division of a limited memory. planMemory leaves some memory unassigned, for entries and garbage, and all fields 0
// without a limit.
type memoryPlan struct {
	data   int64 // maxmemory
	script int64 // the memory of one script
	reply  int64 // the reply of one command
	client int64 // maxmemory-clients; without a memory limit, ofMachine sets it
	count  int   // maxclients; 0: as in Redis
	all    int64 // the memory of the container or of the machine, whichever is less; runNode sets it
	files  int   // the process's limit of open files; 0: not known; runNode sets it
}

// perClient is how many bytes of the planned memory there must be for each client of maxclients. An idle client takes at most a fifth.
const perClient = 256 << 10

// planMemory divides limit, the bytes to which Go's memory may grow. Measurements decided the shares: see TestGrowth and
// docs/operations.md.
func planMemory(limit int64) memoryPlan {
	if limit <= 0 || limit == math.MaxInt64 {
		return memoryPlan{}
	}
	// First, fixedMemory is set aside, but at most three quarters of the limit.
	free := max(limit-fixedMemory, limit/4)
	return memoryPlan{data: min(limit*2/5, free/2), script: min(limit/8, 256<<20), client: min(limit/8, free/8),
		reply: min(max(limit/16, 9<<20), store.DefaultMaxReply), count: int(min(max(limit/perClient, 1), 10000))}
}

// fixedMemory is what a node may take besides data and clients, for entries, buffers of the log, and replies to followers.
const fixedMemory = 72 << 20

// ofMachine sets p.client for a node without a memory limit: clients may hold an eighth of the machine's memory.
func (p *memoryPlan) ofMachine(memory memlimit.Provider) {
	if p.client > 0 {
		return
	}
	if all, err := memory(); err == nil && all <= math.MaxInt64 {
		p.client = int64(all) / 8
	}
}

// fewestFiles is the least limit of open files with which a node starts. reservedFiles is how many open files clients never get.
const (
	fewestFiles   = 1024
	reservedFiles = 640
)

// openFiles returns the process's limit of open files. Go's runtime has raised it to the hard limit already.
func openFiles() (int, error) {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0, fmt.Errorf("the limit of open files is not known: %w", err)
	}
	n := int(min(uint64(l.Cur), 1<<30))
	if n < fewestFiles {
		return 0, fmt.Errorf("this process may open %d files: a node needs %d, and one more for each client; raise the limit (ulimit -n, LimitNOFILE= of systemd, --ulimit nofile of Docker)", n, fewestFiles)
	}
	return n, nil
}

// clientsWithin divides a limit of open files, so that strangers cannot keep the node from opening its log. clients is the largest
// maxclients of each server. most is how many clients of one server may be in the TLS handshake at once, and never more than
// handshakes.
//
// For a moment a server has an eighth more sessions than maxclients (Server.makeRoom). Beside the clients in the handshake, twice as
// many wait for it, half as many were cut off, and a quarter as many wait for room after it.
func (o *options) clientsWithin(files, handshakes int) (clients, most int) {
	servers, secret := 1, 0
	if o.sentinelListen != "" {
		servers++
	}
	if o.tls.sentinelListen != "" {
		servers, secret = servers+1, secret+1
	}
	if o.tls.listen != "" || o.tls.clusterListen != "" || o.httpListen != "" && o.http.tls {
		secret++ // the HTTP port's TLS handshakes count with those of the server for data
	}
	left := files - reservedFiles
	if most = handshakes; secret > 0 {
		most = min(handshakes, left/(16*secret)) // with this bound, handshakes take a quarter of the files at most
		left -= (3*most + (most+1)/2 + most/4) * secret
	}
	return left / servers * 8 / 9, most
}

// memoryOf returns the least amount of memory that one of the providers knows; 0 if none knows any.
func memoryOf(providers ...memlimit.Provider) (least int64) {
	for _, memory := range providers {
		if n, err := memory(); err == nil && n > 0 && n < math.MaxInt64 && (least == 0 || int64(n) < least) {
			least = int64(n)
		}
	}
	return least
}

// limitMemory limits Go's memory by GOMEMLIMIT or, without it, by memoryShare of the container's memory. Otherwise the heap could
// double before a collection, and the kernel would kill the process.
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
	if set := debug.SetMemoryLimit(-1); set != l.set { // otherwise an earlier call, for another node in this process, has set it
		l.planned, l.set = set, collectorLimit(set)
		debug.SetMemoryLimit(l.set)
		brake.Set(brakeLimit(set), int64(len(ballast)))
	}
	return planMemory(l.planned)
}

// fractionOfMemory checks AUTOMEMLIMIT, an environment variable that memlimit.Set reads. If memlimit.Set could not read its
// value, it would set no limit.
func fractionOfMemory() error {
	value, set := os.LookupEnv("AUTOMEMLIMIT")
	if !set || value == "off" {
		return nil
	}
	if part, err := strconv.ParseFloat(value, 64); err != nil || !(part > 0 && part <= 1) {
		return fmt.Errorf("AUTOMEMLIMIT %q: want the part of the container's memory that Go's heap may grow to, such as 0.8, or off", value)
	}
	return nil
}

// memoryLimit has two limits: planned is the one that limitMemory found and planMemory divides, and set is the one that the
// garbage collector got.
var memoryLimit struct {
	sync.Mutex
	planned, set int64
}

// collectorLimit returns the limit for the garbage collector of a process that may use limit bytes. A collection has to begin early,
// because memory grows meanwhile. The ballast counts for the collector, but takes no memory.
func collectorLimit(limit int64) int64 {
	if limit == math.MaxInt64 {
		return limit
	}
	return limit - min(limit/8, 256<<20) + int64(len(ballast))
}

// brakeLimit returns the limit for package brake, above which goroutines that bring in data wait for the collector: the collector's
// own without the ballast.
func brakeLimit(limit int64) int64 {
	if limit == math.MaxInt64 {
		return 0
	}
	return collectorLimit(limit) - int64(len(ballast))
}

// limits returns the limits of --maxmemory and --max-entry-size and, for what these flags do not set, those of plan and the defaults.
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

// limitProcessors makes a durable node's Go code use all processors but one, which the kernel needs for sockets and the disk.
// Goroutines of a durable node wake one another in a chain, and a thread that is woken for each finds no work.
func limitProcessors() {
	if os.Getenv("GOMAXPROCS") != "" {
		return
	}
	runtime.SetDefaultGOMAXPROCS() // the default respects a container's limit; an earlier call may have set less
	runtime.GOMAXPROCS(max(1, runtime.GOMAXPROCS(0)-1))
}
