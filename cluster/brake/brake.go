// Package brake has whoever brings in data wait for the garbage collector while memory is scarce.
//
// Go's limit of memory is soft: the collector takes half of the processors' time at most, and what is allocated
// meanwhile is had all the same. Many clients with large values, and much data for the collector to look at, so make a
// process grow until the kernel ends it, though hardly anything of that is in use. What a node takes much
// memory for is what it reads from a socket or from its log, and large replies: so these wait, for a
// cycle of the collector, and only near the limit.
package brake

import (
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
)

// step is how much is brought in between two looks at the heap.
const step = 1 << 20

// growth is how much more than after the last cycle must be in use for another one: where the data itself is beyond
// the limit, the collector can do nothing about it.
const growth = 4 << 20

var (
	limit   atomic.Int64 // 0: none
	ballast atomic.Int64
	brought atomic.Int64 // bytes since the last look
	rest    atomic.Int64 // what was in use after the last cycle
	looked  atomic.Int64 // what had been allocated at the last look

	mu sync.Mutex // held by who collects; who waits for that waits for it
)

// Set sets from how much memory in use on others wait; 0: never. unused is what counts as heap and takes no memory.
func Set(bytes, unused int64) {
	mu.Lock()
	defer mu.Unlock()
	limit.Store(bytes)
	ballast.Store(unused)
	rest.Store(0)
}

// Bring counts bytes that are about to be read or written. It returns at once, unless memory is scarce, or will be with them.
func Bring(bytes int) {
	if limit.Load() == 0 || brought.Add(int64(bytes)) < step {
		return
	}
	brought.Store(0)
	if scarce(inUse() + int64(bytes)) {
		collect(int64(bytes))
	}
}

// Look is Bring for who does not know how much has been allocated: all that the process has since the last look.
func Look() {
	if limit.Load() == 0 {
		return
	}
	samples := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(samples)
	now := int64(samples[0].Value.Uint64())
	if by := now - looked.Swap(now); by > 0 && by < now { // else it is the first one
		Bring(int(by))
	}
}

// Scarce is Bring for who may not wait: it reports whether memory is scarce. Then a cycle of the collector is on its way.
func Scarce(bytes int) bool {
	if limit.Load() == 0 || brought.Add(int64(bytes)) < step {
		return false
	}
	brought.Store(0)
	return Short(bytes)
}

// Short is Scarce for who has brought in nothing, and asks whether there is room for so much.
func Short(bytes int) bool {
	if limit.Load() == 0 {
		return false
	}
	if now := inUse(); !scarce(now+int64(bytes)) || now < rest.Load()+growth {
		return false
	}
	if mu.TryLock() { // else somebody collects
		go func() {
			defer mu.Unlock()
			collectAgain(int64(bytes))
		}()
	}
	return true
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

// collectAgain has the collector run, unless the cycle that was waited for has been enough; mu is held.
func collectAgain(bytes int64) {
	if now := inUse(); scarce(now+bytes) && now >= rest.Load()+growth {
		runtime.GC()
		rest.Store(inUse())
	}
}

// inUse is how much memory the process has, without what it can take again before it has more.
func inUse() int64 {
	samples := []metrics.Sample{
		{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(samples)
	return int64(samples[0].Value.Uint64()-samples[1].Value.Uint64()-samples[2].Value.Uint64()) - ballast.Load()
}
