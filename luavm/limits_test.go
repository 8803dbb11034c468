package luavm

import (
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// tick is a clock that moves by a millisecond whenever it is asked.
func tick() func() time.Duration {
	now := time.Duration(0)
	return func() time.Duration { now += time.Millisecond; return now }
}

// mustFail checks that a script ends in an error that contains a text.
func mustFail(t *testing.T, w *world, script, text string) {
	t.Helper()
	r := w.eval(script)
	if !r.IsError() || !strings.Contains(r.Str, text) {
		if len(r.Str) > 300 {
			r.Str = r.Str[:300]
		}
		t.Errorf("%.200s\n got %q\nwant an error with %q", script, r.Str, text)
	}
	// The engine goes on.
	if r := w.eval("return redis.call('echo','alive')"); r.Str != "alive" {
		t.Fatalf("after %.200s: %q", script, r.Str)
	}
}

func TestTimeLimit(t *testing.T) {
	for _, script := range []string{
		"while true do end",
		"repeat until false",
		"for i=1,1e18 do end",
		"local function f() return f() end f()",
		"while true do pcall(error) end",
		"while true do pcall(function() while true do end end) end",
		"return pcall(function() while true do end end)",
		"while true do xpcall(function() while true do end end, function(e) while true do end end) end",
		"pcall(pcall, function() while true do end end) return 1",
		"coroutine.wrap(function() while true do end end)() return 1",
		"return coroutine.resume(coroutine.create(function() while true do end end))",
		"local c = coroutine.wrap(function() while true do coroutine.yield() end end) while true do c() end",
		"local t = setmetatable({},{__index=function() while true do end end}) return pcall(function() return t.x end)",
		"table.sort({1,2,3},function() while true do end end)",
		"string.gsub('x','x',function() while true do end end)",
		"for k in function() return 1 end do end",
		"while true do redis.call('echo','x') end",
		"while true do redis.pcall('nosuch') end",
		"while true do loadstring('return 1')() end",
		"load(function() while true do end end)",
		"return string.find(string.rep('a',30000), string.rep('a?',200)..string.rep('a',200)..'b')",
		"return string.find(string.rep('a',5000), '.-.-.-.-b')",
		"return string.rep('x',1e6):find(('.-'):rep(10)..'y')",
		"while true do table.concat({1,2,3}) end",
		"local t={} for i=1,1000 do t[i]=i end while true do table.sort(t,function(a,b) return a>b end) end",
		"local s=string.rep('(',1000) while true do pcall(loadstring,s) end",
	} {
		w := newWorld(t, Options{Now: tick(), TimeLimit: 2 * time.Second})
		mustFail(t, w, script, "time limit")
		w.stopAfter = time.Second
		w.do(2, "eval", "redis.call('set','a','b') "+script, "0")
		if !w.forNow || w.do(2, "exists", "a").Int != 0 {
			t.Errorf("%.200s\nwas not stopped for now, or left something (%v)", script, !w.forNow)
		}
		if w.eval("return 1"); w.forNow {
			t.Error("a short script was stopped for now")
		}
	}
}

func TestNoTimeLimitBelowIt(t *testing.T) {
	w := newWorld(t, Options{Now: func() time.Duration { return 0 }, TimeLimit: time.Millisecond})
	if r := w.eval("local n=0 for i=1,1e5 do n=n+i end return n"); r.Int != 5000050000 {
		t.Fatal(r)
	}
}

func TestSetTimeLimit(t *testing.T) {
	w := newWorld(t, Options{Now: tick()})
	w.e.SetTimeLimit(time.Second)
	mustFail(t, w, "while true do end", "time limit")
}

// While a library is loaded, a script is stopped for now only after StopKept, because a stop drops what the library keeps.
func TestLibrariesAreNotBegunAnewForOthers(t *testing.T) {
	w := newWorld(t, Options{Now: tick(), TimeLimit: time.Hour})
	w.do(2, "FUNCTION", "LOAD", "#!lua name=l\nlocal n=0 redis.register_function('count',function() n=n+1 for i=1,1e5 do end return n end)")
	w.stopAfter = time.Millisecond
	for i := range int64(5) {
		if r := w.do(2, "FCALL", "count", "0"); r.Int != i+1 || w.forNow {
			t.Errorf("call %d: %d %s, stopped %v", i+1, r.Int, r.Str, w.forNow)
		}
		if r := w.eval("for i=1,1e5 do end return 7"); r.Int != 7 || w.forNow {
			t.Errorf("a script beside it: %d %s, stopped %v", r.Int, r.Str, w.forNow)
		}
	}
	w.stopKept = time.Second
	if w.eval("while true do pcall(function() while true do end end) end"); !w.forNow {
		t.Error("an endless script was not stopped for now")
	}
}

// The time of the commands that a script runs counts as time of the script.
func TestCommandsOfAScriptAreWatched(t *testing.T) {
	w := newWorld(t, Options{Now: tick(), TimeLimit: 20 * time.Millisecond})
	w.do(2, "SADD", "s", strings.Repeat("a", 64<<10))
	mustFail(t, w, "local k={} for i=1,1000 do k[i]='s' end return redis.pcall('sunion',unpack(k))", msgTime)
	mustFail(t, w, "for i=1,30 do redis.pcall('sscan','s','0','match','*'..string.rep('?a',1000)..'b') end", msgTime)
}

func TestRecursion(t *testing.T) {
	defer debug.SetMaxStack(debug.SetMaxStack(32 << 20)) // nothing here needs more of Go's stack
	w := newWorld(t, Options{})
	mustFail(t, w, "local function f() return 1+f() end f()", "user_script:1: stack overflow")
	mustFail(t, w, "local function f(...) return 1+f(1,2,3,...) end f()", "stack overflow")
	mustFail(t, w, "local t={} for i=1,2^13 do t[i]=i end for i=1,#t do t[i]=nil end local function f() return #t+f() end f()", "user_script:1: stack overflow")
	mustFail(t, w, "local s=string.rep('x',2000) local function f() s:find('y') return 1+f() end f()", "user_script:1: stack overflow")
	mustFail(t, w, "local t t=setmetatable({},{__index=function(_,k) return t[k..'x'] end}) return t.a", "C stack overflow")
	mustFail(t, w, "local t t=setmetatable({},{__tostring=function() return tostring(t) end}) return tostring(t)", "stack overflow")
	mustFail(t, w, "local function f() table.sort({1,2},f) end f()", "stack overflow")
	mustFail(t, w, "local function f() string.gsub('x','x',f) end f()", "stack overflow")
	mustFail(t, w, "local function f() local ok,e=pcall(f) if not ok then error(e,0) end end f()", "C stack overflow")
	mustFail(t, w, "return string.find(string.rep('x',1e6),string.rep('(x)',31)..string.rep('x-',1e5)..'y')", "pattern too complex")
	mustFail(t, w, "local function f(n) if n==0 then return coroutine.wrap(f)(300) end return string.gsub('x','x',function() f(n-1) end) end f(300)", "C stack overflow")
	mustFail(t, w, "local t={} t[t]=table.foreach coroutine.wrap(function() table.foreach(t,table.foreach) end)()", "C stack overflow")
	mustFail(t, w, "cjson.encode_max_depth(1e9) local t={} t[1]=t return cjson.encode(t)", "excessive nesting (7998)")
	mustFail(t, w, "cjson.decode_max_depth(1e9) return cjson.decode(string.rep('[',1e6))", "nested data structures (7999)")
	mustFail(t, w, "return cmsgpack.unpack(string.rep('\\129',1e6))", "stack overflow")
	mustFail(t, w, "local function f() local c=coroutine.wrap(f) return c() end f()", "C stack overflow")
	mustFail(t, w, "local t t"+strings.Repeat(".a", 1e5)+"=1", "attempt to index local 't'")
	mustFail(t, w, "local a=1 "+strings.Repeat("a=a+1 ", 1e5)+"error(a)", "100001")
	mustFail(t, w, "error(#{"+strings.Repeat("1,", 1e5)+"})", "100000")
}

func TestStoppedScriptLeavesNoTrace(t *testing.T) {
	w := newWorld(t, Options{Now: tick(), TimeLimit: time.Second})
	w.do(2, "set", "a", "before")
	w.do(2, "hset", "h", "f", "before")
	const loop = "redis.call('set','a','x') redis.call('set','b','x') redis.call('hset','h','f','x') redis.call('del','h') while true do end"
	mustFail(t, w, loop, "time limit")
	for _, c := range [][]string{{"a", "before"}, {"b", ""}} {
		if r := w.do(2, "get", c[0]); r.Str != c[1] {
			t.Errorf("%s is %q", c[0], r.Str)
		}
	}
	if r := w.do(2, "hget", "h", "f"); r.Str != "before" {
		t.Errorf("h is %q", r.Str)
	}
	if r := w.do(2, "evalsha", scriptSHA(loop), "0"); !strings.HasPrefix(r.Str, "NOSCRIPT") {
		t.Errorf("the stopped script stayed in the cache: %q", r.Str)
	}
	w.reset()
	w.do(2, "set", "a", "before")
	size := len(w.txn.Writes().Bytes())
	w.eval(loop)
	if n := len(w.txn.Writes().Bytes()); n != size {
		t.Errorf("the write set grew from %d to %d bytes", size, n)
	}
}

func TestFailedScriptKeepsItsWrites(t *testing.T) {
	w := newWorld(t, Options{})
	mustFail(t, w, "redis.call('set','a','x') error('boom')", "boom")
	if r := w.do(2, "get", "a"); r.Str != "x" {
		t.Fatal(r)
	}
}

func TestKill(t *testing.T) {
	if r := New(Options{}).Kill(); r.Str != string(store.ErrNotBusy) {
		t.Fatal(r)
	}
	for _, script := range []string{"while true do end", "while true do pcall(function() while true do end end) end"} {
		w := newWorld(t, Options{Now: tick()})
		answer := make(chan store.Reply)
		go func() { answer <- w.eval(script) }()
		var r store.Reply
		for r = w.e.Kill(); r.IsError(); r = w.e.Kill() {
			runtime.Gosched()
		}
		if since, running := w.e.BusySince(); running && since < 0 {
			t.Error("busy since", since)
		}
		want := "ERR Script killed by user with SCRIPT KILL... script: " + scriptSHA(script) + ", on @user_script:1."
		if got := <-answer; got.Str != want {
			t.Errorf("got %q\nwant %q", got.Str, want)
		}
		if _, running := w.e.BusySince(); running || w.e.Running() {
			t.Error("still busy")
		}
	}
}

// TestCopiedValuesAreSteps: a script that copies many values in a few instructions does not count as a short script.
func TestCopiedValuesAreSteps(t *testing.T) {
	for _, body := range []string{
		"local function f(...) return f(1,...) end return f(1)",
		"local function f(...) local t = {...} return f(1,...) end return f(1)",
	} {
		now := time.Duration(0)
		w := newWorld(t, Options{Now: func() time.Duration { now += 10 * time.Microsecond; return now }, TimeLimit: time.Second, MemoryLimit: 1 << 30})
		c := &store.Ctx{Txn: w.txn, RESP: 2, ScriptTime: time.Second, Args: [][]byte{[]byte("eval"), []byte(body), []byte("0")}}
		cmd, _ := w.table.Resolve(c.Args)
		if r := cmd.Run(c); !strings.Contains(r.Str, "time limit") || w.e.spent > 16<<20 {
			t.Errorf("%s: stopped when it had copied %d MB: %q", body, w.e.spent>>20, r.Str)
		}
	}
}

// A script of a transaction may take the time that the scripts before it have left. The transaction
// learns that the script was stopped.
func TestTimeOfATransaction(t *testing.T) {
	w := newWorld(t, Options{Now: tick(), TimeLimit: time.Second})
	const loop = "for i = 1, 1e5 do end return 'done'" // 391 looks at the clock, 1 ms apart
	const stopped = "ERR Script exceeded the time limit (script-time-limit) and was stopped. Nothing that it did was kept. It had "
	for used, want := range map[time.Duration]string{0: "done", 600 * time.Millisecond: "done", 620 * time.Millisecond: stopped + "380ms of 1s, because", 2 * time.Second: stopped + "0s of 1s, because"} {
		c := &store.Ctx{Txn: w.txn, RESP: 2, ScriptTime: used, Args: [][]byte{[]byte("eval"), []byte(loop), []byte("0")}}
		cmd, _ := w.table.Resolve(c.Args)
		r := cmd.Run(c)
		if !strings.HasPrefix(r.Str, want) || (c.Stopped != "") != r.IsError() {
			t.Errorf("after %v: %q, stopped: %q", used, r.Str, c.Stopped)
		}
	}
	c := &store.Ctx{Txn: w.txn, RESP: 2, Args: [][]byte{[]byte("eval"), []byte("error('its own')"), []byte("0")}}
	cmd, _ := w.table.Resolve(c.Args)
	if cmd.Run(c); c.Stopped != "" {
		t.Errorf("an error of the script's own stops the transaction: %q", c.Stopped)
	}
}

// TestShortScripts: the engine stops a script only after many instructions or a long time, even if its user has little time left.
func TestShortScripts(t *testing.T) {
	for body, most := range map[string]struct {
		look   time.Duration // between two looks at the clock
		passes bool
	}{
		"for i=1,1000 do end return 'OK'":   {10 * time.Millisecond, true},
		"for i=1,2000 do end return 'done'": {60 * time.Millisecond, false},
		"for i=1,100000 do end return 'OK'": {time.Microsecond, false},
	} {
		now, looks := time.Duration(0), 0
		clock := func() time.Duration {
			if looks++; looks < 4 || most.look < time.Millisecond {
				now += most.look
			}
			return now
		}
		w := newWorld(t, Options{Now: clock, TimeLimit: 5 * time.Second})
		c := &store.Ctx{Txn: w.txn, RESP: 2, ScriptTime: 5*time.Second - 50*time.Microsecond, Args: [][]byte{[]byte("eval"), []byte(body), []byte("0")}}
		cmd, _ := w.table.Resolve(c.Args)
		if r := cmd.Run(c); r.IsError() == most.passes {
			t.Errorf("%s, looking every %v: %q", body, most.look, r.Str)
		}
	}
}

func TestKillAfterWrite(t *testing.T) {
	w := newWorld(t, Options{Now: tick(), TimeLimit: time.Hour})
	wrote := make(chan struct{})
	w.table.Lookup([]byte("ping")).Run = func(*store.Ctx) store.Reply {
		close(wrote)
		return store.OK
	}
	done := make(chan store.Reply)
	go func() { done <- w.eval("redis.call('set','a','1') redis.call('ping') while true do end") }()
	<-wrote
	if r := w.e.Kill(); r.Str != string(errUnkillable) {
		t.Error(r)
	}
	w.e.SetTimeLimit(time.Nanosecond)
	if r := <-done; !strings.Contains(r.Str, "time limit") {
		t.Error(r)
	}
}

func TestAddressesDoNotLeak(t *testing.T) {
	w := newWorld(t, Options{})
	script := "return {tostring({}),tostring(print==nil),tostring(function() end),tostring(redis.call)}"
	first := wire(w.eval(script), 2)
	if second := wire(newWorld(t, Options{}).eval(script), 2); first != second {
		t.Errorf("%q\n%q", first, second)
	}
}

// TestStepsCountWhatIsRead: work that grows with the number of bytes or values read counts steps in proportion to that number, even
// within one call of a function.
func TestStepsCountWhatIsRead(t *testing.T) {
	const million = "string.rep('1',1e6)"
	const dead = "local t={} for i=1,1e4 do t[i+0.5]=1 end for k in pairs(t) do t[k]=nil end local a={} for i=1,500 do a[i]={map=t} end "
	for script, least := range map[string]int64{
		"local p='['.." + million + "..']' return string.find(string.rep('y',20),p)":             2e6,
		"local p='['.." + million + "..']*z' return string.match(string.rep('y',20),p)":          2e6,
		"local p='[^'.." + million + "..']' return string.gsub(string.rep('y',20),p,'')":         2e6,
		"local p='[^'.." + million + "..']' for x in string.gmatch(string.rep('y',20),p) do end": 2e6,
		"local p='%f['.." + million + "..']' return string.find(string.rep('y',20),p)":           2e6,
		"local s=" + million + " return s+1":                                                     5e4,
		"local s=" + million + " for i=s,1 do end":                                               5e4,
		"local s=" + million + " return math.max(s,s,s,s)":                                       2e5,
		"local s=" + million + " return bit.band(s,s,s,s)":                                       2e5,
		"local s=" + million + " return string.format('%d%d%d%d',s,s,s,s)":                       2e5,
		"local s=" + million + " return pcall(redis.setresp,s)":                                  5e4,
		"local s=" + million + " return pcall(function() return s+{} end)":                       5e4,
		"return tonumber(ARGV[1])":                                                               5e4,
		"return #string.format(string.rep('%%',1e6))":                                            9e5,
		"return #string.format('%q'," + million + ")":                                            1e5,
		"local t={} for i=1,1e5 do t[i]=1 end table.foreach(t,math.randomseed)":                  5e5,
		"local t={} for i=1,1e5 do t[i]=1 end table.foreachi(t,math.randomseed)":                 5e5,
		dead + "for i=1,500 do next(t) end":                                                      3e5,
		dead + "for i=1,500 do cjson.encode(t) end":                                              6e5,
		dead + "for i=1,500 do cmsgpack.pack(t) end":                                             6e5,
		dead + "for i=1,500 do table.maxn(t) end":                                                5e6,
		dead + "return a": 3e5,
		"local s=string.rep('\\r',1e6) local t={} for i=1,100 do t[i]={err=s} end return t":                                          1e6,
		"local function f(n) if n==0 then for i=1,1000 do pcall(error,'x',1e9) end return 0 end return 1+f(n-1) end return f(10000)": 1e6,
		"local s=string.rep('a',1e5) local t={} for i=1,500 do t[s:sub(i)]=1 end pcall(cmsgpack.pack,t)":                             4e5,
	} {
		w := newWorld(t, Options{})
		if w.do(2, "eval", script, "0", strings.Repeat("1", 1e6)); w.e.steps < least {
			t.Errorf("%s\n%d steps, want %d at least", script, w.e.steps, least)
		}
	}
}

// TestSlowSteps: a script whose single steps are slow is stopped soon after its time limit.
func TestSlowSteps(t *testing.T) {
	const limit = 100 * time.Millisecond
	for _, script := range []string{
		"local a,b=string.rep('x',2e7)..'a',string.rep('x',2e7)..'b' while true do local c=a==b end",
		"local a,b=string.rep('x',2e7)..'a',string.rep('x',2e7)..'b' while true do local c=a<b end",
		"local a,b=string.rep('x',2e7)..'a',string.rep('x',2e7)..'b' table.sort({a,b,a,b,a,b,a,b,a,b,a,b,a,b,a,b,a,b,a,b}) while true do table.sort({b,a}) end",
		"local s=string.rep('x',4e7) while true do local c=s:upper() end",
		"local s=string.rep('x',4e7) while true do local c=redis.sha1hex(s) end",
		"local s=string.rep('x',4e7) while true do local c=s:find('y',1,true) end",
		"local s=string.rep('i',4e7) return struct.size(s)",
		"local s=string.rep(' ',4e7) return struct.size(s)",
		"local s=string.rep('Z',4e7) return struct.size(s)",
		"return struct.pack(string.rep(' ',4e7))",
		"local function f() return f() end f()",
		"local t={} t[1e6]=1 for i=1,1e9 do local a=next(t) end",
		"local t={} for i=1,1e5 do t[i]=i end t[4e6]=1 t[4e6]=nil while true do table.getn(t) end",
		"local t={} for i=1,1e6 do t[i]=i end while true do pcall(cjson.encode,{t,print}) end",
		"local s=cjson.encode({string.rep('x',2e7)}) while true do cjson.decode(s) end",
		"local t={} for i=1,1e5 do t[i*1000]=1 end while true do pcall(cjson.encode,t) end",
		"while true do string.format(string.rep('%d ',3),unpack({1,2,3})) end",
		"local s=string.rep('1-',2e6) while true do pcall(cjson.decode,s) end",
		"local s=string.rep('1e',2e6) while true do pcall(cjson.decode,s) end",
		"local s=string.rep('x',4e7) while true do tonumber(s) end",
		"local s=string.rep(' ',4e7) while true do tonumber(s) end",
		"local s=string.rep('x',4e7) while true do pcall(cjson.decode,s) end",
		"local s=string.rep(' ',4e7) while true do pcall(cjson.decode,s) end",
		"local s=string.rep('1',4e7) while true do pcall(cjson.decode,s) end",
		"local s=string.rep('x',4e7) while true do s:gsub('^y','') end",
		"local s=string.rep('x',4e7) while true do redis.status_reply(s) end",
		"local s=string.rep('x',4e7) while true do redis.call('echo',s) end",
		"local s=string.rep('a',1e6) while true do loadstring(s) end",
		"local t={} for i=1,7000 do t[i]=i end while true do unpack(t) end",
	} {
		start := time.Now()
		w := newWorld(t, Options{Now: func() time.Duration { return time.Since(start) }, TimeLimit: limit})
		began := time.Now()
		r := w.eval(script)
		if over := time.Since(began) - limit; over > 3*time.Second || !strings.Contains(r.Str, " limit ") {
			t.Errorf("%s\nover the time by %v: %.200q", script, over, r.Str)
		} else if testing.Verbose() {
			t.Logf("%8.0f ms  %.90s", over.Seconds()*1000, script)
		}
		w.e.L = nil
		debug.FreeOSMemory()
	}
}

// TestLogIsShort: one call of redis.log writes at most as many bytes into the log as Redis's LOG_MAX_LEN.
func TestLogIsShort(t *testing.T) {
	var got string
	w := newWorld(t, Options{Log: func(_ int, msg string) { got = msg }})
	w.eval("redis.log(redis.LOG_WARNING,'a',string.rep('x',1e6),'b')")
	if want := "a " + strings.Repeat("x", maxLogText-2); got != want {
		t.Errorf("%d bytes were logged, want %d", len(got), len(want))
	}
}

// TestTailCallsAreNotListed: a script can have made millions of tail calls when it fails. gopher-lua would list all of them in the
// trace of the error.
func TestTailCallsAreNotListed(t *testing.T) {
	for _, script := range []string{
		"local function f() return f() end f()",
		"coroutine.wrap(function() local function f() return f() end f() end)()",
	} {
		w := newWorld(t, Options{Now: tick(), TimeLimit: 20 * time.Second})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		mustFail(t, w, script, "time limit")
		runtime.ReadMemStats(&after)
		if took := int64(after.TotalAlloc - before.TotalAlloc); took > 16<<20 {
			t.Errorf("%s\ntook %d MiB", script, took>>20)
		}
	}
}
