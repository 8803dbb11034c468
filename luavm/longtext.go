package luavm

import (
	lua "github.com/yuin/gopher-lua"

	"lockstep/luavm/internal/auxlib"
	"lockstep/luavm/internal/interp"
)

// What gopher-lua itself makes of a long text within an instruction is done here: it would allocate it uncharged.

// longText is the size from which a text is long. Until a script has a text of that size, the instructions that read a
// field are not looked at.
const longText = 16 << 10

// indexing has a bit for every opcode that reads a field.
const indexing uint64 = 1<<lua.OP_GETTABLE | 1<<lua.OP_GETTABLEKS | 1<<lua.OP_SELF

// watchIndexing is called with the bytes that a script has from its beginning: what it keeps may be one text, and so may a
// constant of its own text.
func (e *Engine) watchIndexing(size int) {
	if size > longText {
		e.indexing = indexing
	}
}

// refuseIndex raises the error of C Lua if the instruction uses a long key for a value that cannot be indexed: gopher-lua
// would put the key into the text of its error.
func (e *Engine) refuseIndex(L *lua.LState, f *interp.Frame, inst uint32) {
	reg, k, event := interp.ArgB(inst), interp.ArgC(inst), "__index"
	switch interp.OpOf(inst) {
	case lua.OP_SETTABLE, lua.OP_SETTABLEKS:
		reg, k, event = interp.ArgA(inst), interp.ArgB(inst), "__newindex"
	}
	key, ok := f.Operand(L, k).(lua.LString)
	if !ok || len(key) < longText {
		return
	}
	v := L.Get(reg + 1)
	for at := range lua.MaxTableGetLoop {
		if t, ok := v.(*lua.LTable); ok && t.RawGetString(string(key)) != lua.LNil {
			return
		}
		next := L.GetMetaField(v, event)
		_, isTable := v.(*lua.LTable)
		switch {
		case next.Type() == lua.LTFunction || isTable && next == lua.LNil:
			return
		case next != lua.LNil:
			v = next
		case at == 0:
			e.throwHere(L, e.typeError(f, reg, v, "index"))
		default:
			e.throwHere(L, "attempt to index a "+auxlib.TypeName(v)+" value")
		}
	}
}
