package luavm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc64"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

const counterLibrary = `#!lua name=counter
local n = 0
redis.register_function('count', function() n = n + 1 return n end)
redis.register_function('spin', function() n = n + 1 while true do end end)
redis.register_function('write', function(keys) redis.call('set', keys[1], 'v') error('late') end)
redis.register_function('stopped', function(keys) redis.call('set', keys[1], 'v') while true do end end)
redis.register_function('grow', function() local t = {} while true do t[#t + 1] = {} end end)
redis.register_function('recurse', function() local function f() return 1 + f() end return f() end)`

// mustLoad loads a library.
func (w *world) mustLoad(t testing.TB, code string) {
	t.Helper()
	if r := w.do(2, "function", "load", "replace", code); r.IsError() {
		t.Fatal(r.Str)
	}
}

// The locals of a library live from call to call, until a script or function
// is stopped in the middle of something; then libraries start anew.
func TestLibraryState(t *testing.T) {
	w := newWorld(t, Options{Now: tick(), TimeLimit: time.Second, MemoryLimit: 32 << 20})
	w.mustLoad(t, counterLibrary)
	count := func(want int64) {
		t.Helper()
		if r := w.do(2, "fcall", "count", "0"); r.Int != want {
			t.Errorf("count is %v, want %d", r, want)
		}
	}
	count(1)
	count(2)
	w.eval("return 1")
	count(3)
	for _, name := range []string{"spin", "grow"} {
		if r := w.do(2, "fcall", name, "0"); !r.IsError() || !strings.Contains(r.Str, " limit ") || !strings.Contains(r.Str, " script: "+name+", on @user_function:") {
			t.Errorf("%s: %v", name, r)
		}
		count(1)
		count(2)
	}
	// After an error of the function itself, its library does not start anew.
	w.do(2, "fcall", "write", "1", "k")
	count(3)
	w.mustLoad(t, counterLibrary)
	count(1)
}

// What a function wrote before an error stays, as in Redis; what it wrote
// before it was stopped does not.
func TestFunctionWrites(t *testing.T) {
	w := newWorld(t, Options{Now: tick(), TimeLimit: time.Second})
	w.mustLoad(t, counterLibrary)
	if r := w.do(2, "fcall", "write", "1", "kept"); !strings.Contains(r.Str, "late script: write, on @user_function:5.") {
		t.Error(r)
	}
	if r := w.do(2, "fcall", "stopped", "1", "dropped"); !r.IsError() {
		t.Error(r)
	}
	if r := w.do(2, "exists", "kept"); r.Int != 1 {
		t.Error("what was written before an error is gone")
	}
	if r := w.do(2, "exists", "dropped"); r.Int != 0 {
		t.Error("a function that was stopped left a trace")
	}
	if r := w.do(2, "fcall", "recurse", "0"); !strings.Contains(r.Str, "stack overflow") {
		t.Error(r)
	}
}

// The store has the libraries. So another engine, as on another node, compiles them when their functions are called.
func TestLibraryOnAnotherEngine(t *testing.T) {
	w := newWorld(t, Options{})
	w.mustLoad(t, counterLibrary)
	other := newWorld(t, Options{})
	other.txn = w.txn
	for _, want := range []int64{1, 2} {
		if r := other.do(2, "fcall", "count", "0"); r.Int != want {
			t.Errorf("%v, want %d", r, want)
		}
	}
	// The other engine notices that a library has changed.
	w.mustLoad(t, strings.Replace(counterLibrary, "local n = 0", "local n = 100", 1))
	if r := other.do(2, "fcall", "count", "0"); r.Int != 101 {
		t.Errorf("%v, want 101", r)
	}
	w.do(2, "function", "delete", "counter")
	if r := other.do(2, "fcall", "count", "0"); r.Str != string(errNoFunction) {
		t.Error(r)
	}
}

// A library that loaded on another node may fail to load here: FCALL returns the
// error, and the next FCALL tries again.
func TestLibraryThatDoesNotLoad(t *testing.T) {
	w := newWorld(t, Options{})
	w.txn.LoadLibrary(&store.Library{Name: "odd", Code: "#!lua name=odd\nlocal x = nil .. 1", Functions: []store.Function{{Name: "f"}}})
	w.txn.LoadLibrary(&store.Library{Name: "less", Code: "#!lua name=less\nredis.register_function('other', function() end)", Functions: []store.Function{{Name: "g"}}})
	w.txn.LoadLibrary(&store.Library{Name: "none", Code: "no first line", Functions: []store.Function{{Name: "h"}}})
	for range 2 {
		for name, want := range map[string]string{
			"f": "ERR Error registering functions: ERR user_function:2: attempt to concatenate a nil value",
			"g": string(errNoFunction), "h": string(errNoMetadata),
		} {
			if r := w.do(2, "fcall", name, "0"); r.Str != want {
				t.Errorf("%s: %q, want %q", name, r.Str, want)
			}
		}
	}
}

func TestLoadLimits(t *testing.T) {
	for code, want := range map[string]string{
		"while true do end":                             "ERR Error registering functions: ERR " + msgLoad,
		"local s = 'x' while true do s = s .. s end":    "ERR Error registering functions: ERR " + msgMemory,
		"local t = {} while true do t[#t + 1] = {} end": "ERR Error registering functions: ERR " + msgMemory,
		"local function f() return 1 + f() end f()":     "ERR Error registering functions: ERR user_function:2: stack overflow",
	} {
		w := newWorld(t, Options{Now: func() time.Duration { return 0 }, MemoryLimit: 32 << 20})
		if want[len(want)-len(msgLoad):] == msgLoad {
			w = newWorld(t, Options{Now: tick(), TimeLimit: time.Hour})
		}
		if r := w.do(2, "function", "load", "#!lua name=lib\n"+code); r.Str != want {
			t.Errorf("%s: %q, want %q", code, r.Str, want)
		}
		if n := w.txn.Writes().Len(); n != 0 {
			t.Errorf("%s: %d writes", code, n)
		}
		w.mustLoad(t, counterLibrary)
		if r := w.do(2, "fcall", "count", "0"); r.Int != 1 {
			t.Errorf("after %s: %v", code, r)
		}
	}
}

// While a function runs, FUNCTION KILL can stop it, but SCRIPT KILL cannot. While a script runs, FUNCTION KILL is refused.
func TestKillFunction(t *testing.T) {
	var w *world
	var stats []store.Reply
	var kills []string
	looks := 0
	w = newWorld(t, Options{Now: func() time.Duration {
		looks++
		if looks%10 == 5 {
			stats = append(stats, w.e.RunningFunction())
			kills = append(kills, w.e.Kill().Str, string(w.e.BusyError()), w.e.KillFunction().Str)
		}
		return time.Duration(looks) * time.Millisecond
	}})
	w.mustLoad(t, counterLibrary)
	if r := w.do(2, "FCall", "spin", "1", "a key", "an argument"); r.Str != "ERR "+msgKilled+" script: spin, on @user_function:4." {
		t.Error(r)
	}
	if got, want := fmt.Sprint(kills), fmt.Sprint([]string{string(store.ErrBusyFunction), string(store.ErrBusyFunction), "OK"}); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if len(stats) != 1 {
		t.Fatal(stats)
	}
	want := "*4\r\n$14\r\nrunning_script\r\n*6\r\n$4\r\nname\r\n$4\r\nspin\r\n$7\r\ncommand\r\n*5\r\n$5\r\nFCall\r\n$4\r\nspin\r\n$1\r\n1\r\n$5\r\na key\r\n$11\r\nan argument\r\n" +
		"$11\r\nduration_ms\r\n:4\r\n$7\r\nengines\r\n*2\r\n$3\r\nLUA\r\n*4\r\n$15\r\nlibraries_count\r\n:1\r\n$15\r\nfunctions_count\r\n:6\r\n"
	if got := wire(stats[0], 2); got != want {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
	if r := w.e.RunningFunction(); r.Kind != store.Null {
		t.Errorf("nothing runs, but: %v", r)
	}
	kills, looks = nil, 0
	w.e.opts.Now = func() time.Duration {
		if looks++; looks == 5 {
			kills = append(kills, w.e.KillFunction().Str, string(w.e.BusyError()), wire(w.e.RunningFunction(), 2), w.e.Kill().Str)
		}
		return time.Duration(looks) * time.Millisecond
	}
	w.eval("while true do end")
	if got, want := fmt.Sprint(kills), fmt.Sprint([]string{string(store.ErrBusyScript), string(store.ErrBusyScript), "$-1\r\n", "OK"}); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Other goroutines may call the methods that this test calls at any time (the test is for -race).
func TestAskedWhileRunning(t *testing.T) {
	w := newWorld(t, Options{})
	w.mustLoad(t, counterLibrary)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if r := w.e.RunningFunction(); r.Kind != store.Null && r.Elems[1].Elems[1].Str != "count" {
				t.Errorf("%v runs", r)
			}
			if e := w.e.BusyError(); e != store.ErrBusyFunction && e != store.ErrBusyScript {
				t.Error(e)
			}
		}
	}()
	for i := range int64(2000) {
		if r := w.do(2, "fcall", "count", "0", "an argument"); r.Int != i+1 {
			t.Fatal(r)
		}
	}
	close(stop)
	<-stopped
}

// A function that has written is not killed.
func TestKillFunctionThatWrote(t *testing.T) {
	var w *world
	var kills []string
	w = newWorld(t, Options{TimeLimit: time.Second, Now: func() time.Duration {
		if now := time.Duration(len(kills)) * 100 * time.Millisecond; w == nil || !w.e.Running() {
			return now
		}
		kills = append(kills, w.e.KillFunction().Str)
		return time.Duration(len(kills)) * 100 * time.Millisecond
	}})
	w.mustLoad(t, counterLibrary)
	if r := w.do(2, "fcall", "stopped", "1", "k"); !strings.Contains(r.Str, "time limit") {
		t.Error(r)
	}
	if len(kills) < 10 {
		t.Fatal(kills)
	}
	for _, got := range kills {
		if got != string(errUnkillable) {
			t.Error(got)
		}
	}
}

// The engine keeps a bounded number of libraries loaded.
func TestLoadedLibrariesAreBounded(t *testing.T) {
	w := newWorld(t, Options{})
	for i := range maxLoaded + 10 {
		w.mustLoad(t, fmt.Sprintf("#!lua name=l%d\nredis.register_function('f%d', function() return %d end)", i, i, i))
	}
	if n := len(w.e.libs); n > maxLoaded {
		t.Errorf("%d libraries are loaded", n)
	}
	for _, i := range []int64{0, maxLoaded + 9} {
		if r := w.do(2, "fcall", fmt.Sprint("f", i), "0"); r.Int != i {
			t.Errorf("f%d: %v", i, r)
		}
	}
}

// TestDumpRestores: an engine that restores the result of FUNCTION DUMP has the same libraries, and its own FUNCTION DUMP returns
// the same.
func TestDumpRestores(t *testing.T) {
	w := newWorld(t, Options{})
	w.mustLoad(t, counterLibrary)
	w.mustLoad(t, "#!lua name=zz\nredis.register_function{function_name='z', callback=function() return 'z' end, description='d', flags={'no-writes'}}")
	dump := w.do(2, "function", "dump").Str
	list := wire(w.do(3, "function", "list", "withcode"), 3)
	other := newWorld(t, Options{})
	if r := other.do(2, "function", "restore", dump); r.Str != "OK" {
		t.Fatal(r)
	}
	if got := wire(other.do(3, "function", "list", "withcode"), 3); got != list {
		t.Errorf("got %q, want %q", got, list)
	}
	if got := other.do(2, "function", "dump").Str; got != dump {
		t.Errorf("got %q, want %q", got, dump)
	}
}

// FuzzLibrary: the engine survives any library, and can load the result of FUNCTION DUMP again.
func FuzzLibrary(f *testing.F) {
	f.Add(counterLibrary[len("#!lua name=counter\n"):])
	f.Add("redis.register_function{function_name='f', callback=redis.log, description='x', flags={'no-writes', 'allow-oom'}}")
	f.Add("local r = redis redis.register_function('f', function(keys, args) r.register_function('g', r.log) end)")
	f.Add("redis.register_function('f', ('x').rep)")
	f.Add("redis.register_function('f', function() return loadstring('return redis.call(\"get\", \"k\")')() end)")
	f.Add("('x'):gsub('.', function() redis.register_function('f', function() return coroutine.wrap(function() return 1 end)() end) end)")
	w := newWorld(f, Options{Now: tick(), TimeLimit: 200 * time.Millisecond, MemoryLimit: 64 << 20})
	f.Fuzz(func(t *testing.T, body string) {
		w.reset()
		clear(w.e.libs)
		if r := w.do(2, "function", "load", "#!lua name=lib\n"+body); r.IsError() {
			if n := w.txn.Writes().Len(); n != 0 {
				t.Fatalf("%s, but %d writes", r.Str, n)
			}
		} else {
			for _, fn := range w.txn.Library("lib").Functions {
				w.do(2, "fcall", fn.Name, "1", "k", "a")
			}
			dump := w.do(2, "function", "dump")
			if r := w.do(2, "function", "restore", dump.Str, "replace"); r.Str != "OK" {
				t.Fatalf("its own dump: %s", r.Str)
			}
		}
		if r := w.eval("return redis.call('echo',string.rep('ok',2)..1)"); r.Str != "okok1" {
			t.Fatalf("after %q: %q", body, r.Str)
		}
	})
}

// FUNCTION RESTORE stops at the time limit of scripts, however many libraries it loads.
func TestRestoreTimeLimit(t *testing.T) {
	var body []byte
	for i := range 40 {
		code := fmt.Sprintf("#!lua name=l%02d\nfor i = 1, 10000 do end redis.register_function('f%d', redis.log)", i, i)
		body = append(append(body, 0xf5, 0x40|byte(len(code)>>8), byte(len(code))), code...)
	}
	w := newWorld(t, Options{Now: tick(), TimeLimit: 200 * time.Millisecond})
	if r := w.do(2, "function", "restore", seal(body)); r.Str != "ERR Error registering functions: ERR "+msgLoad {
		t.Error(r)
	}
	if n := w.txn.Writes().Len(); n != 0 {
		t.Errorf("%d writes", n)
	}
	w.e.SetTimeLimit(time.Hour)
	if r := w.do(2, "function", "restore", seal(body)); r.Str != "OK" {
		t.Error(r)
	}
}

// A library may load only for the rest of a script's time. If it is stopped, the error says so.
func TestLibrariesHaveTheTimeThatIsLeft(t *testing.T) {
	const endless, short = "#!lua name=lib\nwhile true do end", "#!lua name=lib\nfor i = 1, 100000 do end redis.register_function('f', redis.log)"
	dump := func(code string) string {
		return seal(append([]byte{0xf5, 0x40 | byte(len(code)>>8), byte(len(code))}, code...))
	}
	for _, load := range [][]string{{"function", "load", endless}, {"function", "restore", dump(endless)}} {
		w := newWorld(t, Options{Now: tick(), TimeLimit: time.Hour})
		if r := w.do(2, load...); r.Str != "ERR Error registering functions: ERR "+msgLoad || !w.tookAll {
			t.Errorf("%s: %q, and counts as work that took all: %t", load[1], r.Str, w.tookAll)
		}
	}
	for _, load := range [][]string{{"function", "load", short}, {"function", "restore", dump(short)}} {
		w := newWorld(t, Options{Now: tick(), TimeLimit: time.Hour})
		w.usedUp = time.Hour - time.Millisecond
		if r := w.do(2, load...); r.Str != "ERR Error registering functions: ERR "+msgLoad || !w.tookAll {
			t.Errorf("%s: %q, and counts as work that took all: %t", load[1], r.Str, w.tookAll)
		}
		w.usedUp = 0
		if r := w.do(2, load...); r.IsError() || w.tookAll {
			t.Errorf("%s with all of its time: %q, %t", load[1], r.Str, w.tookAll)
		}
	}
}

// seal puts version and checksum behind a payload.
func seal(body []byte) string {
	b := append(bytes.Clone(body), 10, 0)
	sum := ^crc64.Update(math.MaxUint64, crc64.MakeTable(0x95ac9329ac4bc9b5), b)
	return string(binary.LittleEndian.AppendUint64(b, sum))
}

// FuzzFunctionRestore: whatever the payload is, the engine survives FUNCTION RESTORE. A payload that is refused changes nothing.
func FuzzFunctionRestore(f *testing.F) {
	w := newWorld(f, Options{Now: tick(), TimeLimit: 200 * time.Millisecond, MemoryLimit: 64 << 20})
	w.mustLoad(f, counterLibrary)
	dump := []byte(w.do(2, "function", "dump").Str)
	if seal(dump[:len(dump)-10]) != string(dump) {
		f.Fatal("the checksum is not as it should be")
	}
	f.Add(dump[:len(dump)-10], byte(0))
	f.Add([]byte{}, byte(1))
	f.Add([]byte("\xf6\x01x\x03LUA\x00\x3bredis.register_function('old', function() return 'old' end)"), byte(2))
	f.Add([]byte("\xf5\x16#!lua name=bad\nbroken("), byte(1))
	f.Fuzz(func(t *testing.T, body []byte, policy byte) {
		w.reset()
		w.mustLoad(t, counterLibrary)
		before := w.txn.Writes().Len()
		words := []string{"append", "replace", "flush", "other"}
		r := w.do(2, "function", "restore", seal(body), words[policy%4])
		if r.IsError() && w.txn.Writes().Len() != before {
			t.Fatalf("%s, but it wrote", r.Str)
		}
		for _, lib := range w.txn.Libraries() {
			w.do(2, "fcall", lib.Functions[0].Name, "0")
		}
	})
}

// A new library may have a limited number of functions. A library with more functions that an older version of lockstep has stored
// still works.
func TestTooManyFunctions(t *testing.T) {
	code := func(n int) string {
		return fmt.Sprintf("#!lua name=l\nfor i=1,%d do redis.register_function('f'..i,function() return i end) end", n)
	}
	w := newWorld(t, Options{})
	mayHave := "at most 10000 functions"
	if r := w.do(2, "FUNCTION", "LOAD", code(maxFunctions+1)); !strings.Contains(r.Str, mayHave) {
		t.Errorf("%d functions: %q", maxFunctions+1, r.Str)
	}
	if r := w.do(2, "FUNCTION", "LOAD", code(maxFunctions)); r.Str != "l" {
		t.Errorf("%d functions: %q", maxFunctions, r.Str)
	}
	old := &store.Library{Name: "l", Code: code(maxFunctions + 1)}
	for i := range maxFunctions + 1 {
		old.Functions = append(old.Functions, store.Function{Name: fmt.Sprint("f", i+1)})
	}
	w.txn.LoadLibrary(old)
	w.e.forget()
	if r := w.do(2, "FCALL", fmt.Sprint("f", maxFunctions+1), "0"); r.Int != maxFunctions+1 {
		t.Errorf("a library of an older version: %q", r.Str)
	}
	dump := w.do(2, "FUNCTION", "DUMP").Str
	if r := w.do(2, "FUNCTION", "RESTORE", dump, "FLUSH"); !strings.Contains(r.Str, mayHave) {
		t.Errorf("restored: %q", r.Str)
	}
}

// Reading flags is work of each function, even if all functions share one list.
func TestFlagsAreWork(t *testing.T) {
	w := newWorld(t, Options{Now: tick()})
	flags := "local flags={" + strings.Repeat("'no-writes',", 10_000) + "}"
	register := "redis.register_function{function_name='f'..i,callback=function() end,flags=flags,FLAGS=flags}"
	if r := w.do(2, "FUNCTION", "LOAD", "#!lua name=l\n"+flags+" for i=1,2 do "+register+" end"); r.IsError() {
		t.Errorf("two functions: %s", r.Str)
	}
	if r := w.do(2, "FUNCTION", "LOAD", "#!lua name=m\n"+flags+" for i=1,100 do "+register+" end"); !strings.Contains(r.Str, msgLoad) {
		t.Errorf("a hundred functions: %q", r.Str)
	}
}

// TestFunctionListStopsAtTheLimit: FUNCTION LIST stops as soon as its list is too long for a reply.
func TestFunctionListStopsAtTheLimit(t *testing.T) {
	txn := store.New().Begin(store.Time{}, 1, store.Env{Limits: store.Limits{Reply: 64 << 10}})
	for i := range 200 {
		lib := &store.Library{Name: fmt.Sprint("lib", i), Code: "x"}
		for j := range 100 {
			lib.Functions = append(lib.Functions, store.Function{Name: fmt.Sprint("f", i, "_", j)})
		}
		txn.LoadLibrary(lib)
	}
	c := &store.Ctx{Txn: txn, Args: [][]byte{[]byte("FUNCTION"), []byte("LIST")}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r := functionList(c)
	runtime.ReadMemStats(&after)
	if store.Error(r.Str) != txn.ErrReply() {
		t.Errorf("%.80v", r)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
		t.Errorf("it took %d bytes", took)
	}
	c.Args = append(c.Args, []byte("LIBRARYNAME"), []byte("lib7"))
	if r := functionList(c); len(r.Elems) != 1 {
		t.Errorf("%.80v", r)
	}
}
