package luavm

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/store"
)

// tookBy returns the reply to a script, and how many bytes were allocated meanwhile.
func tookBy(w *world, script string) (reply string, took int64) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r := w.eval(script)
	runtime.ReadMemStats(&after)
	return r.Str, int64(after.TotalAlloc - before.TotalAlloc)
}

// TestUnchargedTexts: gopher-lua would allocate long texts within an instruction. The memory limit stops the script for them, as
// for all other memory.
func TestUnchargedTexts(t *testing.T) {
	const limit = 32 << 20
	name := strings.Repeat("a", 200_000)
	for _, script := range []string{
		"local k,t={},{} for i=1,1000 do k[i]=select(2,pcall(function() t." + name + "() end)) end",
		"local S,k=string.rep('x',2e6),{} local T=setmetatable({},{__concat=function(a,b) k[#k+1]=b return S end}) " +
			"for i=1,50 do local r='a'..T..'b'..T..'c'..T..'d'..T..'e'..T..'f'..T end",
		"local k={} for i=1,1e6 do k[i]=cjson.new() end",
		"local s,k=cmsgpack.pack({a=1}),{} for i=1,1e6 do k[i]=cmsgpack.unpack(s) end",
		"local k={} for i=1,1e6 do local t={} t.a=true k[i]=t end",
		"redis.call('set','k',string.rep('x',3e6)) local s=redis.call('get','k') return redis.call('echo'" + strings.Repeat(",s", 100) + ")",
	} {
		w := newWorld(t, Options{MemoryLimit: limit})
		if got, took := tookBy(w, script); !strings.Contains(got, msgMemory) || took > 6*limit {
			t.Errorf("%.80s\ntook %d MiB, %.100q", script, took>>20, got)
		}
	}
}

// TestLongKeyOfNoTable: a long key of a value that is no table is neither copied nor in the error.
func TestLongKeyOfNoTable(t *testing.T) {
	w := newWorld(t, Options{MemoryLimit: 64 << 20})
	const head = "local s=string.rep('x',1e7) local n local e for i=1,20 do e=select(2,pcall(function() "
	for code, want := range map[string]string{
		"return n[s]":                              "user_script:1: attempt to index upvalue 'n' (a nil value)",
		"n[s]=1":                                   "user_script:1: attempt to index upvalue 'n' (a nil value)",
		"return setmetatable({},{__index=5})[s]":   "user_script:1: attempt to index a number value",
		"setmetatable({},{__newindex=5})[s]=1":     "user_script:1: attempt to index a number value",
		"return tostring(({a=1})[s])..tostring(5)": "nil5",
	} {
		if got, took := tookBy(w, head+code+" end)) end return e"); got != want || took > 64<<20 {
			t.Errorf("%s: took %d MiB, %.100q", code, took>>20, got)
		}
	}
}

// TestLongKeyThatALibraryKeeps: a function can use a long text as a key that an earlier call of the function has made.
func TestLongKeyThatALibraryKeeps(t *testing.T) {
	w := newWorld(t, Options{MemoryLimit: 64 << 20})
	w.mustLoad(t, "#!lua name=keys\nlocal s,n\nredis.register_function('f',function() if s then "+
		"for i=1,20 do pcall(function() return n[s] end) end else s=string.rep('x',1e7) end end)")
	w.do(2, "fcall", "f", "0")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	w.do(2, "fcall", "f", "0")
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 8<<20 {
		t.Errorf("took %d MiB", took>>20)
	}
}

// TestConcatWithMetamethods: a __concat metamethod gets the same types of operands as in C Lua, and its result keeps its type.
func TestConcatWithMetamethods(t *testing.T) {
	w := newWorld(t, Options{})
	const head = "local T=setmetatable({},{__concat=function(a,b) return type(a)..type(b) end}) " +
		"local U=setmetatable({},{__concat=function() return 5 end}) "
	for code, want := range map[string]string{
		"return 'a'..1 ..T":  "anumbertable",
		"return T..'x'..2":   "tablestring",
		"return type(1 ..U)": "number",
		"return type(U..1)":  "number",
		"return T..''":       "tablestring",
	} {
		if got := w.eval(head + code).Str; got != want {
			t.Errorf("%s: %q, want %q", code, got, want)
		}
	}
}

// TestLongArrays: a script that adds to a full array is stopped. gopher-lua would put the element where scripts do not find it.
func TestLongArrays(t *testing.T) {
	w := newWorld(t, Options{MemoryLimit: 64 << 20})
	old := lua.MaxArrayIndex
	lua.MaxArrayIndex = 1 << 10
	defer func() { lua.MaxArrayIndex = old }()
	for _, code := range []string{"t[#t+1]=i", "table.insert(t,i)", "table.insert(t,1,i)", "rawset(t,i,i)"} {
		script := "local t={} for i=1,%d do " + code + " end return #t"
		if r := w.eval(fmt.Sprintf(script, 1<<10-1)); r.Int != 1<<10-1 {
			t.Errorf("%s: %v", code, r)
		}
		if r := w.eval(fmt.Sprintf(script, 1<<10)); !strings.Contains(r.Str, msgMemory) {
			t.Errorf("%s: %v", code, r)
		}
	}
	const absent = "local t={} for i=1,1023 do t[i]=i end t[5000]=nil t[1e9]=nil rawset(t,2000,nil) return #t"
	if r := w.eval(absent); r.Int != 1023 {
		t.Error(r)
	}
	if r := w.eval("local t={} t[5000]=1 t[1]=2 return t[5000]"); r.Int != 1 {
		t.Error(r)
	}
}

// TestDeadKeysGo: removed keys do not accumulate in a table, and the other keys keep their order.
func TestDeadKeysGo(t *testing.T) {
	w := newWorld(t, Options{MemoryLimit: 8 << 20})
	w.mustLoad(t, "#!lua name=dead\nlocal live,i={first=1,second=2},0 live[0.5]=3\nredis.register_function('f',function() "+
		"for j=1,200 do i=i+1 live['id'..i]=true live['id'..i]=nil end local n=0 for k,v in pairs(live) do n=n*10+v end return n end)")
	for call := range 600 {
		if r := w.do(2, "fcall", "f", "0"); r.IsError() || len(fmt.Sprint(r.Int)) != 3 {
			t.Fatalf("call %d: %v", call, r)
		}
	}
	if kept := w.e.Kept(); kept > 1<<20 {
		t.Errorf("%d bytes are kept", kept)
	}
}

// TestMemoryThatNobodyCharged: if a command of a script allocates and keeps too much, the script is stopped, too.
func TestMemoryThatNobodyCharged(t *testing.T) {
	var held [][]byte
	w := newWorld(t, Options{MemoryLimit: 16 << 20, Local: func(*store.Ctx) store.Reply {
		held = append(held, make([]byte, 64<<10))
		return store.OK
	}})
	w.e.Bind(store.NewTable([]store.Command{{Name: "role", Arity: 1, Flags: store.Local, Group: "server"}}))
	r := w.eval("for i=1,20000 do redis.call('role') end")
	if took := len(held) << 16; !strings.Contains(r.Str, msgMemory) || took > 64<<20 {
		t.Errorf("%d MiB held, %v", took>>20, r)
	}
}

// TestAbsentKeysTakeNothing: no table grows when a script sets an absent key to nil, however often.
func TestAbsentKeysTakeNothing(t *testing.T) {
	w := newWorld(t, Options{MemoryLimit: 8 << 20})
	r := w.eval("local t={} for i=1,8192 do t['k'..i]=i end for i=1,20000 do t.absent=nil t[0.5]=nil rawset(t,'x',nil) end return t.k8192")
	if r.Int != 8192 {
		t.Error(r)
	}
}
