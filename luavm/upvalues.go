package luavm

import (
	lua "github.com/yuin/gopher-lua"

	"lockstep/luavm/internal/interp"
)

// The functions that have captured a variable may use it after the call that declared it has returned. So gopher-lua moves the captured
// variables of a call out of the registers when the call returns. C Lua does the same when an error ends a call. The calls below the
// pcall that catches the error go on, and keep their variables in their registers. gopher-lua differs: when an error is raised, it
// moves the captured variables of all calls on the stack or, if an error handler is set, of none.
//
// The engine does what C Lua does. It keeps gopher-lua from moving any variable when an error is raised (see the method counted). That
// also saves a walk over all captured variables for each call on the stack. The engine moves the variables itself where a protected
// call ends (guarded) or a coroutine fails (runThread).

// closeUpvalues moves the captured variables in L's list out of the registers, which must still hold them.
func closeUpvalues(L *lua.LState) {
	u := *interp.OpenPlace(L)
	*interp.OpenPlace(L) = nil
	for u != nil {
		u.Close()
		next := interp.NextPlace(u)
		u, *next = *next, nil
	}
}

// hideUpvalues takes the captured variables of the running calls out of L's list, and returns them; the caller puts
// them back. Meanwhile new calls use only registers above those of the running calls. So new calls do not need these
// variables in the list. Without them, closing the variables of a new call takes fewer steps.
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
