package luavm

import (
	"fmt"
	"strings"
	"testing"
	"time"

	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/interp"
)

// openUpvalues counts the captured variables of L that are in their registers.
func openUpvalues(L *lua.LState) (n int) {
	for u := *interp.OpenPlace(L); u != nil; u = *interp.NextPlace(u) {
		n++
	}
	return n
}

// onRaise calls the function see whenever an error is raised, before anything catches the error. The argument is the Lua state in which
// it was raised.
func onRaise(e *Engine, see func(*lua.LState)) {
	theirs := lua.NewState(lua.Options{SkipOpenLibs: true})
	theirs.SetContext(newHook(e, theirs))
	run := *interp.LoopPlace(theirs)
	e.watchedLoop = e.counted(func(L *lua.LState, base *interp.Frame) {
		ended := false
		defer func() {
			if !ended {
				see(L)
			}
		}()
		run(L, base)
		ended = true
	})
	*interp.LoopPlace(e.L) = e.watchedLoop
}

// captures defines the Lua function build, which nests k calls with 40 captured variables each, and then a thousand that fail.
var captures = func() string {
	var names []string
	for i := range 40 {
		names = append(names, fmt.Sprint("v", i))
	}
	list := strings.Join(names, ",")
	return `local kept = {}
local function deep(n) if n == 0 then fail() end return (deep(n - 1)) end
local function build(k)
  if k == 0 then return (deep(1000)) end
  local ` + list + `
  kept[k] = function(v) if v then ` + list + " = v" + strings.Repeat(",v", 39) + " end return " + list + ` end
  v0, v39 = k, -k
  return (build(k - 1))
end
`
}()

// checkCaptures checks that the functions that the function build has kept still have their variables.
const checkCaptures = `
local a,b,c,d,e,f,g,h
for k = 1, 100 do
  local v = {kept[k]()}
  if v[1] ~= k or v[40] ~= -k then return k end
  kept[k](7)
end
return {a or 0, (select(40, kept[100]()))}`

// TestErrorsLeaveVariablesAlone: raising an error moves no captured variable, however many calls the error ends. The
// pcall that catches the error moves each variable once.
func TestErrorsLeaveVariablesAlone(t *testing.T) {
	for name, fail := range map[string]string{
		"a text":               "local function fail() error('x') end ",
		"a table":              "local function fail() error({}) end ",
		"of the interpreter":   "local fail = nil ",
		"of a command":         "local function fail() redis.call('nosuch') end ",
		"of a library":         "local function fail() cjson.decode('{') end ",
		"a failing metamethod": "local fail = setmetatable({}, {__call = function() return nil + 1 end}) ",
	} {
		for _, call := range []string{
			"pcall(build, 100)", "xpcall(function() return (build(100)) end, tostring)",
			"coroutine.resume(coroutine.create(build), 100)", "pcall(coroutine.wrap(build), 100)",
			"(function() return pcall(build, 100) end)()",
		} {
			w := newWorld(t, Options{})
			most := 0
			onRaise(w.e, func(L *lua.LState) { most = max(most, openUpvalues(L)) })
			if got := wire(w.eval(fail+captures+call+checkCaptures), 2); got != "*2\r\n:0\r\n:7\r\n" {
				t.Errorf("%s, %s: got %q", name, call, got)
			}
			if most < 4000 {
				t.Errorf("%s, %s: %d variables are in their registers when the error is raised", name, call, most)
			}
			if n := openUpvalues(w.e.L); n != 0 {
				t.Errorf("%s, %s: %d variables remain in registers", name, call, n)
			}
		}
	}
}

// TestLibrariesShareNoVariables: a function may have captured variables of a call that failed. No other code can read or change
// these variables.
func TestLibrariesShareNoVariables(t *testing.T) {
	const body = `#!lua name=one
local get, set
local function body()
  local a,b,c,d,e,f,g,h = 1,2,3,4,5,6,7,8
  get = function() return {a,b,c,d,e,f,g,h} end
  set = function(v) a,b,c,d,e,f,g,h = v,v,v,v,v,v,v,v end
  %s
end
redis.register_function('plant', function() %s end)
redis.register_function('read', function() return get() end)
redis.register_function('write', function() set(9) return get() end)`
	const other = `#!lua name=two
redis.register_function('other', function()
  local a,b,c,d,e,f,g,h = 'a','b','c','d','e','f','g','h'
  local get = function() return table.concat({a,b,c,d,e,f,g,h}) end
  local stolen = a..b..c..d..e..f..g..h
  return stolen..get()
end)`
	const script = `local a,b,c,d,e,f,g,h = 'a','b','c','d','e','f','g','h'
local get = function() return table.concat({a,b,c,d,e,f,g,h}) end
return a..b..c..d..e..f..g..h..get()`
	for _, end := range []string{"error('x')", "error({})", "return nil + 1", "redis.call('nosuch')", "return 1", "local function r() return 1 + r() end r()"} {
		for _, plant := range []string{
			"return xpcall(body, tostring)", "return (xpcall(body, tostring))", "return pcall(body)", "return body()", "return (body())",
			"return xpcall(body, function() error('y') end)", "return coroutine.wrap(body)()", "xpcall(body, function(e) return e end) error('z')",
		} {
			w := newWorld(t, Options{})
			for _, code := range []string{fmt.Sprintf(body, end, plant), other} {
				if r := w.do(2, "function", "load", code); r.IsError() {
					t.Fatal(r.Str)
				}
			}
			play := func(want string, cmd ...string) {
				t.Helper()
				if got := wire(w.do(2, cmd...), 2); got != want {
					t.Errorf("%s, %s: %q: got %q", end, plant, cmd, got)
				}
				if n := openUpvalues(w.e.L); n != 0 {
					t.Errorf("%s, %s: %q: %d variables remain in registers", end, plant, cmd, n)
				}
			}
			letters := "$16\r\nabcdefghabcdefgh\r\n"
			w.do(2, "fcall", "plant", "0")
			if n := openUpvalues(w.e.L); n != 0 {
				t.Errorf("%s, %s: %d variables remain in registers", end, plant, n)
			}
			play(letters, "fcall", "other", "0")
			play(letters, "eval", script, "0")
			if w.e.libs["one"] == nil {
				continue // a stack overflow takes the state away
			}
			play("*8\r\n:1\r\n:2\r\n:3\r\n:4\r\n:5\r\n:6\r\n:7\r\n:8\r\n", "fcall", "read", "0")
			play("*8"+strings.Repeat("\r\n:9", 8)+"\r\n", "fcall", "write", "0")
			play(letters, "fcall", "other", "0")
			play(letters, "eval", script, "0")
		}
	}
}

// TestStopsLeaveNoVariables: wherever a script is stopped, it leaves nothing in registers.
func TestStopsLeaveNoVariables(t *testing.T) {
	const endless = "local x = 1 local function get() return x end while true do get() end"
	for _, script := range []string{
		endless, "pcall(function() " + endless + " end)", "xpcall(function() " + endless + " end, tostring)",
		"local y local function f() return y end xpcall(error, function() " + endless + " end)",
		"local y local function f() return y end coroutine.wrap(function() pcall(function() " + endless + " end) end)()",
	} {
		w := newWorld(t, Options{Now: tick(), TimeLimit: 100 * time.Millisecond})
		mustFail(t, w, script, msgTime)
		if n := openUpvalues(w.e.L); n != 0 {
			t.Errorf("%s: %d variables remain in registers", script, n)
		}
	}
}
