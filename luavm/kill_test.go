package luavm

import (
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// killedIn makes PING kill the script that calls it; answer gets the reply to that kill.
func killedIn(w *world) (answer *store.Reply) {
	answer = new(store.Reply)
	w.table.Lookup([]byte("ping")).Run = func(*store.Ctx) store.Reply {
		if *answer = w.e.Kill(); answer.IsError() {
			*answer = w.e.KillFunction()
		}
		return store.OK
	}
	return answer
}

// TestKillAtTheEnd: after SCRIPT KILL has replied OK, the script returns no result, even if it ends at once.
func TestKillAtTheEnd(t *testing.T) {
	for what, body := range map[string]string{
		"on the fast path": "redis.call('ping') return 'done'",
		"without the hook": "redis.call('ping') return 'done'..''",
		"with the hook":    "for i=1,2 do end redis.call('ping') return 'done'",
		"after an error":   "pcall(error,'x') redis.call('ping') return 'done'",
		"by an error":      "redis.call('ping') error('x')",
	} {
		w := newWorld(t, Options{})
		answer := killedIn(w)
		if r := w.eval(body); answer.Str != "OK" || !strings.HasPrefix(r.Str, "ERR "+msgKilled) {
			t.Errorf("%s: SCRIPT KILL said %q, the script %q", what, answer.Str, r.Str)
		}
		if r := w.eval("return 1"); r.Int != 1 {
			t.Errorf("%s: then %v", what, r)
		}
	}
	for _, body := range []string{"redis.call('set','k','v') redis.call('ping') return 'done'", "for i=1,2 do end redis.call('set','k','v') redis.call('ping') return 'done'"} {
		w := newWorld(t, Options{})
		answer := killedIn(w)
		if r := w.eval(body); r.Str != "done" || answer.Str != string(errUnkillable) {
			t.Errorf("after a write SCRIPT KILL said %q, the script %q", answer.Str, r.Str)
		}
		if r := w.do(2, "get", "k"); r.Str != "v" {
			t.Errorf("the write is gone: %v", r)
		}
	}
}

// TestKillAtTheEndOfAFunction: if a function is killed at its end, the changes that it has made in its library are dropped.
func TestKillAtTheEndOfAFunction(t *testing.T) {
	w := newWorld(t, Options{})
	answer := killedIn(w)
	w.mustLoad(t, "#!lua name=l\nlocal n=0 redis.register_function('f',function(k,a) n=n+1 if a[1] then redis.call('ping') end return n end)")
	w.do(2, "fcall", "f", "0")
	if r := w.do(2, "fcall", "f", "0", "x"); answer.Str != "OK" || !strings.HasPrefix(r.Str, "ERR "+msgKilled) {
		t.Errorf("FUNCTION KILL said %q, the function %v", answer.Str, r)
	}
	if r := w.do(2, "fcall", "f", "0"); r.Int != 1 {
		t.Errorf("the library counts on: %v", r)
	}
}

// TestKillWhileATextIsLoaded: a SCRIPT LOAD that is killed stores no script.
func TestKillWhileATextIsLoaded(t *testing.T) {
	var w *world
	killed := false
	w = newWorld(t, Options{Now: func() time.Duration {
		killed = killed || !w.e.Kill().IsError()
		return 0
	}})
	body := strings.Repeat("do local a=1 end ", 300)
	if r := w.do(2, "script", "load", body); !killed || !strings.HasPrefix(r.Str, "ERR "+msgKilled) {
		t.Errorf("killed: %v, %v", killed, r)
	}
	if r := w.do(2, "script", "exists", scriptSHA(body)); r.Elems[0].Int != 0 {
		t.Error("it is loaded")
	}
}
