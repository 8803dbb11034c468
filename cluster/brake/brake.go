// Package brake makes goroutines that read or write much data wait for the garbage collector while memory is scarce.
//
// Go's memory limit is soft: the collector takes at most half of the processors' time, and allocations go on meanwhile. Clients
// may send many large values while there is much data for the collector to mark. Then a process grows until the kernel ends it,
// although only a small part of its memory holds live data. A node needs most memory for data that it reads from a socket or from
// its log, and for large replies. So the goroutines that handle such data wait for one cycle of the collector, but only when the
// memory in use is close to Go's limit (Set).
package brake

import (
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
)

// step is how many bytes Bring and Scarce count before they look at the memory in use again.
const step = 1 << 20

// growth is by how many bytes the memory in use must grow between two cycles: if live data exceed the limit, cycles free nothing.
const growth = 4 << 20

var (
	limit   atomic.Int64 // 0: none
	ballast atomic.Int64 // bytes of the heap that have no physical memory
	brought atomic.Int64 // bytes counted since the last look at the heap
	rest    atomic.Int64 // bytes in use after the last cycle
	looked  atomic.Int64 // bytes ever allocated, at the last Look

	mu sync.Mutex // held during a cycle; goroutines that wait for the cycle wait for mu
)

// Set sets the limit of the bytes in use; 0: none. unused counts bytes of the heap without physical memory, such as a ballast.
func Set(bytes, unused int64) {
	mu.Lock()
	defer mu.Unlock()
	limit.Store(bytes)
	ballast.Store(unused)
	rest.Store(0)
}

// Bring counts bytes that the caller is about to read or write. Above the limit, it waits for the collector, unless growth
// forbids a cycle.
func Bring(bytes int) {
	if limit.Load() == 0 || brought.Add(int64(bytes)) < step {
		return
	}
	brought.Store(0)
	if scarce(inUse() + int64(bytes)) {
		collect(int64(bytes))
	}
}

// Look is Bring for callers that do not know how much they allocate. It counts at most step, because other goroutines allocate,
// too.
func Look() {
	if limit.Load() == 0 {
		return
	}
	samples := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(samples)
	now := int64(samples[0].Value.Uint64())
	if by := now - looked.Swap(now); by > 0 && by < now { // at the first Look, by == now
		Bring(int(min(by, step)))
	}
}

// lookEvery is small because applying an entry may take fifty times as much memory as the entry has bytes.
const lookEvery = 64 << 10

// Worker counts bytes for a goroutine whose work allocates many times the bytes that it works on.
type Worker struct{ bytes int }

// Did counts bytes that were worked on. It calls Look each time that lookEvery bytes have been counted.
func (w *Worker) Did(bytes int) {
	if w.bytes += bytes; w.bytes >= lookEvery {
		w.bytes = 0
		Look()
	}
}

// Scarce is Bring for callers that must not wait. Each time that step bytes have been counted, it does what Short does;
// otherwise it returns false.
func Scarce(bytes int) bool {
	if limit.Load() == 0 || brought.Add(int64(bytes)) < step {
		return false
	}
	brought.Store(0)
	return Short(bytes)
}

// Short reports whether this many more bytes would exceed the limit, and if so has a cycle run. It returns false if growth
// forbids one.
func Short(bytes int) bool {
	if limit.Load() == 0 {
		return false
	}
	if now := inUse(); !scarce(now+int64(bytes)) || now < rest.Load()+growth {
		return false
	}
	if mu.TryLock() { // else a cycle is running
		go func() {
			defer mu.Unlock()
			collectAgain(int64(bytes))
		}()
	}
	return true
}

// Crowded reports whether even the last cycle left the memory in use near the limit. Then the caller has to give up data.
func Crowded() bool {
	most := limit.Load()
	near := most - most/8
	return most > 0 && rest.Load() > near && inUse() > near
}

func scarce(now int64) bool {
	most := limit.Load()
	return most > 0 && now > most
}

func collect(bytes int64) {
	mu.Lock()
	defer mu.Unlock()
	collectAgain(bytes)
}

// collectAgain runs the collector, unless a cycle for which the caller has waited was enough. The caller holds mu.
func collectAgain(bytes int64) {
	if now := inUse(); scarce(now+bytes) && now >= rest.Load()+growth {
		runtime.GC()
		rest.Store(inUse())
	}
}

// inUse returns the memory of the process in bytes, without memory that Go has free or has returned to the system.
func inUse() int64 {
	samples := []metrics.Sample{
		{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(samples)
	return int64(samples[0].Value.Uint64()-samples[1].Value.Uint64()-samples[2].Value.Uint64()) - ballast.Load()
}
