package luavm

import (
	"bufio"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/hostile/scripts"
	"github.com/lockstep-io/lockstep/conformance/transcript"
)

// TestHostileScripts plays scripts of conformance/hostile/scripts. Each gets the reply that -record recorded from a real server, as
// for the corpus, and leaves nothing behind.
func TestHostileScripts(t *testing.T) {
	const golden, first, last = "testdata/hostile.json", 3000, 3120
	var cases []corpusCase
	for seed := uint64(first); seed < last; seed++ {
		if s := scripts.Generate(seed); !s.Loose {
			cases = append(cases, corpusCase{Script: s.Text, Keys: s.Keys, Args: s.Args, Resp: 2})
		}
	}
	if *record != "" {
		recordCases(t, cases, golden)
	}
	replay(t, cases, golden)
}

// TestHostileLeavesNothing: after each hostile script, everything that scripts share is unchanged.
// That includes scripts that the engine stops at a limit.
func TestHostileLeavesNothing(t *testing.T) {
	fresh := newCanary(New(Options{})).shape.String()
	w := newWorld(t, Options{Now: tick(), TimeLimit: 50 * time.Millisecond, MemoryLimit: 16 << 20})
	before := newCanary(w.e)
	for seed := range uint64(120) {
		w.reset()
		state := w.e.L
		s := scripts.Generate(seed)
		w.do(2, s.Command()...)
		before = before.check(t, w, state, fresh, s.Text)
	}
}

// TestCanaryScript: conformance/hostile watches a server from outside by the script scripts.Canary. The reply to that script
// changes when something changes that scripts share.
func TestCanaryScript(t *testing.T) {
	w := newWorld(t, Options{})
	want := wire(w.eval(scripts.Canary), 2)
	w.e.lib("redis").RawSetString("evil", w.e.ext.Null)
	if got := wire(w.eval(scripts.Canary), 2); got == want {
		t.Error("the canary does not see a new field of redis")
	}
}

// TestStoppedIsSeen: the error of the time limit says nothing about the script. scripts.Stopped distinguishes that error from one
// that the script raised.
func TestStoppedIsSeen(t *testing.T) {
	w := newWorld(t, Options{Now: tick(), TimeLimit: 50 * time.Millisecond})
	for text, stopped := range map[string]bool{"while true do end": true, "return 1": false, "error('time limit')": false} {
		v, err := transcript.ReadValue(bufio.NewReader(strings.NewReader(wire(w.eval(text), 2))))
		if err != nil || scripts.Stopped(v) != stopped {
			t.Errorf("%s: %v %v, not stopped %v", text, v, err, stopped)
		}
	}
}
