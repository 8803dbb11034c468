package luavm

import (
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// A script's time begins when its text is compiled.
func TestCompilingIsTimeOfTheScript(t *testing.T) {
	long := "local a=1 " + strings.Repeat("a=a+1 ", 4e4) + "return 1"
	library := "#!lua name=l\nlocal function f() " + long + " end redis.register_function('f',f)"
	for _, c := range [][]string{
		{"EVAL", long, "0"},
		{"SCRIPT", "LOAD", long},
		{"FUNCTION", "LOAD", library},
		{"EVAL", "return loadstring(ARGV[1])", "0", long},
	} {
		now := tick()
		w := newWorld(t, Options{Now: now, TimeLimit: 20 * time.Millisecond})
		state := w.e.L
		if r := w.do(2, c...); !strings.Contains(r.Str, msgTime) && !strings.Contains(r.Str, msgLoad) {
			t.Errorf("%.20q: %.100q", c, wire(r, 2))
		}
		if c[0] == "SCRIPT" && w.e.L != state {
			t.Error("a text that was not run cost the Lua state")
		}
		if w.e.Running() || w.eval("return 1").Int != 1 {
			t.Error("the engine does not go on")
		}
		w.e.SetTimeLimit(time.Second)
		from := now()
		if r := w.do(2, c...); r.IsError() {
			t.Errorf("%.20q: %q", c, r.Str)
		} else if took := now() - from; c[0] == "EVAL" && took < 20*time.Millisecond {
			t.Errorf("the clock was read for %v: it tests nothing", took)
		}
	}

	// The time that compiling took is no longer there for the run of the script.
	w := newWorld(t, Options{Now: tick(), TimeLimit: time.Second})
	used := &store.Ctx{Txn: w.txn, RESP: 2}
	if _, _, fail := w.e.chunkOf(used, long); fail != nil || used.ScriptTime < 20*time.Millisecond {
		t.Errorf("%v is counted: %v", used.ScriptTime, fail)
	}
	// While a script is compiled, it can be killed or stopped for now.
	looks := tick()
	w.do(2, "EVAL", "return redis.call('set','k','v')", "0")
	w.e.opts.Now = func() time.Duration { w.e.Kill(); return looks() }
	if r := w.do(2, "SCRIPT", "LOAD", long+" "); !strings.Contains(r.Str, msgKilled) {
		t.Errorf("killed: %q", r.Str)
	}
	if w.do(2, "EVAL", long+"   ", "0"); w.e.Running() {
		t.Error("a script that was killed while it was compiled counts as running")
	}
	w.e.opts.Now = looks
	if r := w.do(2, "EVAL", "return redis.call('set','k','v')", "0"); r.Str != "OK" {
		t.Errorf("the next script is killed in its place: %q", r.Str)
	}
	w.e.opts.Now, w.stopAfter = looks, 5*time.Millisecond
	if w.do(2, "SCRIPT", "LOAD", long+"  "); !w.forNow {
		t.Error("not stopped for now")
	}
}
