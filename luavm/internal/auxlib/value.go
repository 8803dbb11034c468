package auxlib

import (
	lua "github.com/yuin/gopher-lua"

	"lockstep/luavm/internal/clib"
)

// MaxStack is C Lua's LUAI_MAXCSTACK.
const MaxStack = 8000

// ToNumber is lua_tonumber's conversion.
func ToNumber(v lua.LValue) (lua.LNumber, bool) {
	switch v := v.(type) {
	case lua.LNumber:
		return v, true
	case lua.LString:
		return clib.ParseNumber(string(v))
	}
	return 0, false
}

// ToString is lua_tostring's conversion: strings and numbers only.
func ToString(v lua.LValue) (string, bool) {
	switch v := v.(type) {
	case lua.LString:
		return string(v), true
	case lua.LNumber:
		return clib.FormatNumber(v), true
	}
	return "", false
}

// TypeName is how messages call the type of a value; nil stands for none.
func TypeName(v lua.LValue) string {
	if v == nil {
		return "no value"
	}
	return v.Type().String()
}
