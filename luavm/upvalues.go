package luavm

import (
	lua "github.com/yuin/gopher-lua"

	"lockstep/luavm/internal/interp"
)

// The variables of a call outlive it in the functions that captured them. gopher-lua moves them out of their registers when
// the call returns, and when an error is raised: then those of all calls, also of the ones below the pcall that catches the
// error, which go on with their registers; or none, if a handler is set. C Lua moves those of the calls that the error ends.
// So does the engine: it keeps gopher-lua from moving any when an error is raised (see counted), also because that takes a
// walk over all of them for each call, and moves them where the error ends the calls: in guarded, and in runThread.

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

// hideUpvalues takes the captured variables of the running calls out of L's list, and returns them. The calls that follow
// use only registers above, so none of them needs the list; and to close theirs nobody walks over it.
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
