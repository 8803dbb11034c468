package luavm

import (
	"strings"
	"time"

	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/auxlib"
	"github.com/lockstep-io/lockstep/store"
)

// libraryEngine is the only engine that the first line of a library may name.
const libraryEngine = "LUA"

// maxFunctions bounds a new library's functions, because every node inserts each function into a sorted tree.
const maxFunctions = 10_000

// loadedLibrary is a library whose code has run in the present Lua state. Its functions and locals exist only there: without them, the
// code runs again.
type loadedLibrary struct {
	lib *store.Library
	fns map[string]*lua.LFunction // by registered name

	size  int64 // bytes that the library keeps, by the last measurement (kept.go)
	since int64 // bytes that calls of its functions have allocated since that measurement
	ranIn int   // the value of Engine.settled when one of its functions ran last
}

// notInFunctions names the globals that scripts have and functions do not.
// notInTheirRedis names the fields that the table redis has in scripts, but not in functions.
var (
	notInFunctions  = [...]string{"KEYS", "ARGV", "__redis__err__handler"}
	notInTheirRedis = [...]string{"breakpoint", "debug", "replicate_commands"}
)

// whileLoading names the constants in the table redis that the code of a library sees
// while the library loads.
var whileLoading = [...]string{
	"LOG_DEBUG", "LOG_VERBOSE", "LOG_NOTICE", "LOG_WARNING", "REDIS_VERSION", "REDIS_VERSION_NUM",
}

// openFunctions makes libEnv, the globals of libraries. Its metatable looks in libLoad while a library loads, and in libRun later:
// loading code may call less.
func (e *Engine) openFunctions() {
	L := e.L
	e.libRun = L.CreateTable(0, 32)
	e.globals.ForEach(func(name, v lua.LValue) { e.libRun.RawSet(name, v) })
	for _, name := range notInFunctions {
		e.libRun.RawSetString(name, lua.LNil)
	}
	scripts, api := e.lib("redis"), L.CreateTable(0, 32)
	scripts.ForEach(func(name, v lua.LValue) { api.RawSet(name, v) })
	for _, name := range notInTheirRedis {
		api.RawSetString(name, lua.LNil)
	}
	api.Metatable = e.protect
	e.libRun.RawSetString("redis", api)
	e.libRun.RawSetString("_G", e.libRun)
	e.libRun.Metatable = e.gmeta

	loading := L.CreateTable(0, 8)
	loading.RawSetString("register_function", e.function((*Engine).redisRegister))
	loading.RawSetString("log", e.function((*Engine).redisLog))
	for _, name := range whileLoading {
		loading.RawSetString(name, scripts.RawGetString(name))
	}
	loading.Metatable = e.gmeta
	e.loadingRedis = loading
	e.libLoad = L.CreateTable(0, 1)
	e.libLoad.RawSetString("redis", loading)
	e.libLoad.Metatable = e.gmeta

	e.libMeta = L.CreateTable(0, 1)
	e.libMeta.RawSetString("__index", e.libRun)
	e.libMeta.Metatable = e.protect
	e.libEnv = L.CreateTable(0, 0)
	e.libEnv.Metatable = e.libMeta
}

// loadLibrary compiles and runs a library's code. skip is the length of the first line. before is the used part of the time limit.
func (e *Engine) loadLibrary(name, code string, skip int, before time.Duration) (*loadedLibrary, store.Error) {
	done, fault := e.compile(&store.Ctx{ScriptTime: before}, code[skip:], "@user_function", 0)
	if e.stop != "" {
		if e.stop != msgMemory && e.stop != msgFault && e.stop != msgKilled {
			e.stop = msgLoad
		}
		return nil, errRegister("ERR " + e.stop)
	}
	if fault != nil {
		return nil, errLibraryCompile(fault.Error())
	}
	l := &loadedLibrary{
		lib: &store.Library{Name: name, Code: strings.Clone(code)},
		fns: map[string]*lua.LFunction{},
	}
	e.begin(&store.Ctx{}, "", true)
	e.allocated = done.used
	e.watchTexts(len(code))
	e.start(0, before+done.took)
	e.loading, e.keeps = l, true
	text := e.register(done.proto)
	if e.keepsTooMuch(l) && e.stop == "" {
		e.stop = msgKept
	}
	e.loading = nil
	if e.stop != "" {
		text = "ERR " + e.stop
	}
	if e.dirty {
		l.fns = nil // they belong to a Lua state that finish drops
	}
	e.finish()
	if text != "" {
		return nil, errRegister(text)
	}
	if len(l.lib.Functions) == 0 {
		return nil, errNoFunctions
	}
	return l, ""
}

// register runs the main chunk of a library, and returns the text of the error that stopped the chunk; "" if there was none.
func (e *Engine) register(proto *lua.FunctionProto) (text string) {
	defer e.contain()
	L := e.L
	L.Env = e.libEnv
	e.libMeta.RawSetString("__index", e.libLoad)
	defer func() {
		L.Env = e.globals
		e.libMeta.RawSetString("__index", e.libRun)
	}()
	L.Push(L.NewFunctionFromProto(proto))
	if failure, ok := e.protectedCall(L, 0, 0, nil); !ok {
		return e.replyText(e.failureText(failure))
	}
	return ""
}

// loaded returns a library whose functions can be called. Loading it counts toward the call's time limit.
func (e *Engine) loaded(c *store.Ctx, lib *store.Library) (*loadedLibrary, store.Error) {
	l := e.libs[lib.Name]
	if l != nil && (l.lib == lib || l.lib.Code == lib.Code) {
		l.lib = lib
		return l, ""
	}
	name, skip, err := parseLibrary(lib.Code)
	if err != "" {
		return nil, err
	}
	start := e.now()
	e.loads.Store(loadsLibraries)
	defer e.loads.Store(loadsNothing)
	if l, err = e.loadLibrary(name, lib.Code, skip, c.ScriptTime); err != "" {
		c.TookAll = e.tookAll()
		return nil, err
	}
	c.ScriptTime += e.now() - start
	l.lib = lib
	e.keep(l)
	return l, ""
}

// maxLoaded bounds the number of loaded libraries. Before the engine keeps one more, it drops all of them.
const maxLoaded = 1000

func (e *Engine) keep(l *loadedLibrary) {
	if len(e.libs) >= maxLoaded {
		e.forget()
	}
	e.libs[l.lib.Name] = l
}

// redisRegister implements redis.register_function.
func (e *Engine) redisRegister(L *lua.LState) int {
	if e.loading == nil {
		e.raise(L, msgRegisterLate)
	}
	var r registration
	var fault string
	switch L.GetTop() {
	case 1:
		fault = r.readNamed(e, L.Get(1))
	case 2:
		fault = r.readPositional(L.Get(1), L.Get(2))
	default:
		fault = msgRegisterArgs
	}
	if fault == "" {
		e.work(len(r.Name) / inStep)
		fault = e.loading.add(&r)
	}
	if fault != "" {
		e.raise(L, fault)
	}
	e.charge(int64(len(r.Name)+len(r.Description)) + 200)
	return 0
}

// registration holds the arguments of redis.register_function.
type registration struct {
	store.Function
	named    bool
	callback *lua.LFunction
}

func (r *registration) readPositional(name, callback lua.LValue) (fault string) {
	if r.Name, r.named = auxlib.ToString(name); !r.named {
		return msgRegisterName
	}
	var ok bool
	if r.callback, ok = callback.(*lua.LFunction); !ok {
		return msgRegisterCallback
	}
	return ""
}

func (r *registration) readNamed(e *Engine, v lua.LValue) (fault string) {
	t, ok := v.(*lua.LTable)
	if !ok {
		return msgRegisterTable
	}
	e.workSlots(t)
	for k, v := t.Next(lua.LNil); k != lua.LNil; k, v = t.Next(k) {
		name, ok := auxlib.ToString(k)
		if !ok {
			return msgRegisterKey
		}
		e.charge(int64(len(name)))
		if fault := r.readArgument(e, strings.ToLower(name), v); fault != "" {
			return fault
		}
	}
	switch {
	case !r.named:
		return msgRegisterNoName
	case r.callback == nil:
		return msgRegisterNoCallback
	}
	return ""
}

func (r *registration) readArgument(e *Engine, name string, v lua.LValue) (fault string) {
	ok := false
	switch name {
	case "function_name":
		if r.Name, r.named = auxlib.ToString(v); !r.named {
			return msgRegisterNamedName
		}
	case "description":
		if r.Description, r.Described = auxlib.ToString(v); !r.Described {
			return msgRegisterDescription
		}
	case "callback":
		if r.callback, ok = v.(*lua.LFunction); !ok {
			return msgRegisterNamedCallback
		}
	case "flags":
		t, ok := v.(*lua.LTable)
		if !ok {
			return msgRegisterFlags
		}
		return r.readFlags(e, t)
	default:
		return msgRegisterUnknown
	}
	return ""
}

func (r *registration) readFlags(e *Engine, t *lua.LTable) (fault string) {
	for i := 1; ; i++ {
		e.work(1)
		v := t.RawGetInt(i)
		if v == lua.LNil {
			return ""
		}
		name, _ := auxlib.ToString(v)
		e.charge(int64(len(name)))
		flag, ok := store.ParseFunctionFlag(strings.ToLower(name))
		if !ok {
			return msgRegisterFlag
		}
		r.Flags |= flag
	}
}

// add registers a function, or returns why the library cannot have it.
func (l *loadedLibrary) add(r *registration) (fault string) {
	if !legalName(r.Name) {
		return string(errBadName[len("ERR "):])
	}
	if l.fns[r.Name] != nil {
		return msgRegisterTwice
	}
	l.fns[r.Name] = r.callback
	l.lib.Functions = append(l.lib.Functions, r.Function)
	return ""
}
