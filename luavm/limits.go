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
	// callDepth is C Lua's LUAI_MAXCALLS.
	callDepth = 20000
	// loadTimeLimit stops the code of a library while it registers functions.
	loadTimeLimit = 500 * time.Millisecond
	// A script that has run fewer instructions than shortScript is not stopped within shortTime, whatever its user has
	// done: it is the machine that has held it up.
	shortScript = 20000
	shortTime   = 50 * time.Millisecond
	// lookEvery is how many instructions run between two looks at the limits, unless
	// they turn out to be slow, as those are that compare or join long strings: then
	// there are looks more often, down to every instruction. A script that has made
	// something large can have slow ones at any time.
	lookEvery  = 256
	lookOften  = 16
	slowLook   = 2 * time.Millisecond
	largeBytes = 1 << 20
	// instructionCost is what an instruction is taken to allocate.
	instructionCost = 32
	// commandCost is what a command is taken to allocate between two looks of its own.
	commandCost = 256 << 10
	// heapFrom is how much a script must have allocated before its effect on
	// the heap is looked at.
	heapFrom = 1 << 20
	// heapStep is how much it allocates between two looks at most, or a sixteenth of what it may hold.
	heapStep = 4 << 20
)

// setTableLimits bounds how far gopher-lua fills an array with nil when a large
// index is set; larger indexes go into the hash part. It is the library's only
// way to say so, a variable of the process.
var setTableLimits = sync.OnceFunc(func() { lua.MaxArrayIndex = 1 << 22 })

// stopped is the panic that ends a script which must stop.
type stopped struct{}

func (stopped) Error() string { return "script stopped" }

// halt stops the script. No pcall of the script survives it: every protected
// call passes it on.
func (e *Engine) halt(why string) {
	if e.inFast {
		panic(stopped{}) // gopher-lua will halt there, too, and knows the line
	}
	if e.stop == "" {
		e.stop = why
	}
	e.dirty = true
	e.budget = -1
	e.notePosition(e.running())
	for th := e.running(); th != nil; th = th.Parent {
		for f := interp.TopFrame(th); f != nil; f = f.Parent {
			f.TailCall = 0 // nobody lists them any more
		}
	}
	panic(stopped{})
}

// running is the state whose frames are on top: a coroutine or the main one.
func (e *Engine) running() *lua.LState {
	if th := e.L.G.CurrentThread; th != nil {
		return th
	}
	return e.L
}

// checkLimits looks at everything that may end a script.
func (e *Engine) checkLimits() {
	if e.stop != "" {
		e.halt(e.stop)
	}
	e.steps += int64(e.pace - e.budget)
	e.budget = e.pace
	if e.state.Load()&stateKilled != 0 {
		e.halt(msgKilled)
	}
	if e.opts.Now != nil {
		e.checkClock()
	}
	e.charge(int64(e.pace) * instructionCost)
}

// commandWorks is store.Ctx.Watch of the commands of a script. It is not called for short ones.
func (e *Engine) commandWorks() {
	e.steps += shortScript
	e.charge(commandCost)
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
	e.setPace(time.Duration(now - e.looked))
	e.looked = now
	if e.loading != nil {
		if now-start > int64(loadTimeLimit) {
			e.halt(msgLoad)
		}
		return
	}
	short := e.steps < shortScript && now-start < int64(shortTime)
	if limit := e.timeLimit.Load(); limit > 0 && e.before+now-start > limit && !short {
		e.halt(msgTime)
	}
	if e.stopAfter > 0 && now-start > e.stopAfter {
		e.halt(msgForNow)
	}
}

// setPace decides how many instructions run until the next look, by how long those since
// the last one took.
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

// work accounts for steps that a library function takes on its own.
func (e *Engine) work(steps int) {
	if e.budget -= steps; e.budget < 0 {
		e.outOfBudget()
	}
}

// outOfBudget stands apart so that work is inlined.
func (e *Engine) outOfBudget() {
	e.checkLimits()
	e.checkDepth(e.running())
}

// checkDepth refuses calls that are nested too deeply.
func (e *Engine) checkDepth(L *lua.LState) {
	f := interp.TopFrame(L)
	if f == nil || f.Idx <= callDepth {
		return
	}
	e.dirty = true
	if f.Fn.IsG {
		e.throw(L, "stack overflow")
	}
	e.throwHere(L, "stack overflow")
}

// charge accounts for bytes that are about to be allocated.
func (e *Engine) charge(n int64) {
	e.spent += n
	if n > largeBytes {
		e.pace, e.budget = min(e.pace, lookOften), min(e.budget, lookOften)
	}
	if e.spent >= e.nextHeap || n > e.opts.MemoryLimit {
		e.checkHeap(n)
	}
}

// paste puts texts together, after what that takes has been charged.
func (e *Engine) paste(a, b string) string { return auxlib.Paste(host{e}, a, b) }

// buffer is an empty text of a function.
func (e *Engine) buffer() auxlib.Buffer { return auxlib.Buffer{Memory: host{e}} }

// checkHeap compares the heap with what it was when the script began to
// allocate in earnest. What is unreachable counts until a collection proves it
// so, which is asked for only when the script would otherwise be stopped.
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
	if heap-e.heapBase+next > limit && e.spent >= limit/8 {
		runtime.GC()
		heap = heapBytes()
		e.heapBase = min(e.heapBase, heap)
		if heap-e.heapBase+next > limit {
			e.halt(msgMemory)
		}
	}
	room := limit - (heap - e.heapBase)
	e.nextHeap = e.spent + max(step, min(room/4, heapStep))
}

// bring tells what has been allocated since it was told, and what is about to be. What the script is charged for is less,
// where tables grow.
func (e *Engine) bring(next int64) {
	if e.opts.Bring == nil {
		return
	}
	had, by := readMetric("/gc/heap/allocs:bytes"), e.spent
	if e.had > 0 {
		by = max(had-e.had, 0) + next
	}
	e.had = had + next
	e.opts.Bring(int(by))
}

// heapBytes is the size of the heap's objects, dead ones not yet swept
// included.
func heapBytes() int64 { return readMetric("/memory/classes/heap/objects:bytes") }

func readMetric(name string) int64 {
	sample := []metrics.Sample{{Name: name}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}
