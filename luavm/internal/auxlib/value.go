package auxlib

import (
	lua "github.com/yuin/gopher-lua"

	"lockstep/luavm/internal/clib"
)

// MaxStack is C Lua's LUAI_MAXCSTACK.
const MaxStack = 8000

// ToString converts a value as lua_tostring does: only strings and numbers.
func ToString(v lua.LValue) (string, bool) {
	switch v := v.(type) {
	case lua.LString:
		return string(v), true
	case lua.LNumber:
		return clib.FormatNumber(v), true
	}
	return "", false
}

// TypeName returns the name of a value's type in messages; a Go nil means that there is no value.
func TypeName(v lua.LValue) string {
	if v == nil {
		return "no value"
	}
	return v.Type().String()
}
