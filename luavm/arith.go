package luavm

import (
	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/clib"
	"github.com/lockstep-io/lockstep/luavm/internal/interp"
)

// stringArithmetic has the arithmetic operators, by the names of their metamethods, for operations in which at least one operand is
// a string.
var stringArithmetic = map[string]func(a, b float64) float64{
	"__add": func(a, b float64) float64 { return a + b },
	"__sub": func(a, b float64) float64 { return a - b },
	"__mul": func(a, b float64) float64 { return a * b },
	"__div": func(a, b float64) float64 { return a / b },
	"__mod": clib.Modulo,
	"__pow": clib.Pow,
	"__unm": func(a, _ float64) float64 { return -a },
}

// arithmetic does what C Lua's Arith does: op for numbers, otherwise the metamethod whose name is in event.
func (e *Engine) arithmetic(L *lua.LState, event string, op func(a, b float64) float64) int {
	a, b := L.Get(1), L.Get(2)
	if event == "__unm" {
		b = a
	}
	x, aOK := e.arg.ToNumber(a)
	y, bOK := e.arg.ToNumber(b)
	if aOK && bOK {
		L.Push(lua.LNumber(op(float64(x), float64(y))))
		return 1
	}
	for _, v := range [...]lua.LValue{a, b} {
		if fn, ok := e.metafield(L, v, event).(*lua.LFunction); ok {
			L.Push(e.call1(L, fn, a, b))
			return 1
		}
	}
	f := interp.TopFrame(L).Parent
	inst := f.Inst()
	reg, bad := interp.ArgB(inst), a
	if aOK {
		reg, bad = interp.ArgC(inst), b
	}
	e.throw(L, e.typeError(f, reg, bad, "perform arithmetic on"))
	return 0
}
