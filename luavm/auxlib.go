package luavm

import (
	"fmt"

	lua "github.com/yuin/gopher-lua"

	"lockstep/luavm/internal/clib"
	"lockstep/luavm/internal/interp"
)

// library is what a library exports: functions by name.
type library map[string]func(*Engine, *lua.LState) int

// This file is C Lua's auxiliary library: how functions check their arguments,
// and what they say when these are wrong.

// calleeName is how the caller of the running function names it.
func (e *Engine) calleeName(L *lua.LState) (kind, name string) {
	f := interp.TopFrame(L)
	if f == nil || f.Parent == nil || f.Parent.Fn.IsG || !f.Fn.IsG && f.TailCall > 0 {
		return "", ""
	}
	caller := f.Parent
	switch inst := caller.Inst(); interp.OpOf(inst) {
	case lua.OP_CALL, lua.OP_TAILCALL, lua.OP_TFORLOOP:
		return objectName(caller.Fn.Proto, caller.Pc-1, interp.ArgA(inst))
	}
	return "", ""
}

// argError is luaL_argerror.
func (e *Engine) argError(L *lua.LState, n int, extra string) {
	kind, name := e.calleeName(L)
	if kind == "method" {
		n--
		if n == 0 {
			e.throw(L, "calling '"+name+"' on bad self ("+extra+")")
		}
	}
	if kind == "" {
		name = "?"
	}
	e.throw(L, fmt.Sprintf("bad argument #%d to '%s' (%s)", n, name, extra))
}

func (e *Engine) typeMismatch(L *lua.LState, n int, want string) {
	got := "no value"
	if n <= L.GetTop() {
		got = typeName(L.Get(n))
	}
	e.argError(L, n, want+" expected, got "+got)
}

func (e *Engine) checkAny(L *lua.LState, n int) lua.LValue {
	if n > L.GetTop() {
		e.argError(L, n, "value expected")
	}
	return L.Get(n)
}

func (e *Engine) checkString(L *lua.LState, n int) string {
	if s, ok := L.Get(n).(lua.LString); ok {
		return string(s)
	}
	s, ok := toString(L.Get(n))
	if !ok {
		e.typeMismatch(L, n, "string")
	}
	return s
}

func (e *Engine) optString(L *lua.LState, n int, def string) string {
	if L.Get(n) == lua.LNil {
		return def
	}
	return e.checkString(L, n)
}

func (e *Engine) checkNumber(L *lua.LState, n int) lua.LNumber {
	v, ok := toNumber(L.Get(n))
	if !ok {
		e.typeMismatch(L, n, "number")
	}
	return v
}

func (e *Engine) checkInt(L *lua.LState, n int) int { return clib.ToInt(e.checkNumber(L, n)) }

func (e *Engine) optInt(L *lua.LState, n, def int) int {
	if L.Get(n) == lua.LNil {
		return def
	}
	return e.checkInt(L, n)
}

// checkCInt is checkInt for what is an int in C: more than 32 bits are cut off.
func (e *Engine) checkCInt(L *lua.LState, n int) int { return int(int32(e.checkInt(L, n))) }

func (e *Engine) optCInt(L *lua.LState, n, def int) int { return int(int32(e.optInt(L, n, def))) }

func (e *Engine) checkTable(L *lua.LState, n int) *lua.LTable {
	t, ok := L.Get(n).(*lua.LTable)
	if !ok {
		e.typeMismatch(L, n, "table")
	}
	return t
}

func (e *Engine) checkFunction(L *lua.LState, n int) *lua.LFunction {
	f, ok := L.Get(n).(*lua.LFunction)
	if !ok {
		e.typeMismatch(L, n, "function")
	}
	return f
}

// toNumber is lua_tonumber's conversion.
func toNumber(v lua.LValue) (lua.LNumber, bool) {
	switch v := v.(type) {
	case lua.LNumber:
		return v, true
	case lua.LString:
		return clib.ParseNumber(string(v))
	}
	return 0, false
}

// toString is lua_tostring's conversion: strings and numbers only.
func toString(v lua.LValue) (string, bool) {
	switch v := v.(type) {
	case lua.LString:
		return string(v), true
	case lua.LNumber:
		return clib.FormatNumber(v), true
	}
	return "", false
}

// refuseReadonly ends a write to a table that scripts may not change. Whatever writes
// for a script asks it, of the very table that it is about to change.
func (e *Engine) refuseReadonly(L *lua.LState, t *lua.LTable) {
	if e.isReadonly(t) {
		e.throwHere(L, msgReadonlyTable)
	}
}

// writable is t, which scripts may change.
func (e *Engine) writable(L *lua.LState, t *lua.LTable) *lua.LTable {
	e.refuseReadonly(L, t)
	return t
}

// call calls a function and returns its first result.
func (e *Engine) call1(L *lua.LState, fn lua.LValue, args ...lua.LValue) lua.LValue {
	L.Push(fn)
	for _, a := range args {
		L.Push(a)
	}
	L.Call(len(args), 1)
	v := L.Get(-1)
	L.Pop(1)
	return v
}

// metafield returns a field of a value's metatable, or nil.
func (e *Engine) metafield(L *lua.LState, v lua.LValue, name string) lua.LValue {
	t, ok := v.(*lua.LTable)
	if !ok {
		return lua.LNil
	}
	if mt, ok := t.Metatable.(*lua.LTable); ok {
		return mt.RawGetString(name)
	}
	return lua.LNil
}
