package luavm

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/compile"
	"github.com/lockstep-io/lockstep/store"
)

func TestMemoryLimit(t *testing.T) {
	for _, script := range []string{
		"local s='x' while true do s=s..s end",
		"local s=string.rep('x',1e5) local t={} while true do t[#t+1]=s..#t end",
		"return string.rep('x',1e9)",
		"return string.rep(string.rep('x',1e4),1e4)",
		"local t={} while true do t[#t+1]={} end",
		"local t={} local i=0 while true do i=i+1 t['k'..i]=i end",
		"local t={} for i=1,1e9 do t[i]=i end",
		"local t={} for i=1,1e9 do t[i]=function() return t end end",
		"local t={} for i=1,1000 do local a={} a[4e6]=1 t[i]=a end",
		"local t={} while true do t={t} end",
		"local t={} while true do table.insert(t,'xxxxxxxxxxxx'..#t) end",
		"local t={} while true do t[#t+1]=coroutine.create(function() end) end",
		"local s=string.rep('x',1e6) return s:gsub('x',s)",
		"local s=string.rep('x',1e6) return s:gsub('x',string.rep('%0',50))",
		"local t={} for i=1,1000 do t[i]=string.rep('x',1e5) end return table.concat(t)",
		"local s,a=string.rep('x',1e6),{} for i=1,60 do a[i]=s end return string.format(string.rep('%s',60),unpack(a))",
		"local s='x' while true do s=s:rep(2) end",
		"local s='x' while true do pcall(function() s=s..s end) end",
		"local s='x' return pcall(function() while true do s=s..s end end)",
		"local s=string.rep('[',1e6) local t={} while true do t[#t+1]=pcall(cjson.decode,s) t[#t+1]=s..#t end",
		"local t={} for i=1,100 do t={t,t} end return cjson.encode(t)",
		"local t={} for i=1,100 do t={t,t} end return t",
		"local t={string.rep('x',1e6)} for i=1,10 do t={t,t} end return t",
		"local t={} for i=1,15 do t={t,t} end local r={} while true do r[#r+1]=cmsgpack.pack(t) end",
		"local s=string.rep('x',1e6) local t={} while true do t[#t+1]=s:upper() end",
		"local s=string.rep('x',1e6) local t={} while true do t[#t+1]=s:reverse() end",
		"local t={} while true do t[#t+1]={...,1,2,3,4,5,6,7,8,9,10} end",
		"local t={} while true do t[#t+1]={unpack({1,2,3,4,5,6,7,8,9,10})} end",
		"local s='return 1 ' while true do s=s..s loadstring(s) end",
		"local p={} for i=1,1e9 do p[i]=loadstring('return '..i) end",
		"local s,a=string.rep('x',1e6),{} for i=1,60 do a[i]=s end return struct.pack(string.rep('c0',60),unpack(a))",
		"local t={} while true do t[#t+1]=redis.sha1hex(#t) end",
		"error(string.rep('x',2e7))",
		"error(string.rep('x',2e7),0)",
		"error({err=string.rep('x',2e7)})",
		"assert(false,string.rep('x',2e7))",
		"return _G[string.rep('x',2e7)]",
		"return collectgarbage(string.rep('x',2e7))",
		"return redis.status_reply(string.rep('x',2e7))",
		"return redis.error_reply(string.rep('x',2e7))",
		"return {ok=string.rep('x',2e7)}",
		"return {err=string.rep('x\\n',1e7)}",
		"return {big_number=string.rep('x',2e7)}",
		"return {verbatim_string={format='txt',string=string.rep('x',2e7)}}",
		"return string.rep('x',2e7)",
		"local s=string.rep('x',1e6) return {s,s,s,s,s,s,s,s,s}",
		"return #cjson.encode({string.rep('\\1',1e7)})",
		"return #string.format('%q',string.rep('\\0',1e7))",
		"local s=string.rep('x',1e6) local t={} for i=1,60 do t[i]=s end return #cmsgpack.pack(t)",
		"local s=string.rep('x',1e6) local t={} for i=1,60 do t[i]=s end return #cjson.encode(t)",
		"return #cjson.decode('\"'..string.rep('x',15e6)..'\"')",
		"local s=string.rep('x',1e6) local t={} for i=1,60 do t[i]=pcall(error,s..i) and 1 or select(2,pcall(error,s..i)) end",
		"local t={} for i=1,1e6 do t[i]=select(2,pcall(error,{})) end",
	} {
		w := newWorld(t, Options{MemoryLimit: 32 << 20})
		var before, peak runtime.MemStats
		runtime.ReadMemStats(&before)
		r := w.eval(script)
		runtime.ReadMemStats(&peak)
		if grown := int64(peak.HeapSys) - int64(before.HeapSys); grown > 512<<20 {
			t.Errorf("%.200s\nthe heap grew by %d MiB", script, grown>>20)
		}
		if !r.IsError() || !strings.Contains(r.Str, "memory limit") {
			t.Errorf("%.200s\n got %.200q", script, r.Str)
		}
		w.e.L = nil
		debug.FreeOSMemory()
	}
}

// The engine tells Options.Bring how many bytes a script is about to allocate, even if they become garbage at once.
func TestScriptsBringWhatTheyAllocate(t *testing.T) {
	const slack = 16 << 20 // half of what the script may hold
	for _, script := range []string{
		"for i=1,100 do local s=string.rep('x',2e6) end",
		"local s=string.rep('x',2e6) for i=1,100 do local t=s..i end",
		"local s=string.rep('x',1e4) for i=1,2e4 do local t=s..i end",
		"local s=string.rep('x',2e6) for i=1,50 do local t=s:upper() end",
		"local s=string.rep('x',2e5) for i=1,50 do local t=s:gsub('x','yyyyy') end",
		"local s=string.rep('x',2e6) for i=1,50 do local t=cjson.encode({s}) end",
		"local s=string.rep('x',2e6) for i=1,50 do local t=redis.call('echo',s..i) end",
		"local s=string.rep('x',2e6) for i=1,50 do pcall(error,s..i) end",
		"for i=1,30 do local t={} for j=1,1e5 do t[j]=j end end",
		"for i=1,1e6 do local t={i} end",
	} {
		var start, now runtime.MemStats
		told, calls := int64(0), 0
		check := func() {
			runtime.ReadMemStats(&now)
			if took := int64(now.TotalAlloc - start.TotalAlloc); took > told+slack {
				t.Fatalf("%s\nallocated %d MB before it said so; it had told of %d MB", script, took>>20, told>>20)
			}
		}
		w := newWorld(t, Options{MemoryLimit: 32 << 20, Bring: func(bytes int) {
			check()
			calls++
			told += int64(bytes)
		}})
		runtime.ReadMemStats(&start)
		if r := w.eval(script); r.IsError() {
			t.Errorf("%s\n%s", script, r.Str)
		}
		check()
		if took := int64(now.TotalAlloc - start.TotalAlloc); took < 3*slack || calls < 5 {
			t.Errorf("%s\nallocated %d MB, and told of it %d times: it tests nothing", script, took>>20, calls)
		}
	}
}

func TestGarbageIsNoMemory(t *testing.T) {
	w := newWorld(t, Options{MemoryLimit: 16 << 20})
	for _, script := range []string{
		"local s=string.rep('x',1e5) local n=0 for i=1,2000 do n=n+#(s..i) end return n",
		"local n=0 for i=1,200000 do local t={i} n=n+t[1] end return n",
		"local s='' for i=1,5000 do s=s..'x' end return #s",
		"local n=0 for i=1,300 do local s=string.rep('x',1e6) n=n+#s end return n",
	} {
		if r := w.eval(script); r.IsError() {
			t.Errorf("%s\n%s", script, r.Str)
		}
	}
}

// A script that writes more than it may is stopped at the command that writes too much, and leaves no trace.
func TestScriptWritesTooMuch(t *testing.T) {
	for _, script := range []string{
		"for i=1,1e9 do redis.call('set','k'..i,string.rep('x',1e4)) end",
		"local s=string.rep('x',1e6) for i=1,1e9 do redis.pcall('rpush','k',s) end",
		"redis.call('set','k0',string.rep('x',4e6)) for i=1,1e9 do redis.call('copy','k0','k'..i) end",
		"for i=1,1e9 do pcall(redis.call,'setbit','k'..i,'8000000','1') end",
		"for i=1,1e9 do redis.call('publish','c',string.rep('x',1e4)) end",
	} {
		w := newWorld(t, Options{})
		if r := w.eval(script); !strings.HasPrefix(r.Str, string(store.ErrEntryTooBig(store.DefaultMaxEntry))) {
			t.Errorf("%s\n got %.200q", script, r.Str)
		}
		if got := w.do(2, "DBSIZE"); got.Int != 0 {
			t.Errorf("%s\nleft %d keys", script, got.Int)
		}
	}
}

// TestMemoryOfOneStep: the memory of a single step is charged before the step takes it, even if the result is much longer than the
// input.
func TestMemoryOfOneStep(t *testing.T) {
	const limit = 32 << 20
	for _, script := range []string{
		"local s=string.rep('\\1',1e7) return #cjson.encode({s})",
		"local s=string.rep('\\0',1e7) return #string.format('%q',s)",
		"local s=string.rep('x',1e6) local t={} for i=1,1000 do t[i]=s end return #cmsgpack.pack(t)",
		"local s=string.rep('x',1e6) local t={} for i=1,1000 do t[i]=s end return #table.concat(t,s)",
		"local s=string.rep('x',2e7) error(s)",
		"local s=string.rep('x',2e7) return redis.error_reply(s)",
		"local s=string.rep('x',1e5) return s:gsub('x',s)",
		"return struct.pack('c0',string.rep('x',2e7))",
	} {
		w := newWorld(t, Options{MemoryLimit: limit})
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r := w.eval(script)
		runtime.ReadMemStats(&after)
		if !strings.Contains(r.Str, "memory limit") {
			t.Errorf("%s\n got %.200q", script, r.Str)
		}
		// The figure counts all that was allocated, garbage included: a buffer leaves its old memory behind each time that it
		// grows.
		if took := int64(after.TotalAlloc - before.TotalAlloc); took > 4*limit {
			t.Errorf("%s\ntook %d MiB", script, took>>20)
		}
	}
}

// costlyText returns a text whose compiled form is over a hundred times larger. Only its head does anything.
func costlyText(head string, size int) string {
	const names = "a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q,r,s,t,u,v,w,x,y,z,A,B,C,D,E,F,G,H,I,J,K,L,M,N,O,P,Q,R,S,T,U,V,W,X,Y,Z"
	unit := strings.Repeat("function F()", 150) + "return " + names + strings.Repeat(" end", 150) + " "
	head += " do local " + names + " if nil then "
	return head + strings.Repeat(unit, (size-len(head))/len(unit)) + "end end "
}

// TestCompiledTextIsMemoryOfTheScript: compiling counts against a script's memory limit, whichever way the text comes, and is stopped
// early.
func TestCompiledTextIsMemoryOfTheScript(t *testing.T) {
	const limit = 16 << 20
	text := costlyText("", 1<<20-100)
	function := costlyText("redis.register_function('f',function() end)", 1<<20-100)
	w := newWorld(t, Options{MemoryLimit: 1 << 30})
	w.mustLoad(t, "#!lua name=l\n"+function)
	dump := w.do(2, "FUNCTION", "DUMP").Str
	for _, c := range [][]string{
		{"EVAL", text, "0"},
		{"EVAL_RO", text, "0"},
		{"SCRIPT", "LOAD", text},
		{"EVAL", "return loadstring(ARGV[1])", "0", text},
		{"EVAL", "local i=0 return load(function() i=i+1 return i==1 and ARGV[1] or nil end)", "0", text},
		{"EVAL", "for i=1,100 do pcall(loadstring,ARGV[1]) end", "0", text},
		{"FUNCTION", "LOAD", "#!lua name=l\n" + function},
		{"FUNCTION", "RESTORE", dump},
	} {
		w := newWorld(t, Options{MemoryLimit: limit})
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r := w.do(2, c...)
		runtime.ReadMemStats(&after)
		if !strings.Contains(r.Str, msgMemory) {
			t.Errorf("%.30q: %.200q", c, wire(r, 2))
		}
		if took := int64(after.TotalAlloc - before.TotalAlloc); took > 4*limit {
			t.Errorf("%.30q: took %d MiB", c, took>>20)
		}
		if r := w.eval("return 1"); r.Int != 1 {
			t.Errorf("%.30q: then %q", c, r.Str)
		}
	}
}

// TestGarbageHidesNoCompiledForm: the limit on a compiled form holds even if the heap does not seem to grow, because garbage is
// freed meanwhile.
func TestGarbageHidesNoCompiledForm(t *testing.T) {
	const limit = 16 << 20
	w := newWorld(t, Options{MemoryLimit: limit})
	text, kept := costlyText("", 1<<20-100), int64(0)
	w.e.begin(&store.Ctx{}, "", true)
	w.e.heapBase = 1 << 40 // as if the heap had been all garbage
	defer func() {
		if p := recover(); !isStopped(p) || w.e.stop != msgMemory || kept > limit {
			t.Errorf("%v, %q, %d bytes are kept", p, w.e.stop, kept)
		}
	}()
	_, err := compile.Chunk(text, "@x", 0, func(p compile.Progress) {
		kept = p.Kept
		w.e.heapBase = 1 << 40
		w.e.watchCompiler(p)
	})
	t.Errorf("%d bytes are kept: %v", kept, err)
}

// TestRunBeginsWithItsCompiledForm: the memory that compiling took counts when the script runs.
func TestRunBeginsWithItsCompiledForm(t *testing.T) {
	const limit = 64 << 20
	text := costlyText("", 80000)
	size := compiledSize(mustCompile(t, text))
	if size < limit/8 || size > limit/5 {
		t.Fatalf("%d bytes: it tests nothing", size)
	}
	// What the script in hold allocates would reach the limit even if only half of the compiled form counted.
	hold := fmt.Sprintf("local t={} for i=1,%d do t[i]=string.rep('x',1e4)..i end ", (limit-size/2)/10240)
	w := newWorld(t, Options{MemoryLimit: limit})
	runtime.GC() // what is garbage now is not the script's
	if r := w.eval(hold + text + "return 1"); !strings.Contains(r.Str, msgMemory) {
		t.Errorf("%q", wire(r, 2))
	}
	if r := w.eval(hold + "return 1"); r.Int != 1 {
		t.Errorf("without the compiled form: %q", wire(r, 2))
	}
	w.eval(text + "return 1")
	if w.e.spent < 2*size*3/4 {
		t.Errorf("a run begins with %d bytes, the compiled form takes %d", w.e.spent, size)
	}
}

// TestCompiledFormHasALimit: a script too large for the cache of compiled forms is refused, because each call would compile it again.
func TestCompiledFormHasALimit(t *testing.T) {
	script := "local x={" + strings.Repeat("function()end,", 20000) + "} return #x"
	size := 2*compiledSize(mustCompile(t, script)) + int64(len(script))
	if w := newWorld(t, Options{MemoryLimit: compiledShare * size}); w.eval(script).Int != 20000 {
		t.Error("a script that fits is refused")
	}
	w := newWorld(t, Options{MemoryLimit: compiledShare*size - 2})
	want := string(errCompiledSize(size, size-1))
	for _, c := range [][]string{{"EVAL", script, "0"}, {"EVAL", script, "0"}, {"SCRIPT", "LOAD", script}} {
		if r := w.do(2, c...); r.Str != want {
			t.Errorf("%.20q: %q, want %q", c, wire(r, 2), want)
		}
	}
	if r := w.do(2, "EVALSHA", scriptSHA(script), "0"); !strings.HasPrefix(r.Str, "NOSCRIPT") {
		t.Errorf("a refused script is known: %q", r.Str)
	}
}

func mustCompile(t *testing.T, source string) *lua.FunctionProto {
	p, err := compile.Chunk(source, "@user_script", 0, func(compile.Progress) {})
	if err != nil {
		t.Fatal(err)
	}
	return p
}
