package luavm

import (
	lua "github.com/yuin/gopher-lua"

	"lockstep/luavm/internal/interp"
)

// A call of Lua from Go, and of a metamethod by the interpreter, nests on Go's stack, of
// which no program survives the end. C Lua counts them (nCcalls) and ends a script at 200.
// Here the interpreter's main loop is where each of them begins, so that is where they are
// counted, coroutines and Go functions that call each other included.

const (
	// maxNesting is LUAI_MAXCCALLS.
	maxNesting = 200
	// errorNesting is how far the handler of an error may go on beyond it.
	errorNesting = maxNesting + maxNesting/8
)

// openLoops makes the main loops that count: one that asks the hook, and one for scripts
// that need none.
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
		if e.depth++; e.depth >= maxNesting {
			e.tooDeep(L)
		}
		e.resuming = false
		run(L, base)
		e.depth--
	}
}

// tooDeep is luaD_call when it finds that too much is nested.
func (e *Engine) tooDeep(L *lua.LState) {
	switch {
	case e.depth >= errorNesting:
		e.leaveCallee(L)
		e.throwValue(L, lua.LString("error in error handling"))
	case e.depth == maxNesting && !e.resuming:
		e.leaveCallee(L)
		e.throwHere(L, "C stack overflow")
	}
}

// leaveCallee makes an error that of the caller: what was called has a frame already,
// though it never runs.
func (e *Engine) leaveCallee(L *lua.LState) {
	*interp.FramePlace(L) = e.skip(interp.TopFrame(L).Parent)
	L.Panic = e.onError
}

// watch has a state ask a hook before every instruction.
func (e *Engine) watch(L *lua.LState, h *hook) {
	L.SetContext(h)
	*interp.LoopPlace(L) = e.watchedLoop
}

// unwatch lets a state run without its hook, which it returns.
func (e *Engine) unwatch(L *lua.LState) *hook {
	h := L.RemoveContext().(*hook)
	*interp.LoopPlace(L) = e.plainLoop
	return h
}
