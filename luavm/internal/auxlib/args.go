package auxlib

import (
	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/clib"
)

// Errors raises errors in the running function.
type Errors interface {
	// ArgError does what luaL_argerror does: it ends the running function because of its argument n.
	ArgError(L *lua.LState, n int, why string)
}

// Steps counts the work of the running script.
type Steps interface {
	// Work counts work that takes as long as the given number of instructions. It may end the running script.
	Work(steps int)
}

// Args reads the arguments of the running function, and ends the function if an argument
// has the wrong type. The first argument has the number one.
type Args struct {
	Errors Errors
	Steps  Steps
	Memory Memory
}

func (a Args) mismatch(L *lua.LState, n int, want string) {
	got := "no value"
	if n <= L.GetTop() {
		got = TypeName(L.Get(n))
	}
	a.Errors.ArgError(L, n, want+" expected, got "+got)
}

// Any returns argument n, which must exist.
func (a Args) Any(L *lua.LState, n int) lua.LValue {
	if n > L.GetTop() {
		a.Errors.ArgError(L, n, "value expected")
	}
	return L.Get(n)
}

// String returns argument n, a string or a number.
func (a Args) String(L *lua.LState, n int) string {
	if s, ok := L.Get(n).(lua.LString); ok {
		return string(s)
	}
	s, ok := ToString(L.Get(n))
	if !ok {
		a.mismatch(L, n, "string")
	}
	return s
}

// OptString does what String does, but returns def if the argument is nil or missing.
func (a Args) OptString(L *lua.LState, n int, def string) string {
	if L.Get(n) == lua.LNil {
		return def
	}
	return a.String(L, n)
}

// digitsInStep is how many bytes of a number are read in the time of an instruction.
const digitsInStep = 16

// longNumber is the size in bytes beyond which Args.ParseNumber charges for the copy that clib.ParseNumber may make of a text.
const longNumber = 1 << 10

// ParseNumber does what clib.ParseNumber does, but counts work and memory: the text may be megabytes long.
func (a Args) ParseNumber(s string) (lua.LNumber, bool) {
	if len(s) >= digitsInStep {
		a.Steps.Work(len(s) / digitsInStep)
	}
	if len(s) > longNumber {
		a.Memory.Charge(int64(len(s)))
	}
	return clib.ParseNumber(s)
}

// ToNumber converts a value as lua_tonumber does.
func (a Args) ToNumber(v lua.LValue) (lua.LNumber, bool) {
	switch v := v.(type) {
	case lua.LNumber:
		return v, true
	case lua.LString:
		return a.ParseNumber(string(v))
	}
	return 0, false
}

// Number returns argument n, a number or a numeric string.
func (a Args) Number(L *lua.LState, n int) lua.LNumber {
	v, ok := a.ToNumber(L.Get(n))
	if !ok {
		a.mismatch(L, n, "number")
	}
	return v
}

// Int returns argument n, a number or a numeric string, as an integer.
func (a Args) Int(L *lua.LState, n int) int { return clib.ToInt(a.Number(L, n)) }

// OptInt does what Int does, but returns def if the argument is nil or missing.
func (a Args) OptInt(L *lua.LState, n, def int) int {
	if L.Get(n) == lua.LNil {
		return def
	}
	return a.Int(L, n)
}

// CInt does what Int does, but keeps only the low 32 bits, as an int of C does.
func (a Args) CInt(L *lua.LState, n int) int { return int(int32(a.Int(L, n))) }

// OptCInt does what CInt does, but returns def if the argument is nil or missing.
func (a Args) OptCInt(L *lua.LState, n, def int) int { return int(int32(a.OptInt(L, n, def))) }

// Table returns argument n, a table.
func (a Args) Table(L *lua.LState, n int) *lua.LTable {
	t, ok := L.Get(n).(*lua.LTable)
	if !ok {
		a.mismatch(L, n, "table")
	}
	return t
}

// Function returns argument n, a function.
func (a Args) Function(L *lua.LState, n int) *lua.LFunction {
	f, ok := L.Get(n).(*lua.LFunction)
	if !ok {
		a.mismatch(L, n, "function")
	}
	return f
}
