package luavm

import (
	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/interp"
)

// When an error ends calls, C Lua moves their captured variables out of the registers. gopher-lua would move those of all calls on the
// stack or, if an error handler is set, of none.
//
// So the engine keeps gopher-lua from moving any of them (the method counted). It moves them where a protected call ends (guarded) or a
// coroutine fails (runThread).

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

// hideUpvalues takes the captured variables of the running calls out of L's list, to speed up new calls. The caller puts them back.
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
