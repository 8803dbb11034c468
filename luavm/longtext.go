package luavm

import (
	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/auxlib"
	"github.com/lockstep-io/lockstep/luavm/internal/interp"
)

// gopher-lua would copy a long text into an error, uncharged, so this file raises such errors itself. It also counts time for long texts.

// longText is the size in bytes from which a text is long. Without long texts, the hook ignores instructions that read a field or
// compare.
const longText = 16 << 10

// onTexts has a bit for every opcode that reads a field or compares.
const onTexts uint64 = 1<<lua.OP_GETTABLE | 1<<lua.OP_GETTABLEKS | 1<<lua.OP_SELF | 1<<lua.OP_EQ | 1<<lua.OP_LT | 1<<lua.OP_LE

// watchTexts must be called when a script or function begins. size bounds the longest text that it has at the beginning.
func (e *Engine) watchTexts(size int) {
	if size > longText {
		e.onTexts = onTexts
	}
}

// refuseIndex raises C Lua's error for a long key of what is no table: gopher-lua would copy the key into its error.
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
	e.pass(len(key))
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

// orderedInStep is how many bytes of two texts gopher-lua orders in the time of an instruction.
const orderedInStep = 16

// beforeComparison counts the work of an instruction that compares two long texts.
func (e *Engine) beforeComparison(L *lua.LState, f *interp.Frame, inst uint32) {
	a, isText := f.Operand(L, interp.ArgB(inst)).(lua.LString)
	b, areTexts := f.Operand(L, interp.ArgC(inst)).(lua.LString)
	switch n := min(len(a), len(b)); {
	case !isText || !areTexts || n <= longText:
	case interp.OpOf(inst) != lua.OP_EQ:
		e.work(n / orderedInStep)
	case len(a) == len(b):
		e.pass(n)
	}
}

// passKey counts the work of finding a key in a table: a key that is a text must be hashed and compared.
func (e *Engine) passKey(key lua.LValue) {
	if s, ok := key.(lua.LString); ok {
		e.pass(len(s))
	}
}
