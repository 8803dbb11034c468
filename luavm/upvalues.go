package luavm

import (
	lua "github.com/yuin/gopher-lua"

	"lockstep/luavm/internal/interp"
)

// A captured variable outlives its call in the functions that captured it. gopher-lua moves captured variables out of their
// registers when their call returns. When an error is raised, it moves those of all calls, even of the calls below the pcall
// that catches the error, which go on with their registers; but if a handler is set, it moves none. C Lua moves those of the
// calls that the error ends.
//
// So does the engine. It keeps gopher-lua from moving any when an error is raised (see counted), which also saves a walk over
// all captured variables for each call. It moves them where the error ends the calls: in guarded and in runThread.

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

// runThread runs a coroutine until it yields, returns or fails. One that fails loses its registers.
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
