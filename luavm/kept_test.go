package luavm

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/luavm/internal/interp"
)

// liveHeap returns how many bytes the heap holds without garbage.
func liveHeap() int64 {
	runtime.GC()
	runtime.GC() // of pools, too
	return heapBytes()
}

// growers keep something of each call; i counts the calls.
var growers = map[string]string{
	"strings":       "for j=1,100 do t[#t+1]=string.rep('x',1000)..i..j end",
	"arguments":     "t[i]=args",
	"numbers":       "for j=1,500 do t[i*1000+j+0.5]=j end",
	"few at a time": "t[i+0.5],t[i+0.6],t[i+0.7]=i,i,i",
	"small tables":  "for j=1,100 do local s={} s.a=true t[#t+1]=s end",
	"lone numbers":  "local x=i+0.5 for j=1,50 do local y=x for k=1,31 do y=y*1.000001 end t[#t+1]=y+0.25 end",
	"iterators":     "t[i]=string.rep('x',1e5):gmatch('x')",
	"coroutines":    "t[i]=coroutine.create(function() local s=string.rep('x',1e5) coroutine.yield() return s end) coroutine.resume(t[i])",
	"waiting":       "for j=1,20 do local c=coroutine.create(function() coroutine.yield() end) coroutine.resume(c) t[#t+1]=c end",
	"wrapped":       "t[i]=coroutine.wrap(function() local s=string.rep('x',1e5) coroutine.yield() return s end) t[i]()",
	"closures":      "for j=1,100 do local n=j t[#t+1]=function() n=n+1 return n end end",
	"code":          "t[i]=loadstring('return {'..string.rep('a,',1000)..'1}')",
	"metatables":    "for j=1,100 do t=setmetatable({},t) end",
	"json":          `t[i]=cjson.decode('{"a":["'..string.rep('x',1e5)..'"]}')`,
	"coders":        "for j=1,10 do t[#t+1]=cjson.new() end",
}

// Each of parts is code that keeps a part of something large. The rest of the large thing must not be kept with the part.
var parts = map[string]string{
	"keys":         "for j=1,50 do local k=string.rep('k',500)..i..','..j t[k]=1 t[k]=nil end",
	"dead numbers": "for j=1,1000 do local k=i*1000+j+0.5 t[k]=1 t[k]=nil end",
	"sub":          "t[i]=string.rep('x',1e5):sub(1,1)",
	"captures":     "t[i]=string.rep('x',1e5):match('^(x)')",
	"gsub":         "t[i]=string.gsub(string.rep('x',1e5),'^x+','')",
	"names":        "t[i]=loadstring('return 1','='..string.rep('x',1e5))",
	"replies":      "t[i]=redis.call('getrange',keys[1],0,0) redis.call('set',keys[1],string.rep('x',3e4))",
	"pack":         "t[i]=cmsgpack.unpack(cmsgpack.pack({string.rep('x',100),string.rep('y',1e5)}))[1]",
	"struct":       "t[i]=struct.unpack('c1',string.rep('x',1e5))",
}

// TestKeptStateIsBounded: a call of a library that keeps too much gets an error, and the library begins anew.
func TestKeptStateIsBounded(t *testing.T) {
	for name, code := range growers {
		t.Run(name, func(t *testing.T) { keep(t, code, 1<<20, true) })
	}
	for name, code := range parts {
		t.Run(name, func(t *testing.T) { keep(t, code, 200, false) })
	}
}

func keep(t *testing.T, code string, calls int64, ends bool) {
	const limit = 8 << 20
	w := newWorld(t, Options{MemoryLimit: limit})
	w.mustLoad(t, "#!lua name=grow\nlocal t,i={},0\nredis.register_function('grow',function(keys,args) i=i+1 "+code+" return i end)")
	before := liveHeap()
	for call := int64(1); call <= calls; call++ {
		r := w.do(2, "fcall", "grow", "1", "k", "an argument", "and another")
		if r.IsError() && (!ends || r.Str != "ERR "+msgKept) {
			t.Fatal(r.Str)
		}
		if grown := int64(0); call%50 == 0 || r.IsError() {
			if grown = liveHeap() - before; grown > limit || r.IsError() && grown > limit/4 {
				t.Fatalf("%d bytes are kept after %d calls; %v", grown, call, r)
			}
		}
		if r.IsError() {
			if r := w.do(2, "fcall", "grow", "1", "k", "a", "b"); r.Int != 1 {
				t.Errorf("afterwards: %v", r)
			}
			return
		}
		if r.Int != call {
			t.Fatalf("call %d says %v: its state is gone, and nobody was told", call, r)
		}
	}
	if ends {
		t.Error("there is no end to it")
	}
}

// TestSmallStateIsKept: the state of a small library stays, however often its functions are called,
// and even if another library keeps too much.
func TestSmallStateIsKept(t *testing.T) {
	w := newWorld(t, Options{MemoryLimit: 8 << 20})
	w.mustLoad(t, counterLibrary)
	w.mustLoad(t, "#!lua name=work\nlocal t={} for i=1,1000 do t[i]={i} end\nredis.register_function('work',function() local n={} for i=1,1000 do n[i]={} end t[#t]={1} return #t end)")
	w.mustLoad(t, "#!lua name=larger\nlocal t={}\nredis.register_function('larger',function() t[#t+1]=string.rep('x',1e5) return #t end)")
	anew := 0
	for i := int64(1); i <= 2000; i++ {
		if r := w.do(2, "fcall", "count", "0"); r.Int != i {
			t.Fatalf("count is %v, want %d", r, i)
		}
		if r := w.do(2, "fcall", "work", "0"); r.Int != 1000 {
			t.Fatal(r)
		}
		if r := w.do(2, "fcall", "larger", "0"); r.IsError() || r.Int == 1 {
			anew++
		}
	}
	if anew < 2 {
		t.Error("nothing has begun anew")
	}
}

const largeLibrary = `#!lua name=large
local t = {}
redis.register_function('fill', function() for i = 1, 100000 do t[#t+1] = {i} end return #t end)
redis.register_function('walk', function() for i = 1, 200000 do end return #t end)`

// TestOnlyWhatMayHaveGrownIsMeasured: a call of one library causes no walk over the data of another library. A call
// that does little causes no walk at all.
func TestOnlyWhatMayHaveGrownIsMeasured(t *testing.T) {
	w := newWorld(t, Options{MemoryLimit: 128 << 20})
	w.mustLoad(t, largeLibrary)
	w.mustLoad(t, counterLibrary)
	w.mustLoad(t, "#!lua name=small\nredis.register_function('other',function() for i=1,200000 do end return 1 end)")
	w.do(2, "fcall", "fill", "0")
	for range 5 {
		w.do(2, "fcall", "other", "0")
	}
	if w.e.walked < 100000 {
		t.Fatalf("%d values were met: it tests nothing", w.e.walked)
	}
	for fn, calls := range map[string]int{"other": 20, "count": 1000} {
		before := w.e.walked
		for range calls {
			if r := w.do(2, "fcall", fn, "0"); r.IsError() {
				t.Fatal(r)
			}
		}
		if n := w.e.walked - before; n > 1000 {
			t.Errorf("%d calls of %s met %d values", calls, fn, n)
		}
	}
}

// TestMeasuringIsTimeOfTheScript: the walk over what a library keeps counts as time of the call. So a user whose library keeps much
// pays for the walk.
func TestMeasuringIsTimeOfTheScript(t *testing.T) {
	w := newWorld(t, Options{MemoryLimit: 128 << 20, Now: tick()})
	w.mustLoad(t, largeLibrary)
	w.do(2, "fcall", "fill", "0")
	w.do(2, "fcall", "fill", "0")
	w.e.SetTimeLimit(1500 * time.Millisecond) // a call of the function walk alone has some 800 looks at the clock, a millisecond apart
	for range 5 {
		if r := w.do(2, "fcall", "walk", "0"); r.IsError() {
			if !strings.Contains(r.Str, "time limit") || w.e.Kept() != 0 {
				t.Error(r.Str, w.e.Kept())
			}
			if r := w.do(2, "fcall", "walk", "0"); r.IsError() || r.Int != 0 {
				t.Errorf("afterwards: %d %s", r.Int, r.Str)
			}
			return
		}
	}
	t.Error("no walk took any time")
}

// TestManyLibrariesAreBounded: each library may keep something when it is loaded. But all libraries together may keep no more than
// a single one may.
func TestManyLibrariesAreBounded(t *testing.T) {
	const limit, count = 8 << 20, 100
	w := newWorld(t, Options{MemoryLimit: limit})
	before := liveHeap()
	check := func(when string) {
		t.Helper()
		if grown := liveHeap() - before; grown > limit {
			t.Errorf("%d bytes are kept %s", grown, when)
		}
	}
	for i := range count {
		w.mustLoad(t, fmt.Sprintf("#!lua name=lib%d\nlocal s='x' for i=1,20 do s=s..s end\nredis.register_function('f%d',function() return #s end)", i, i))
	}
	check("after FUNCTION LOAD")
	for i := range count {
		if r := w.do(2, "fcall", fmt.Sprint("f", i), "0"); r.Int != 1<<20 {
			t.Fatal(r)
		}
	}
	check("after calls")
	dump := w.do(2, "function", "dump").Str
	if r := w.do(2, "function", "restore", dump, "flush"); r.IsError() {
		t.Fatal(r)
	}
	check("after FUNCTION RESTORE")
	if kept := w.e.Kept(); kept > limit/keptShare {
		t.Errorf("%d bytes are said to be kept", kept)
	}
	large := "#!lua name=large\nlocal t,s={},'x' for i=1,16 do s=s..s end for i=1,100 do t[i]=s..i end\nredis.register_function('large',function() return #t end)"
	if r := w.do(2, "function", "load", large); !strings.Contains(r.Str, msgKept) {
		t.Error(r)
	}
}

// TestEndedScriptsHoldNothing: the engine keeps no value of a script that has ended, however deep its calls were.
func TestEndedScriptsHoldNothing(t *testing.T) {
	const limit = 8 << 20
	w := newWorld(t, Options{MemoryLimit: limit})
	before := liveHeap()
	for depth := 40; depth >= 0; depth-- {
		r := w.eval(fmt.Sprintf("local t={} for i=1,50 do t[i]=string.rep('x',1e5)..i end "+
			"local function f(n) if n>0 then return 1+f(n-1) end return #t end return f(%d)", depth))
		if r.Int != int64(50+depth) {
			t.Fatal(r)
		}
		if held := liveHeap() - before; held > limit/4 {
			t.Fatalf("%d bytes are held after a script with calls nested %d deep", held, depth)
		}
	}
	if r := w.eval("return select('#', unpack({}, 1, 7000))"); r.Int != 7000 {
		t.Fatal(r)
	}
	if r := w.eval("local function f(...) local n = select('#', ...) if n < 4000 then return f(1, 2, 3, 4, 5, 6, 7, 8, ...) end return n end return f()"); r.IsError() {
		t.Fatal(r)
	}
	if n := cap(*interp.Registers(w.e.L)); n > keepRegisters {
		t.Errorf("%d registers are kept", n)
	}
}

// TestCompiledFormsAreBounded: the bound on compiled scripts counts the memory of the compiled forms, not only that of the texts.
func TestCompiledFormsAreBounded(t *testing.T) {
	const limit = 8 << 20
	w := newWorld(t, Options{MemoryLimit: limit})
	w.eval("return 1")
	before := liveHeap()
	for _, size := range []int{10, 1000, 5000} {
		for i := range 100 {
			w.eval(fmt.Sprintf("if KEYS[1] then %s end return %d", strings.Repeat("f(function() end) ", size), i), "k")
			if i%20 != 19 {
				continue
			}
			w.reset() // the store has their texts
			if grown := liveHeap() - before; grown > limit {
				t.Fatalf("%d bytes are kept after %d scripts with %d functions", grown, i, size)
			}
		}
	}
	large := strings.Repeat("f(function() end) ", 50000)
	for range 2 {
		if r := w.eval(large); !strings.Contains(r.Str, msgMemory) {
			t.Fatal(r)
		}
	}
	w.reset()
	if grown := liveHeap() - before; grown > limit {
		t.Errorf("%d bytes are kept of a large script", grown)
	}
}

// BenchmarkFunction measures one call of a function that counts.
func BenchmarkFunction(b *testing.B) {
	w := newWorld(b, Options{MemoryLimit: 28 << 20})
	w.mustLoad(b, counterLibrary)
	b.ReportAllocs()
	for b.Loop() {
		if r := w.do(2, "fcall", "count", "0"); r.IsError() {
			b.Fatal(r)
		}
	}
}

// BenchmarkFunctionWithState measures the call of BenchmarkFunction while another library keeps 20,000 tables.
func BenchmarkFunctionWithState(b *testing.B) {
	w := newWorld(b, Options{MemoryLimit: 28 << 20})
	w.mustLoad(b, "#!lua name=state\nlocal t={} for i=1,20000 do t[i]={i} end redis.register_function('large',function() return #t end)")
	w.do(2, "fcall", "large", "0")
	w.mustLoad(b, counterLibrary)
	for b.Loop() {
		if r := w.do(2, "fcall", "count", "0"); r.IsError() {
			b.Fatal(r)
		}
	}
}

// TestUndoneCalls: when calls of functions are undone, the locals of their libraries start anew, and those of other libraries stay.
func TestUndoneCalls(t *testing.T) {
	w := newWorld(t, Options{})
	library := func(i int) string {
		return fmt.Sprintf("#!lua name=l%d\nlocal n = 0 redis.register_function('f%d', function() n = n + 1 return n end)", i, i)
	}
	w.mustLoad(t, library(1))
	w.mustLoad(t, library(2))
	call := func(name string, want int64) {
		t.Helper()
		if r := w.do(2, "fcall", name, "0"); r.Int != want {
			t.Errorf("%s: %v, want %d", name, r, want)
		}
	}
	call("f1", 1)
	call("f2", 1)
	w.e.Settle()
	w.e.Undo()
	call("f1", 2)
	w.e.Undo()
	call("f1", 1)
	call("f2", 2)
	w.e.Settle()
	w.e.Forget()
	call("f1", 1)
	call("f2", 1)
}
