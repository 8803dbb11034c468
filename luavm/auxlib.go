package luavm

import (
	"fmt"

	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/interp"
)

// library holds the functions that a Lua library exports, by name.
type library map[string]func(*Engine, *lua.LState) int

// This file has the helpers of library functions that internal/auxlib does not have.

// calleeName returns the name by which the running function was called, and the name's kind, such as method.
func (e *Engine) calleeName(L *lua.LState) (kind, name string) {
	f := interp.TopFrame(L)
	if f == nil || f.Parent == nil || f.Parent.Fn.IsG || !f.Fn.IsG && f.TailCall > 0 {
		return "", ""
	}
	caller := f.Parent
	switch inst := caller.Inst(); interp.OpOf(inst) {
	case lua.OP_CALL, lua.OP_TAILCALL, lua.OP_TFORLOOP:
		e.workName(caller)
		return objectName(caller.Fn.Proto, caller.Pc-1, interp.ArgA(inst))
	}
	return "", ""
}

// argError does what luaL_argerror does.
func (e *Engine) argError(L *lua.LState, n int, extra string) {
	kind, name := e.calleeName(L)
	e.charge(nameCopies * int64(len(name)+len(extra)))
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

// refuseReadonly raises an error if scripts may not change t. Before it changes a table for a script, Go code must check that.
func (e *Engine) refuseReadonly(L *lua.LState, t *lua.LTable) {
	if e.isReadonly(t) {
		e.throwHere(L, msgReadonlyTable)
	}
}

// writable returns t; it raises an error if scripts may not change t.
func (e *Engine) writable(L *lua.LState, t *lua.LTable) *lua.LTable {
	e.refuseReadonly(L, t)
	return t
}

// call1 calls a function and returns its first result.
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

// metafield returns a field of the metatable of a table. It returns nil if v is no table or has no metatable.
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
