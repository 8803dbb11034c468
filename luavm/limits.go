package luavm

import (
	"runtime"
	"runtime/metrics"
	"sync"
	"time"

	lua "github.com/yuin/gopher-lua"

	"lockstep/luavm/internal/auxlib"
	"lockstep/luavm/internal/interp"
)

const (
	// loadTimeLimit is how long the code of a library may run to register its functions.
	loadTimeLimit = 500 * time.Millisecond
	// The time limit stops a script or library only after it has run at least shortScript instructions or at least shortTime. On a
	// slow machine, work before the script's begin (store.Ctx.ScriptTime) may have used up the limit, and that is no fault of the
	// script.
	shortScript = 20000
	shortTime   = 50 * time.Millisecond
	// lookEvery is how many instructions run between two looks at the limits (checkLimits). If these take longer than slowLook,
	// because they compare long strings for example, the looks come more often, up to one before every instruction.
	//
	// A script that may have large values can have slow instructions at any time. So at most lookOften instructions run between two
	// looks at such a script. A script may have large values for the rest of its run once it was charged for more than
	// 32*largeBytes. After it has allocated more than largeBytes at once, the engine assumes large values only for a while.
	lookEvery = 256
	lookOften = 16
	slowLook  = 2 * time.Millisecond
	// A look at the limits measures the process's allocations (seeAllocations), too, if the instructions since the last look took
	// longer than slowAlloc, and whenever the last unseenLooks-1 looks did not measure.
	slowAlloc   = 50 * time.Microsecond
	unseenLooks = 16
	largeBytes  = 1 << 20
	// passedInStep is how many bytes of a text are copied, compared, hashed or searched in the time of an instruction.
	passedInStep = 256
	// instructionCost is the number of bytes charged for an instruction.
	instructionCost = 32
	// commandCost is the number of bytes charged each time a long command calls store.Ctx.Watch.
	commandCost = 256 << 10
	// heapFrom is how many bytes a script may allocate before checkHeap first looks at the heap. Between two later looks, the
	// script may allocate at least as many bytes again.
	heapFrom = 1 << 20
	// heapStep is the maximum number of bytes that a script may allocate between two looks at the heap, unless a sixteenth of
	// MemoryLimit is more.
	heapStep = 4 << 20
)

// setTableLimits bounds how far gopher-lua fills an array with nil when a large
// index is set; larger indexes go into the hash part. gopher-lua has only a global
// variable for that.
var setTableLimits = sync.OnceFunc(func() { lua.MaxArrayIndex = 1 << 22 })

// stopped marks a panic that ends a script which must stop. It is the panic value itself or, after panicStopped, the cause of the
// error that is the panic value.
type stopped struct{}

func (stopped) Error() string { return "script stopped" }

// panicStopped panics with an error that already has a trace: gopher-lua's protected calls pass such an error on unchanged. For
// an error without a trace, each protected call would make a trace, whose cost grows with the square of the calls on the stack.
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

// seeAllocations measures how many bytes the process has allocated since the script's first look, whether the script was charged
// for them or not. The engine calls it after slow instructions, because instructions that allocate much are slow, and at least
// every unseenLooks looks. The measurement includes what other goroutines allocate. That does no harm to the short scripts of
// locks, because they end before a second look.
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

// charge counts n bytes that the script is about to allocate, and checks the heap when a check is due. If n is large, charge also
// counts the work of filling the bytes.
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

// checkHeap compares the size of the heap with its smallest size at a check of this script. It stops the script if the coming
// allocation would make the heap more than MemoryLimit larger than this smallest size. The argument next is the size of that allocation
// in bytes. The heap includes unreachable objects, so checkHeap runs a garbage collection and looks again before it stops the script.
// If the script has allocated less than an eighth of the limit, others must have filled the heap, and the script goes on.
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

// bring calls Options.Bring with the number of bytes for which Bring must find room. These are the bytes that the process has allocated
// since the last call of Bring, and the bytes that are about to be allocated (the argument next). bring subtracts the bytes that were
// about to be allocated at the last call, because Bring has found room for them already. At the script's first call, bring passes what
// the script was charged, which includes the argument next. For later calls it measures the process, because charge counts too little
// where tables grow.
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
