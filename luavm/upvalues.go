package luavm

import (
	lua "github.com/yuin/gopher-lua"

	"lockstep/luavm/internal/interp"
)

// A captured variable outlives its call in the functions that captured it. gopher-lua moves captured variables out of their
// registers when their call returns. When an error is raised, gopher-lua moves the captured variables of all calls. That is wrong
// for the calls below the pcall that catches the error: they go on, with the variables in their registers. If a handler is set,
// gopher-lua moves none. C Lua moves the variables of those calls that the error ends.
//
// So does the engine. It keeps gopher-lua from moving any variable when an error is raised (see counted), which also saves a walk
// over all captured variables for each call. It moves the variables where the error ends the calls: in guarded and in runThread.

// closeUpvalues moves all captured variables out of the registers of L. The registers must still hold them.
func closeUpvalues(L *lua.LState) {
	u := *interp.OpenPlace(L)
	*interp.OpenPlace(L) = nil
	for u != nil {
		u.Close()
		next := interp.NextPlace(u)
		u, *next = *next, nil
	}
}

// hideUpvalues takes the captured variables of the running calls out of L's list, and returns them. Later calls use only
// registers above theirs, so no later call needs them, and closing the variables of a later call does not walk over them.
func hideUpvalues(L *lua.LState) (below *lua.Upvalue) {
	below = *interp.OpenPlace(L)
	*interp.OpenPlace(L) = nil
	return below
}

// runThread runs a coroutine until it yields, returns or fails. A coroutine that fails loses its registers, so runThread moves
// the captured variables out of them.
func runThread(L *lua.LState, run interp.Loop) {
	failed := true
	defer func() {
		if failed {
			closeUpvalues(L)
		}
	}()
	run(L, nil)
	failed = false
}
