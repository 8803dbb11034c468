package luavm

import (
	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/auxlib"
	"github.com/lockstep-io/lockstep/luavm/internal/ext"
)

// libraries has the library tables of Redis 7.0.15 that scripts see, besides those of internal/ext.
var libraries = map[string]library{
	"string":    stringLibrary,
	"table":     tableLibrary,
	"math":      mathLibrary,
	"coroutine": coroutineLibrary,
	"redis":     redisLibrary,
}

// openSandbox fills the globals. Scripts can change no global table but KEYS and ARGV, which the engine empties after every script.
func (e *Engine) openSandbox() {
	L, g := e.L, e.globals
	e.openCoroutines()
	e.protect = L.CreateTable(0, 0)
	e.gmeta = L.CreateTable(0, 1)
	e.gmeta.RawSetString("__index", L.NewFunction(e.unknownGlobal))
	e.gmeta.Metatable = e.protect
	for name, fn := range baseLibrary {
		g.RawSetString(name, e.function(fn))
	}
	e.ipairsStep, e.pairsStep = e.function((*Engine).ipairsNext), e.function((*Engine).baseNext)
	for name, lib := range libraries {
		g.RawSetString(name, e.libraryTable(lib))
	}
	e.ext = ext.Open(host{e}, L)
	for name, t := range e.ext.Tables {
		g.RawSetString(name, t)
	}
	g.RawSetString("_G", g)
	g.RawSetString("_VERSION", lua.LString(lua.LuaVersion))
	e.keyList, e.argList, e.blank = L.CreateTable(0, 0), L.CreateTable(0, 0), L.CreateTable(0, 0)
	g.RawSetString("KEYS", e.keyList)
	g.RawSetString("ARGV", e.argList)
	e.openMath()
	e.openRedis()
	e.openStrings()
	e.openConcat()
	for name := range libraries {
		e.lib(name).Metatable = e.protect
	}
	for _, t := range e.ext.Tables {
		t.Metatable = e.protect
	}
	g.Metatable = e.gmeta
	e.openFunctions()
}

func (e *Engine) function(fn func(*Engine, *lua.LState) int) *lua.LFunction {
	return e.L.NewFunction(func(L *lua.LState) int { return fn(e, L) })
}

func (e *Engine) libraryTable(lib library) *lua.LTable {
	t := e.L.CreateTable(0, len(lib))
	for name, fn := range lib {
		t.RawSetString(name, e.function(fn))
	}
	return t
}

func (e *Engine) lib(name string) *lua.LTable { return e.globals.RawGetString(name).(*lua.LTable) }

// isReadonly reports whether scripts must not change a table. Scripts can set e.gmeta and e.libMeta, but not e.protect, on tables of
// their own.
func (e *Engine) isReadonly(t *lua.LTable) bool {
	switch mt, _ := t.Metatable.(*lua.LTable); mt {
	case nil:
		return false
	case e.protect:
		return true
	case e.gmeta:
		return t == e.globals || t == e.libRun || t == e.libLoad || t == e.loadingRedis
	case e.libMeta:
		return t == e.libEnv
	}
	return false
}

func (e *Engine) unknownGlobal(L *lua.LState) int {
	name, ok := auxlib.ToString(L.Get(2))
	if !ok {
		e.throw(L, "Second argument to luaProtectedTableError must be a string or number")
	}
	e.charge(int64(len(name)))
	e.throw(L, msgUnknownGlobal(name))
	return 0
}

// openStrings gives strings their methods, and C Lua's arithmetic: C Lua converts strings to
// numbers differently from gopher-lua (in C Lua "010" is ten).
func (e *Engine) openStrings() {
	mt := e.L.CreateTable(0, 8)
	mt.RawSetString("__index", e.lib("string"))
	for event, op := range stringArithmetic {
		mt.RawSetString(event, e.L.NewFunction(func(L *lua.LState) int { return e.arithmetic(L, event, op) }))
	}
	shown := e.L.CreateTable(0, 1)
	shown.RawSetString("__index", e.lib("string"))
	shown.Metatable = e.protect
	mt.RawSetString("__metatable", shown)
	e.L.SetMetatable(lua.LString(""), mt)
}
