package luavm

import (
	"fmt"
	"strings"

	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/interp"
)

// Every protected call goes through the method guarded, because gopher-lua's PCall replaces the panic handler, and clears the registers
// after an error.
func (e *Engine) guarded(L *lua.LState) int {
	defer e.passErrors()
	defer closeUpvalues(L)
	L.Panic = e.onError
	e.depth-- // C Lua does not have this function, so its call must not count as a nested one
	L.Call(L.GetTop()-1, lua.MultRet)
	e.depth++
	return L.GetTop()
}

// protectedCall calls the function under its nargs arguments on the stack. It panics if the script is being stopped or the interpreter
// fails.
func (e *Engine) protectedCall(L *lua.LState, nargs, nret int, handler *lua.LFunction) (failure lua.LValue, ok bool) {
	depth, overflowed := e.depth, e.overflowed
	L.Insert(e.guard, -(nargs + 1))
	below := hideUpvalues(L)
	err := L.PCall(nargs+1, nret, handler)
	*interp.OpenPlace(L), *interp.HandledPlace(L) = below, true
	e.depth = depth
	if err == nil {
		return nil, true
	}
	e.overflowed, e.unhandled = e.afterCatch(L, overflowed), false
	// A coroutine that failed may still be set as the current thread.
	L.G.CurrentThread = L
	if e.stop != "" {
		panicStopped()
	}
	api, isAPI := err.(*lua.ApiError)
	if !isAPI || api.Type == lua.ApiErrorPanic && api.Object != lua.LString(noRoomForHandler) {
		e.tell(firstLine(err.Error()))
		e.halt(msgFault)
	}
	return api.Object, false
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// onError is the panic handler of every state. It gives errors of the
// interpreter the wording of C Lua, and records where they happened.
func (e *Engine) onError(L *lua.LState) {
	v := L.Get(-1)
	if s, ok := v.(lua.LString); ok && !e.ours {
		v = lua.LString(e.reword(L, string(s)))
	}
	e.ours = false
	e.notePosition(L)
	// Without a StackTrace in the error, PCall would make one, which takes long.
	panic(&lua.ApiError{Type: lua.ApiErrorRun, Object: v, StackTrace: "-"})
}

// notePosition records the position that Redis's error handler would find.
func (e *Engine) notePosition(L *lua.LState) {
	f, lost := e.level(L, 0)
	if f != nil && f.Fn.IsG {
		f, lost = e.level(L, 1)
	}
	switch {
	case lost:
		e.errSource, e.errLine = "=(tail call)", -1
	case f == nil:
		e.errSource, e.errLine = "", 0
	case f.Fn.IsG:
		e.errSource, e.errLine = "=[C]", -1
	default:
		name, loaded := e.sources[f.Fn.Proto.SourceName]
		if !loaded {
			name = "@" + f.Fn.Proto.SourceName
		}
		e.errSource, e.errLine = name, f.Line()
	}
}

// throwValue raises an error value unchanged.
func (e *Engine) throwValue(L *lua.LState, v lua.LValue) {
	e.ours = true
	L.Error(v, 0)
}

// throw does what luaL_error does in a function that Lua called: it puts the caller's
// position before the message.
func (e *Engine) throw(L *lua.LState, msg string) {
	e.throwValue(L, lua.LString(e.paste(e.where(L, 1), msg)))
}

// throwHere raises an error at the position of the running Lua function.
func (e *Engine) throwHere(L *lua.LState, msg string) {
	e.throwValue(L, lua.LString(e.paste(e.where(L, 0), msg)))
}

// level returns the frame that lua_getstack finds. lost is true at a tail call, which counts as a level without a frame.
func (e *Engine) level(L *lua.LState, level int) (f *interp.Frame, lost bool) {
	f = e.skip(interp.TopFrame(L))
	for n := 1; level > 0 && f != nil; n++ {
		if n%copiedInStep == 0 {
			e.work(1)
		}
		level--
		if !f.Fn.IsG {
			level -= f.TailCall
		}
		f = e.skip(f.Parent)
	}
	if level < 0 {
		return nil, true
	}
	return f, false
}

// skip skips the frames that protected calls and joinWaiting add and that C Lua does not have.
func (e *Engine) skip(f *interp.Frame) *interp.Frame {
	for f != nil && (f.Fn == e.guard || f.Fn == e.joiner) {
		f = f.Parent
	}
	return f
}

// where returns what luaL_where puts before an error message: the position at a level of the stack.
func (e *Engine) where(L *lua.LState, level int) string {
	f, _ := e.level(L, level)
	return position(f)
}

// position returns the position of a call to put before an error message, or "" if the called function is not a Lua function.
func position(f *interp.Frame) string {
	if f == nil || f.Fn.IsG || f.Line() <= 0 {
		return ""
	}
	return fmt.Sprintf("%s:%d: ", f.Fn.Proto.SourceName, f.Line())
}
