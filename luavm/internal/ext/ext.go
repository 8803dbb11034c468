package ext

import (
	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/auxlib"
)

// Host is the engine that runs the script. Every method may panic, to end the running function
// with an error or to stop the script.
type Host interface {
	auxlib.Memory
	auxlib.Errors
	auxlib.Steps
	// Throw does what luaL_error does.
	Throw(L *lua.LState, msg string)
	// Own returns part of a larger string, as a copy if a library may keep it: part would keep the larger string in memory.
	Own(part string) lua.LString
	// RawSet does what lua_rawset does, with its errors, and charges for the growth of the table.
	RawSet(L *lua.LState, t *lua.LTable, key, value lua.LValue)
}

// Libraries holds the libraries of one Lua state.
type Libraries struct {
	Tables map[string]*lua.LTable // by global name
	Null   *lua.LUserData         // cjson.null
	JSON   JSONSettings           // settings of the global cjson

	host Host
	arg  auxlib.Args
}

// library holds the functions that a Lua library exports, by name.
type library map[string]func(*Libraries, *lua.LState) int

// Open makes the libraries. The caller makes their Tables global, and may change them.
func Open(host Host, L *lua.LState) *Libraries {
	lib := &Libraries{Null: L.NewUserData(), JSON: defaultJSON, host: host, arg: auxlib.Args{Errors: host, Steps: host, Memory: host}}
	lib.Tables = map[string]*lua.LTable{
		"bit":      lib.table(L, bitLibrary),
		"struct":   lib.table(L, structLibrary),
		"cmsgpack": lib.packModule(L),
		"cjson":    lib.jsonModule(L, &lib.JSON),
	}
	return lib
}

// keyInStep is how many bytes of a long key are hashed in the time of an instruction.
const keyInStep = 256

// passKey counts the work of finding a key in a table, if the key is long.
func passKey(host Host, key lua.LValue) {
	if s, ok := key.(lua.LString); ok && len(s) > keyInStep {
		host.Work(len(s) / keyInStep)
	}
}

func (lib *Libraries) table(L *lua.LState, functions library) *lua.LTable {
	t := L.CreateTable(0, len(functions))
	for name, fn := range functions {
		t.RawSetString(name, lib.function(L, fn))
	}
	return t
}

func (lib *Libraries) function(L *lua.LState, fn func(*Libraries, *lua.LState) int) *lua.LFunction {
	return L.NewFunction(func(L *lua.LState) int { return fn(lib, L) })
}
