package auxlib

import (
	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/clib"
)

// MaxStack is C Lua's LUAI_MAXCSTACK: the most stack slots that a C function may use.
const MaxStack = 8000

// ToString converts a string or a number to a string, as lua_tostring does. It returns false for any other value.
func ToString(v lua.LValue) (string, bool) {
	switch v := v.(type) {
	case lua.LString:
		return string(v), true
	case lua.LNumber:
		return clib.FormatNumber(v), true
	}
	return "", false
}

// TypeName returns the name that error messages give to a value's type. For a Go nil that is "no value".
func TypeName(v lua.LValue) string {
	if v == nil {
		return "no value"
	}
	return v.Type().String()
}
