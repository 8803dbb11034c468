package luavm

import (
	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/interp"
)

// Calls of Lua from Go and of metamethods nest on Go's stack, which must not overflow. C Lua counts such calls (nCcalls), up to 200. Here
// each starts the interpreter's main loop, as a coroutine's resume and a Go function's call of another do. So the engine counts these
// starts.

const (
	// maxNesting is LUAI_MAXCCALLS.
	maxNesting = 200
	// errorNesting is the limit for the calls of an error handler, which may nest deeper than others.
	errorNesting = maxNesting + maxNesting/8
)

// openLoops makes the engine's two main loops, which count nested calls: watchedLoop calls the hook, plainLoop does not.
func (e *Engine) openLoops() {
	L := e.L
	L.SetContext(newHook(e, L))
	e.watchedLoop = e.counted(*interp.LoopPlace(L))
	ctx := L.RemoveContext()
	e.plainLoop = e.counted(*interp.LoopPlace(L))
	e.watch(L, ctx.(*hook))
}

func (e *Engine) counted(run interp.Loop) interp.Loop {
	return func(L *lua.LState, base *interp.Frame) {
		*interp.HandledPlace(L) = true // see upvalues.go
		if e.depth++; e.depth >= maxNesting {
			e.tooDeep(L)
		}
		e.resuming = false
		if base == nil { // a coroutine's: gopher-lua would make an error of any panic
			defer e.passErrors()
			runThread(L, run)
		} else {
			run(L, base)
		}
		e.depth--
	}
}

// noRoomForHandler is the panic value if calls nest too deeply for an error handler. For an error, gopher-lua would make a trace
// (panicStopped).
const noRoomForHandler = "no room for the handler"

const (
	msgTooDeep       = "C stack overflow"
	msgHandlerFailed = "error in error handling"
)

// tooDeep raises an error where luaD_call raises one for too many nested calls.
func (e *Engine) tooDeep(L *lua.LState) {
	switch {
	case e.isHandler(interp.TopFrame(L).Fn):
		e.roomForHandler(L)
	case e.depth >= errorNesting:
		e.leaveCallee(L)
		e.throwValue(L, lua.LString(msgHandlerFailed))
	case e.depth == maxNesting && !e.resuming:
		e.leaveCallee(L)
		e.throwHere(L, msgTooDeep)
	}
}

// roomForHandler does what luaD_call does: at maxNesting, the call of a handler becomes an error, which calls the handler one level
// deeper.
func (e *Engine) roomForHandler(L *lua.LState) {
	switch {
	case e.depth >= errorNesting:
		panic(noRoomForHandler) // no error text is needed: xpcall has its own for a handler that fails
	case e.depth == maxNesting:
		e.depth++
		failed := e.skip(interp.TopFrame(L).Parent)
		L.Replace(1, lua.LString(e.paste(position(failed), msgTooDeep)))
	}
}

// leaveCallee makes the caller the source of the next error. The called function already has a frame, but it never runs.
func (e *Engine) leaveCallee(L *lua.LState) {
	*interp.FramePlace(L) = e.skip(interp.TopFrame(L).Parent)
	L.Panic = e.onError
}

// watch makes a state call a hook before every instruction.
func (e *Engine) watch(L *lua.LState, h *hook) {
	L.SetContext(h)
	*interp.LoopPlace(L) = e.watchedLoop
}

// unwatch makes a state run without its hook, and returns the hook.
func (e *Engine) unwatch(L *lua.LState) *hook {
	h := L.RemoveContext().(*hook)
	*interp.LoopPlace(L) = e.plainLoop
	return h
}
