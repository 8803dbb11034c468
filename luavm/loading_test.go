package luavm

import (
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// TestLoadingForACallIsItsTime: if FCALL has to load a library, the loading counts as time of the call.
func TestLoadingForACallIsItsTime(t *testing.T) {
	const lib = "#!lua name=l\nfor i = 1, 76800 do end redis.register_function('f', function() while true do end end)" // 300 looks
	for _, test := range []struct {
		used, most time.Duration
		want       string
	}{
		{0, 1010 * time.Millisecond, "ERR " + msgTime},
		{950 * time.Millisecond, 60 * time.Millisecond, string(errRegister("ERR " + msgLoad))},
		{2 * time.Second, 60 * time.Millisecond, string(errRegister("ERR " + msgLoad))},
	} {
		now := time.Duration(0)
		w := newWorld(t, Options{TimeLimit: time.Second, Now: func() time.Duration { now += time.Millisecond; return now }})
		w.txn.LoadLibrary(&store.Library{Name: "l", Code: lib, Functions: []store.Function{{Name: "f"}}})
		w.usedUp = test.used
		now = 0
		r := w.do(2, "fcall", "f", "0")
		if !strings.HasPrefix(r.Str, test.want) || now > test.most || (test.used > 0) != w.tookAll {
			t.Errorf("after %v: stopped after %v, as for memory: %v: %q", test.used, now, w.tookAll, r.Str)
		}
	}
}

// TestShortLibrariesLoad: a library that does little can be loaded even if its user has no time left.
func TestShortLibrariesLoad(t *testing.T) {
	w := newWorld(t, Options{TimeLimit: time.Second, Now: tick()})
	w.txn.LoadLibrary(&store.Library{Name: "l", Code: "#!lua name=l\nfor i = 1, 10000 do end redis.register_function('f', function() return 7 end)", Functions: []store.Function{{Name: "f"}}})
	w.usedUp = time.Second
	if r := w.do(2, "fcall", "f", "0"); r.Int != 7 {
		t.Errorf("%v", r)
	}
}
