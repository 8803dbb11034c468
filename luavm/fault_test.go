package luavm

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/luavm/internal/interp"
	"github.com/lockstep-io/lockstep/store"
)

// names returns n names for local variables.
func names(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("v%d", i)
	}
	return strings.Join(list, ",")
}

// faulty returns a world whose command PING has a fault, and the warnings in its log.
func faulty(t *testing.T) (w *world, logged *[]string) {
	logged = new([]string)
	w = newWorld(t, Options{Fault: func(msg string) { *logged = append(*logged, msg) }})
	w.table.Lookup([]byte("ping")).Run = func(*store.Ctx) store.Reply { panic("boom") }
	return w, logged
}

// TestFaultsEndTheScript: wherever a panic happens, it ends the script, is logged, and makes the engine drop the Lua state.
func TestFaultsEndTheScript(t *testing.T) {
	const ping = "redis.call('ping')"
	for name, body := range map[string]string{
		"plainly":            ping,
		"pcall":              "pcall(redis.call,'ping')",
		"xpcall":             "xpcall(function() " + ping + " end,function() return 1 end)",
		"handler":            "xpcall(error,function() " + ping + " end)",
		"resume":             "coroutine.resume(coroutine.create(function() " + ping + " end))",
		"wrap":               "pcall(coroutine.wrap(function() " + ping + " end))",
		"nested coroutines":  "coroutine.resume(coroutine.create(function() coroutine.resume(coroutine.create(function() " + ping + " end)) end))",
		"pcall in coroutine": "coroutine.resume(coroutine.create(function() pcall(function() " + ping + " end) end))",
		"second resume":      "local c=coroutine.create(function() coroutine.yield() " + ping + " end) coroutine.resume(c) coroutine.resume(c)",
		"metamethod":         "pcall(function() return -setmetatable({},{__unm=function() " + ping + " end}) end)",
		"comparison":         "pcall(table.sort,{1,2,3},function() " + ping + " end)",
	} {
		w, logged := faulty(t)
		state := w.e.L
		r := w.eval("redis.call('set','before','1') for i=1,2 do end " + body + " redis.call('set','after','1') return 'went on'")
		if !strings.Contains(r.Str, msgFault) || !strings.Contains(r.Str, "user_script:1") && name != "handler" && name != "pcall" {
			t.Errorf("%s: %q", name, r.Str)
		}
		if n := w.do(2, "exists", "before", "after").Int; n != 0 {
			t.Errorf("%s: %d of its writes remain", name, n)
		}
		if len(*logged) != 1 || !strings.Contains((*logged)[0], "boom, at github.com/lockstep-io/lockstep/luavm.faulty") {
			t.Errorf("%s: logged %q", name, *logged)
		}
		if w.e.L == state || !w.tookAllOf(body) {
			t.Errorf("%s: the Lua state is used again, or the time does not count", name)
		}
	}
}

// tookAllOf runs a script, and reports whether it counts as one that took all of its user's time.
func (w *world) tookAllOf(body string) bool {
	w.eval(body)
	return w.tookAll
}

// TestFaultLeavesNothing: a panic outside a protected call, such as in compiling, leaves the engine as it was.
func TestFaultLeavesNothing(t *testing.T) {
	fresh := newCanary(New(Options{})).shape.String()
	large := strings.Repeat("x", 3<<20)
	text := "local a=1 " + strings.Repeat("a=a+1 ", 1e5) + "return a"
	library := "#!lua name=l\nredis.register_function('f',function() return 1 end) "
	for _, command := range [][]string{
		{"eval", "for i=1,2 do end return 1", "0", large},
		{"eval", "return string.rep('x',3e6)", "0"},
		{"eval", text, "0"},
		{"script", "load", text},
		{"fcall", "f", "0", large},
		{"function", "load", "replace", library + "local t={} for i=1,1e5 do t[i]={} end"},
		{"function", "load", "replace", library + text},
	} {
		armed := false
		w := newWorld(t, Options{Bring: func(int) {
			if armed {
				panic("boom")
			}
		}})
		w.do(2, "function", "load", library)
		state := w.e.L
		armed = true
		r := w.doContained(command...)
		armed = false
		name := fmt.Sprintf("%.60q", command)
		if !strings.Contains(r.Str, msgFault) {
			t.Errorf("%s: %.200q", name, r.Str)
		}
		if w.e.Kill().Str != string(store.ErrNotBusy) || w.e.RunningFunction().Kind != store.Null || w.e.loading != nil || w.e.present.args != nil {
			t.Errorf("%s: it still runs", name)
		}
		if w.e.L == state {
			clear(w.e.libs) // no Lua has run, so the library is still loaded
		}
		if got := newCanary(w.e).shape.String(); got != fresh {
			t.Errorf("%s: %s", name, firstDifference(fresh, got))
		}
		if n := w.do(2, "fcall", "f", "0").Int; n != 1 || w.eval("for i=1,2 do end return 7").Int != 7 {
			t.Errorf("%s: the engine does not go on", name)
		}
	}
}

// doContained runs a command as the method do does, but recovers a panic and returns the panic's text as a reply.
func (w *world) doContained(args ...string) (r store.Reply) {
	defer func() {
		if p := recover(); p != nil {
			r.Str = fmt.Sprint("panic: ", p)
		}
	}()
	return w.do(2, args...)
}

// TestFaultAtGreatDepth: gopher-lua makes no trace of the calls when a fault ends them.
func TestFaultAtGreatDepth(t *testing.T) {
	for _, call := range []string{"redis.call('ping')", "coroutine.wrap(redis.call and function() redis.call('ping') end)()"} {
		w, _ := faulty(t)
		script := "local function f(n) if n==0 then " + call + " end return 1+f(n-1) end return f(19000)"
		w.eval(script)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r := w.eval(script)
		runtime.ReadMemStats(&after)
		if n := after.Mallocs - before.Mallocs; n > 15000 || !strings.Contains(r.Str, msgFault) {
			t.Errorf("%d allocations for %q", n, r.Str)
		}
	}
}

// TestNoRoomInATailCall: if a tail call finds no free registers, the script gets the ordinary error of a stack overflow.
func TestNoRoomInATailCall(t *testing.T) {
	w := newWorld(t, Options{})
	state := w.e.L
	script := "local function g() local " + names(190) + " return v0 end local function f() return g() end " +
		"local function h() local ok,e=pcall(f) if not ok then error(e,0) end return 1+h() end " +
		"local function fat(n) local " + names(184) + " if n==0 then return (h()) end return (fat(n-1)) end " +
		"local ok,e=pcall(fat,5500) return {tostring(ok),tostring(e)}"
	if got := wire(w.doContained("eval", script, "0"), 2); got != "*2\r\n$5\r\nfalse\r\n$29\r\nuser_script:1: stack overflow\r\n" {
		t.Errorf("%q", got)
	}
	if r := w.doContained("eval", "local t={} return 5", "0"); r.Int != 5 || w.e.L != state {
		t.Errorf("afterwards: %q", r.Str)
	}
}

// TestOverflowKeepsLibraries: what libraries keep outlives the stack overflow of a script.
func TestOverflowKeepsLibraries(t *testing.T) {
	w := newWorld(t, Options{})
	w.do(2, "function", "load", "#!lua name=l\nlocal n=0 redis.register_function('count',function() n=n+1 return n end)")
	for i, script := range []string{
		"local function f() return 1+f() end pcall(f)",
		"local function f() local " + names(190) + " return 1+f() end pcall(f)",
		"local function f() return 1+f() end coroutine.resume(coroutine.create(f))",
		"local function f(...) return 1+f(1,2,3,...) end f()",
	} {
		if r := w.do(2, "fcall", "count", "0"); r.Int != int64(i+1) {
			t.Errorf("before %.40q: %d %s", script, r.Int, r.Str)
		}
		w.eval(script)
		if n := cap(*interp.Registers(w.e.L)); n > keepRegisters {
			t.Errorf("%.40q: %d registers remain", script, n)
		}
	}
}

// TestRegistersGrowByDoubling: however deep the calls of a script are, the registers are copied only a few times. They count as
// memory of the script.
func TestRegistersGrowByDoubling(t *testing.T) {
	script := "local function f(n) local " + names(60) + " if n==0 then return 0 end return 1+f(n-1) end return f(10000)"
	w := newWorld(t, Options{})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r := w.eval(script)
	runtime.ReadMemStats(&after)
	if took := (after.TotalAlloc - before.TotalAlloc) >> 20; r.Int != 10000 || took > 48 {
		t.Errorf("%d %.100s: %d MiB were allocated", r.Int, r.Str, took)
	}
	if w.e.spent < 10000*60*registerSize+200000*instructionCost {
		t.Errorf("%d bytes were counted", w.e.spent)
	}
	mustFail(t, newWorld(t, Options{MemoryLimit: 8 << 20}), script, msgMemory)
}
