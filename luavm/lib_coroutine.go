package luavm

import (
	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/auxlib"
	"github.com/lockstep-io/lockstep/luavm/internal/interp"
)

var coroutineLibrary = library{
	"create":  (*Engine).coCreate,
	"resume":  (*Engine).coResume,
	"running": (*Engine).coRunning,
	"status":  (*Engine).coStatus,
	"wrap":    (*Engine).coWrap,
	"yield":   (*Engine).coYield,
}

// coroutineCost is the number of bytes charged for a coroutine: its state and its
// first stacks.
const coroutineCost = 64 << 10

// openCoroutines keeps gopher-lua's own create and resume: nothing else gives
// access to the stack of another state.
func (e *Engine) openCoroutines() {
	lua.OpenCoroutine(e.L)
	theirs := e.L.Get(-1).(*lua.LTable)
	e.rawCreate = theirs.RawGetString("create").(*lua.LFunction).GFunction
	e.rawResume = theirs.RawGetString("resume").(*lua.LFunction).GFunction
	e.L.SetTop(0)
}

// coCreate makes a coroutine with the same limits as its parent.
func (e *Engine) coCreate(L *lua.LState) int {
	if fn, ok := L.Get(1).(*lua.LFunction); !ok || fn.IsG {
		e.argError(L, 1, "Lua function expected")
	}
	e.charge(coroutineCost)
	// A thread would get a context derived from its parent's, which would not call our hook. So the parent has none meanwhile.
	h := e.unwatch(L)
	e.rawCreate(L)
	e.watch(L, h)
	th := L.Get(-1).(*lua.LState)
	e.watch(th, newHook(e, th))
	return 1
}

func (e *Engine) checkThread(L *lua.LState, n int) *lua.LState {
	th, ok := L.Get(n).(*lua.LState)
	if !ok {
		e.argError(L, n, "coroutine expected")
	}
	return th
}

func (e *Engine) coStatus(L *lua.LState) int {
	L.Push(lua.LString(e.status(L, e.checkThread(L, 1))))
	return 1
}

func (e *Engine) status(L *lua.LState, th *lua.LState) string {
	switch {
	case th == L:
		return "running"
	case th.Dead:
		return "dead"
	case e.active[th]:
		return "normal"
	}
	return "suspended"
}

func (e *Engine) coRunning(L *lua.LState) int {
	if L == e.L {
		L.Push(lua.LNil)
	} else {
		L.Push(L)
	}
	return 1
}

// resume runs the coroutine at index 1, and returns how many values it has pushed. slots is how many values C Lua has below them.
func (e *Engine) resume(L *lua.LState, slots int) int {
	if L.GetTop()-1+waitingValues(L.Get(1).(*lua.LState)) > auxlib.MaxStack {
		e.throw(L, "too many arguments to resume")
	}
	n := e.proceed(L)
	if L.Get(L.GetTop()-n+1) == lua.LTrue && n+slots > auxlib.MaxStack {
		e.throw(L, "too many results to resume")
	}
	return n
}

// waitingValues returns how many values C Lua has on the stack of a waiting coroutine: its function, if it has not begun.
func waitingValues(th *lua.LState) int {
	if th.Dead || interp.TopFrame(th) != nil {
		return 0
	}
	return 1
}

// proceed does what the method resume does, without the limits on the number of arguments and results.
func (e *Engine) proceed(L *lua.LState) int {
	th := L.Get(1).(*lua.LState)
	failure := ""
	switch s := e.status(L, th); {
	case s != "suspended":
		failure = "cannot resume " + s + " coroutine"
	case e.depth >= maxNesting:
		failure = msgTooDeep
	}
	if failure != "" {
		L.Push(lua.LFalse)
		L.Push(lua.LString(failure))
		return 2
	}
	if e.active == nil {
		e.active = map[*lua.LState]bool{}
	}
	if th.Context().(*hook).returns {
		th.Dead = true
		L.Insert(lua.LTrue, 2)
		return L.GetTop() - 1
	}
	fillResults(L, th)
	depth, overflowed := e.depth, e.overflowed
	e.resuming, e.overflowed = true, notOverflowed // each coroutine has a stack of its own
	e.active[L] = true
	n := e.rawResume(L)
	delete(e.active, L)
	e.depth, e.overflowed, e.unhandled = depth, overflowed, false
	L.G.CurrentThread = L
	if e.stop != "" {
		panicStopped()
	}
	return n
}

// fillResults pushes nil for each result that yield in th wants beyond the resume's arguments: gopher-lua would leave its register empty.
func fillResults(L, th *lua.LState) {
	f := interp.TopFrame(th)
	if f == nil {
		return // th has not begun yet
	}
	if inst := f.Inst(); interp.OpOf(inst) == lua.OP_CALL {
		for n := L.GetTop() - 1; n < interp.ArgC(inst)-1; n++ {
			L.Push(lua.LNil)
		}
	}
}

func (e *Engine) coResume(L *lua.LState) int {
	e.checkThread(L, 1)
	return e.resume(L, 1)
}

func (e *Engine) coWrap(L *lua.LState) int {
	e.coCreate(L)
	th := L.Get(-1)
	L.Push(L.NewClosure(func(L *lua.LState) int {
		L.Insert(th, 1)
		n := e.resume(L, 0)
		if L.Get(-n) == lua.LTrue {
			return n - 1
		}
		failure := L.Get(-1)
		if s, ok := auxlib.ToString(failure); ok {
			failure = lua.LString(e.paste(e.where(L, 1), s))
		}
		e.throwValue(L, failure)
		return 0
	}, th)) // an upvalue of the function, because walk (kept.go) does not see what a Go closure captures
	return 1
}

// coYield suspends the running coroutine. It raises an error where gopher-lua cannot continue, such as inside a metamethod.
func (e *Engine) coYield(L *lua.LState) int {
	if L == e.L || !yieldable(interp.TopFrame(L)) {
		e.throwHere(L, "attempt to yield across metamethod/C-call boundary")
	}
	if caller := interp.TopFrame(L).Parent; caller.Parent == nil && interp.OpOf(caller.Inst()) == lua.OP_TAILCALL {
		L.Context().(*hook).returns = true
	}
	return -1
}

// yieldable reports whether all frames below f are Lua functions in a CALL or TAILCALL. After a yield, gopher-lua can continue only
// these.
func yieldable(f *interp.Frame) bool {
	for f = f.Parent; f != nil; f = f.Parent {
		if f.Fn.IsG {
			return false
		}
		if op := interp.OpOf(f.Inst()); op != lua.OP_CALL && op != lua.OP_TAILCALL {
			return false
		}
	}
	return true
}
