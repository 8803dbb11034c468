package luavm

import (
	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/auxlib"
	"github.com/lockstep-io/lockstep/luavm/internal/clib"
	"github.com/lockstep-io/lockstep/luavm/internal/interp"
)

// beforeConcat prepares a concatenation, from right to left: it charges for the result, and formats numbers as C Lua does. Values left of
// a metamethod's call wait for its result; joinWaiting joins them.
func (e *Engine) beforeConcat(L *lua.LState, from, to int) {
	size := int64(0)
	last, joined := to+1, joins(L.Get(to+1)) // joined: the values at i+1 to last (at first: the value at last) are all strings or numbers
	called := false                          // called: a metamethod will return the value that v is joined to
	for i := last; i > from; i-- {
		v := L.Get(i)
		beside := i < last && joined || i == last && joins(L.Get(i-1))
		joined = joined && joins(v)
		switch n, isNumber := v.(lua.LNumber); {
		case called && joins(v):
			size += waitingBytes
			L.Replace(i, e.wait(v, i-1))
		case isNumber && beside:
			s := clib.FormatNumber(n)
			size += int64(len(s))
			L.Replace(i, lua.LString(s))
		default:
			s, _ := v.(lua.LString)
			size += int64(len(s))
		}
		called = !joined && i < last
	}
	e.charge(size + 32)
}

// joins reports whether .. accepts a value without a metamethod.
func joins(v lua.LValue) bool {
	switch v.(type) {
	case lua.LString, lua.LNumber:
		return true
	}
	return false
}

// waiting is a string or number whose right neighbour a metamethod will return.
type waiting struct {
	v        lua.LValue
	register int
}

// waitingBytes is roughly how many bytes a waiting value takes.
const waitingBytes = 120

// wait returns a waiting value, which stands for v in its register until the right neighbour is known. Scripts never get it.
func (e *Engine) wait(v lua.LValue, register int) lua.LValue {
	u := e.L.NewUserData()
	u.Value, u.Metatable = waiting{v, register}, e.joinMeta
	return u
}

func (e *Engine) openConcat() {
	e.joiner = e.function((*Engine).joinWaiting)
	e.joinMeta = e.L.CreateTable(0, 1)
	e.joinMeta.RawSetString("__concat", e.joiner)
}

// joinWaiting joins a waiting value to its right neighbour, as C Lua's luaV_concat does.
func (e *Engine) joinWaiting(L *lua.LState) int {
	left, right := L.Get(1).(*lua.LUserData).Value.(waiting), L.Get(2)
	if s, ok := auxlib.ToString(right); ok {
		text, _ := auxlib.ToString(left.v)
		L.Push(lua.LString(e.paste(text, s)))
		return 1
	}
	if !hasConcat(L, right) {
		e.throwHere(L, e.namedError(interp.TopFrame(L).Parent, left.register+1, auxlib.TypeName(right), "concatenate"))
	}
	e.depth-- // C Lua has no joinWaiting, so the call of it must not count as a nested one
	L.Push(e.call1(L, L.GetMetaField(right, "__concat"), left.v, right))
	e.depth++
	return 1
}
