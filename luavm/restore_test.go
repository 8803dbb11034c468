package luavm

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// dumpOf returns the serialized form of libraries with the given code.
func dumpOf(libraries ...string) string {
	var b []byte
	for _, code := range libraries {
		b = append(binary.BigEndian.AppendUint32(append(b, 0xf5, 0x80), uint32(len(code))), code...)
	}
	return seal(b)
}

// TestRestoreStopsAtTheLimits: FUNCTION RESTORE loads no library after the one that exceeds a limit.
func TestRestoreStopsAtTheLimits(t *testing.T) {
	const register = " local f=function() end for i=1,%d do redis.register_function('f%d_'..('x'):rep(1000)..i,f) end"
	var libraries []string
	for i := range 5 {
		libraries = append(libraries, fmt.Sprintf("#!lua name=l%d\n"+register, i, 1000, i))
	}
	dump := dumpOf(append(libraries, "#!lua name=broken\n(")...)
	for _, test := range []struct {
		limits store.Limits
		want   store.Error
	}{
		{store.Limits{Memory: 8 << 20}, store.ErrTooMuchCode},
		{store.Limits{Entry: 2 << 20}, store.ErrEntryTooBig(2 << 20)},
		{store.Limits{}, "ERR Error compiling function: user_function:2: unexpected symbol near '<eof>'"},
	} {
		for _, policy := range []string{"append", "replace", "flush"} {
			w := newWorld(t, Options{})
			w.txn = store.New().Begin(store.Time{Lease: 1}, 1, store.Env{Limits: test.limits})
			w.txn.BeginCall()
			if r := w.do(2, "function", "restore", dump, policy); store.Error(r.Str) != test.want || w.txn.Wrote() {
				t.Errorf("%+v, %s: %q, want %q", test.limits, policy, r.Str, test.want)
			}
		}
	}
}

// TestSharedDescriptions: in the size of the write, a description that functions share counts once for each function.
func TestSharedDescriptions(t *testing.T) {
	const code = "#!lua name=l\nlocal d,f=('x'):rep(2^20),function() end for i=1,100 do redis.register_function{function_name='f'..i,callback=f,description=d} end"
	for _, command := range [][]string{{"load", code}, {"restore", dumpOf(code)}} {
		w := newWorld(t, Options{})
		w.txn.BeginCall()
		if r := w.do(2, append([]string{"function"}, command...)...); store.Error(r.Str) != w.txn.ErrTooBig() || w.txn.Wrote() {
			t.Errorf("%s: %q, and %d bytes written", command[0], r.Str, w.txn.Writes().Size())
		}
	}
}

// TestAbortStopsLoading: Abort ends the loading of libraries, even between two of them, and the next command runs as usual.
func TestAbortStopsLoading(t *testing.T) {
	code := func(i int) string {
		return fmt.Sprintf("#!lua name=l%d\nfor i = 1, 10000 do end redis.register_function('f%d', redis.log)", i, i)
	}
	var many []string
	for i := range 20 {
		many = append(many, code(i))
	}
	for _, command := range [][]string{{"function", "load", code(1)}, {"function", "restore", dumpOf(many...)}, {"fcall", "f1", "0"}} {
		for abortAt := 2; abortAt < 30; abortAt += 3 {
			looks := 0
			var w *world
			w = newWorld(t, Options{TimeLimit: time.Hour, Now: func() time.Duration {
				if looks++; looks == abortAt {
					w.e.Abort()
				}
				return time.Duration(looks) * time.Millisecond
			}})
			if command[0] == "fcall" {
				w.txn.LoadLibrary(&store.Library{Name: "l1", Code: code(1), Functions: []store.Function{{Name: "f1"}}})
			}
			if r := w.do(2, command...); r.Str != string(errRegister("ERR "+msgKilled)) || looks > abortAt+5 || w.tookAll {
				t.Errorf("%s, aborted at look %d: %q after %d looks, as for memory: %t", command[:2], abortAt, r.Str, looks, w.tookAll)
			}
			if r := w.do(2, "function", "load", code(30)); r.Str != "l30" {
				t.Errorf("after the abort: %q", r.Str)
			}
		}
	}
}
