package luavm

import (
	lua "github.com/yuin/gopher-lua"

	"lockstep/luavm/internal/interp"
)

// A call of Lua from Go nests on Go's stack, and so does the interpreter's call of a metamethod. A program that exhausts Go's stack
// dies. C Lua counts such calls (nCcalls), and raises an error at 200. Here each such call starts the interpreter's main loop. The
// resume of a coroutine starts it, too, and so does the call of one Go function by another. So the engine counts the starts of a
// main loop.

const (
	// maxNesting is LUAI_MAXCCALLS.
	maxNesting = 200
	// errorNesting is the limit for the calls of an error handler, which may nest deeper than others.
	errorNesting = maxNesting + maxNesting/8
)

// openLoops makes the engine's two main loops: watchedLoop calls the hook, plainLoop is for scripts that need no hook. Each counts
// the nested calls, and then runs a main loop of gopher-lua.
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

// noRoomForHandler is the panic value if calls nest too deeply to call the handler of an error. It is a text and not an error of
// gopher-lua, because gopher-lua would make a trace for such an error (see panicStopped).
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

// roomForHandler does what luaD_call does for the call of an error handler. At maxNesting, luaD_call raises an error instead of the
// call. The handler is then called once more, for that error, one level deeper.
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
