package luavm

import (
	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/interp"
)

// handlerSteps is how many instructions a call of an error handler counts as: a handler in Go runs none.
const handlerSteps = 16

// errorHandler is the handler of an xpcall. As in C Lua, its own errors call it again, until a call returns or calls nest too deeply
// (roomForHandler).
type errorHandler struct {
	e       *Engine
	value   lua.LValue     // the second argument of xpcall
	fn      *lua.LFunction // calls value
	handled bool           // the last call has returned
}

func (e *Engine) newErrorHandler(L *lua.LState, value lua.LValue) *errorHandler {
	h := &errorHandler{e: e, value: value}
	h.fn = L.NewClosure(h.run, e.guard) // this upvalue marks the function for isHandler
	return h
}

// isHandler reports whether fn is the function that calls an error handler.
func (e *Engine) isHandler(fn *lua.LFunction) bool {
	return fn.IsG && len(fn.Upvalues) == 1 && fn.Upvalues[0].Value() == lua.LValue(e.guard)
}

// run calls the handler with the error at index 1. It never panics with a *lua.ApiError, because gopher-lua would make a trace for that.
func (h *errorHandler) run(L *lua.LState) int {
	defer h.e.passHandlerPanics()
	e := h.e
	h.handled = false
	if e.stop != "" {
		panicStopped()
	}
	e.work(handlerSteps)
	L.Panic = e.onError
	_, isFunction := h.value.(*lua.LFunction) // C Lua does not look at __call here
	if !isFunction || e.unhandled || interp.TopFrame(L).Idx >= callDepth+handlerCalls {
		L.Push(lua.LNil)
		return 1
	}
	e.depth-- // C Lua has no function like run, so the call of run must not count as a nested one
	failure := L.Get(1)
	L.Push(h.value)
	L.Push(failure)
	if failure, ok := e.protectedCall(L, 1, 1, h.fn); ok {
		h.handled = true
	} else {
		L.Push(failure) // the handler was called again, for its own error; this is the result of that call, which has set h.handled
	}
	e.depth++
	return 1
}

func (e *Engine) passHandlerPanics() {
	p := recover()
	if p == nil {
		return
	}
	if _, isError := p.(*lua.ApiError); isError && !isStopped(p) {
		panic(noRoomForHandler)
	}
	if p == noRoomForHandler {
		panic(p)
	}
	if !isStopped(p) {
		e.fault(p)
	}
	panic(stopped{})
}
