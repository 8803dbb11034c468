package luavm

import (
	"runtime"
	"runtime/metrics"
	"sync"
	"time"

	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/auxlib"
	"github.com/lockstep-io/lockstep/luavm/internal/interp"
)

const (
	// loadTimeLimit is how long the code of a library may run to register its functions.
	loadTimeLimit = 500 * time.Millisecond
	// The time limit spares a script or library below shortScript instructions and shortTime: earlier work (store.Ctx.ScriptTime) may
	// have used the limit up.
	shortScript = 20000
	shortTime   = 50 * time.Millisecond
	// lookEvery is how many instructions run between two looks at the limits (checkLimits). If these take longer than slowLook, the looks
	// come more often.
	//
	// If a script may have large values, at most lookOften instructions run between looks: for a while after an allocation of more than
	// largeBytes, and always after charges of more than 32*largeBytes.
	lookEvery = 256
	lookOften = 16
	slowLook  = 2 * time.Millisecond
	// A look also measures the process's allocations (seeAllocations) if the last instructions took longer than slowAlloc, and otherwise
	// every unseenLooks looks.
	slowAlloc   = 50 * time.Microsecond
	unseenLooks = 16
	largeBytes  = 1 << 20
	// passedInStep is how many bytes of a text are copied, compared, hashed or searched in the time of an instruction.
	passedInStep = 256
	// instructionCost is the number of bytes charged for an instruction.
	instructionCost = 32
	// commandCost is the number of bytes charged each time a long command calls store.Ctx.Watch.
	commandCost = 256 << 10
	// heapFrom is how many bytes a script may allocate before the first look at the heap, and at least between two others.
	heapFrom = 1 << 20
	// heapStep is the maximum number of bytes that a script may allocate between two looks at the heap, unless a sixteenth of
	// MemoryLimit is more.
	heapStep = 4 << 20
)

// setTableLimits bounds how far gopher-lua fills an array for a large index. gopher-lua has only a global variable for that.
var setTableLimits = sync.OnceFunc(func() { lua.MaxArrayIndex = 1 << 22 })

// stopped marks a panic that stops a script: as its value or, after panicStopped, as the cause of an error.
type stopped struct{}

func (stopped) Error() string { return "script stopped" }

// panicStopped panics with an error that has a trace. Otherwise each protected call would make one, at a quadratic cost.
func panicStopped() {
	panic(&lua.ApiError{Type: lua.ApiErrorPanic, Object: lua.LString(stopped{}.Error()), StackTrace: "-", Cause: stopped{}})
}

// isStopped reports whether a panic value ends a script which must stop.
func isStopped(p any) bool {
	if api, ok := p.(*lua.ApiError); ok {
		p = api.Cause
	}
	_, ok := p.(stopped)
	return ok
}

// halt stops the script. No pcall of the script can catch that: every protected
// call passes the panic on.
func (e *Engine) halt(why string) {
	if e.inFast {
		panic(stopped{}) // gopher-lua runs the script again and comes to the same stop: unlike the fast path, it knows the line of the stop
	}
	if e.stop == "" {
		e.stop = why
	}
	e.dirty = true
	e.budget = -1
	e.notePosition(e.running())
	for th := e.running(); th != nil; th = th.Parent {
		for f := interp.TopFrame(th); f != nil; f = f.Parent {
			f.TailCall = 0 // a trace by gopher-lua would list every tail call
		}
	}
	panicStopped()
}

// running returns the state that runs now: a coroutine's or the main one.
func (e *Engine) running() *lua.LState {
	if th := e.L.G.CurrentThread; th != nil {
		return th
	}
	return e.L
}

// checkLimits stops a script that has been killed or exceeds a limit.
func (e *Engine) checkLimits() {
	if e.stop != "" {
		e.halt(e.stop)
	}
	e.steps += int64(e.pace - e.budget)
	e.budget = e.pace
	if e.state.Load()&stateKilled != 0 || e.loads.Load() == loadsAborted {
		e.halt(msgKilled)
	}
	if e.opts.Now != nil {
		e.checkClock()
	}
	e.charge(int64(e.pace) * instructionCost)
	e.seeAllocations()
}

// seeAllocations measures what the process has allocated since the script's first look. Other goroutines count, but short scripts end
// before a second look.
func (e *Engine) seeAllocations() {
	if e.unseen++; e.unseen < unseenLooks && !e.slow && e.seen > 0 {
		return
	}
	e.unseen = 0
	metrics.Read(e.allocs[:])
	seen := int64(e.allocs[0].Value.Uint64())
	if e.seen > 0 {
		e.measured += seen - e.seen
	}
	e.seen = seen
	if e.measured >= e.nextSeen {
		e.checkHeap(0)
	}
}

// commandWorks is store.Ctx.Watch for commands of a script. Short commands do not call it.
func (e *Engine) commandWorks() {
	e.steps += shortScript
	e.spend(commandCost)
	e.checkLimits()
}

func (e *Engine) checkClock() {
	now := int64(e.opts.Now())
	start := e.started.Load()
	if start < 0 {
		start = now
		e.started.Store(now)
		e.looked = now
	}
	took := time.Duration(now - e.looked)
	e.slow = took > slowAlloc
	e.setPace(took)
	e.looked = now
	limit := e.timeLimit.Load()
	short := e.steps < shortScript && now-start < int64(shortTime)
	over := limit > 0 && e.before+now-start > limit && !short
	if e.loading != nil {
		if over || now-start > int64(loadTimeLimit) {
			e.halt(msgLoad)
		}
		return
	}
	if over {
		e.halt(msgTime)
	}
	if e.stopAfter > 0 && now-start > e.stopAfter {
		e.halt(msgForNow)
	}
}

// setPace sets how many instructions run until the next look. The parameter took is the time of the
// instructions since the last look.
func (e *Engine) setPace(took time.Duration) {
	most := lookEvery
	if e.spent > 32*largeBytes {
		most = lookOften
	}
	switch {
	case took > slowLook:
		e.pace = max(e.pace/8, 1)
	case took < slowLook/8 && e.pace < most:
		e.pace *= 2
	}
	e.pace = min(e.pace, most)
}

// work counts the steps of a library function as instructions.
func (e *Engine) work(steps int) {
	if e.budget -= steps; e.budget < 0 {
		e.checkLimits()
	}
}

// pass counts the work of comparing, hashing or searching n bytes of a text at once. A text of at most longText bytes costs nothing.
func (e *Engine) pass(n int) {
	if n > longText {
		e.work(n / passedInStep)
	}
}

// charge counts n bytes that the script is about to allocate, and the work of filling them if n is large.
func (e *Engine) charge(n int64) {
	e.spend(n)
	if n > longText {
		e.chargeLong(n)
	}
}

func (e *Engine) spend(n int64) {
	e.spent += n
	if e.spent >= e.nextHeap || n > e.opts.MemoryLimit {
		e.checkHeap(n)
	}
}

func (e *Engine) chargeLong(n int64) {
	e.onTexts = onTexts
	if n > largeBytes {
		e.pace, e.budget = min(e.pace, lookOften), min(e.budget, lookOften)
	}
	e.pass(int(n))
}

// paste returns a+b. It charges for the new string first.
func (e *Engine) paste(a, b string) string { return auxlib.Paste(host{e}, a, b) }

// buffer returns an empty buffer in which a function builds a string.
func (e *Engine) buffer() auxlib.Buffer { return auxlib.Buffer{Memory: host{e}} }

// checkHeap stops the script if, even after a garbage collection, the next bytes would make the heap more than MemoryLimit larger than at
// its smallest check. If the script has allocated less than an eighth of the limit, others have filled the heap.
func (e *Engine) checkHeap(next int64) {
	limit := e.opts.MemoryLimit
	step := max(limit/16, heapFrom)
	if next > limit {
		e.halt(msgMemory)
	}
	e.bring(next)
	heap := heapBytes()
	if e.heapBase == 0 {
		e.heapBase = heap
	}
	e.heapBase = min(e.heapBase, heap)
	if heap-e.heapBase+next > limit && max(e.spent, e.measured) >= limit/8 {
		runtime.GC()
		heap = heapBytes()
		e.heapBase = min(e.heapBase, heap)
		if heap-e.heapBase+next > limit {
			e.halt(msgMemory)
		}
	}
	room := limit - (heap - e.heapBase)
	step = max(step, min(room/4, heapStep))
	e.nextHeap, e.nextSeen = e.spent+step, e.measured+step
}

// bring calls Options.Bring with the bytes allocated since the last call and those that come next, but not those announced last time.
// Except at the first call it measures the process, because charge counts too little.
func (e *Engine) bring(next int64) {
	if e.opts.Bring == nil {
		return
	}
	had, by := readMetric(allocsMetric), e.spent
	if e.had > 0 {
		by = max(had-e.had, 0) + next
	}
	e.had = had + next
	e.opts.Bring(int(by))
}

// heapBytes returns the size of all objects on the heap, with dead ones that are
// not swept yet.
func heapBytes() int64 { return readMetric("/memory/classes/heap/objects:bytes") }

const allocsMetric = "/gc/heap/allocs:bytes"

func readMetric(name string) int64 {
	sample := []metrics.Sample{{Name: name}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}
