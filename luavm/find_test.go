package luavm

import (
	"testing"
	"time"
)

// TestSearchIsWatched: a plain string.find looks at the limits, in proportion to the sum of the lengths. strings.Index would not.
func TestSearchIsWatched(t *testing.T) {
	for _, find := range []string{
		"(('b'..('a'):rep(15)):rep(2^16)):find(('b'..('a'):rep(15)):rep(2^15)..'c',1,true)",
		"(('b'..('a'):rep(15)):rep(2^16)):find(('b'..('a'):rep(15)):rep(2^15)..'c')",
		"('a'):rep(2^20):find(('a'):rep(2^18)..'b'..('a'):rep(2^18),1,true)",
		"('a'):rep(2^20):find('b'..('a'):rep(2^20-1),1,true)",
		"('a'):rep(2^20):find('ab',1,true)",
	} {
		looks, kill, clock := 0, 0, time.Duration(0)
		var w *world
		w = newWorld(t, Options{TimeLimit: 5 * time.Second, Now: func() time.Duration {
			if looks++; looks == kill {
				w.e.Kill()
			}
			return clock
		}})
		if r := w.eval("return " + find); r.IsError() || looks < 10 || looks > 100 {
			t.Errorf("%s: %d looks, %q", find, looks, r.Str)
		}
		looks, kill = 0, 8
		mustFail(t, w, "return "+find, msgKilled)
		w.e.opts.Now = tick()
		w.e.SetTimeLimit(5 * time.Millisecond)
		mustFail(t, w, "return "+find, msgTime)
	}
}

// The results are those of C Lua.
func TestSearchFinds(t *testing.T) {
	w := newWorld(t, Options{})
	for script, want := range map[string]int64{
		"return ('x'..('ab'):rep(50)..'c'):find(('ab'):rep(40)..'c')":                     22,
		"return select(2, ('x'..('ab'):rep(50)..'c'):find(('ab'):rep(40)..'c', 5, true))": 102,
		"return ('ab'):rep(50):find(('ab'):rep(40), 4)":                                   5,
		"return ('ab'):rep(50):find('', 101)":                                             101,
		"return ('ab'):rep(50):find('b', -1)":                                             100,
		"return ('a'):rep(100000):find(('a'):rep(99999), 2)":                              2,
	} {
		if r := w.eval(script); r.Int != want {
			t.Errorf("%s: %v", script, r)
		}
	}
}
