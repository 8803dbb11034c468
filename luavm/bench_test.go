package luavm

import (
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/store"
)

const unlockScript = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"

// BenchmarkUnlock runs one EVALSHA of the script by which Redis locks are released. Another owner
// holds the lock, so the script changes nothing.
func BenchmarkUnlock(b *testing.B) {
	w := newWorld(b, Options{})
	w.do(2, "set", "lock", "somebody")
	sha := w.do(2, "script", "load", unlockScript).Str
	c := &store.Ctx{Txn: w.txn, RESP: 2, Args: [][]byte{[]byte("evalsha"), []byte(sha), []byte("1"), []byte("lock"), []byte("me")}}
	cmd, _ := w.table.Resolve(c.Args)
	b.ReportAllocs()
	for b.Loop() {
		if r := cmd.Run(c); r.Kind != store.Integer {
			b.Fatal(r)
		}
	}
}

// BenchmarkEvalUnlock runs the script of BenchmarkUnlock by EVAL, with the text of the script.
func BenchmarkEvalUnlock(b *testing.B) {
	w := newWorld(b, Options{})
	w.do(2, "set", "lock", "somebody")
	c := &store.Ctx{Txn: w.txn, RESP: 2, Args: [][]byte{[]byte("eval"), []byte(unlockScript), []byte("1"), []byte("lock"), []byte("me")}}
	cmd, _ := w.table.Resolve(c.Args)
	b.ReportAllocs()
	for b.Loop() {
		if r := cmd.Run(c); r.Kind != store.Integer {
			b.Fatal(r)
		}
	}
}

// BenchmarkLoop measures the time of an instruction with the hook (hook.go).
func BenchmarkLoop(b *testing.B) {
	w := newWorld(b, Options{})
	script := "local n=0 for i=1,10000 do n=n+i end return n"
	for b.Loop() {
		if r := w.eval(script); r.Kind != store.Integer {
			b.Fatal(r)
		}
	}
}

// BenchmarkConcat builds a text piece by piece.
func BenchmarkConcat(b *testing.B) {
	w := newWorld(b, Options{})
	script := "local s='' for i=1,1000 do s=s..i..',' end return s"
	for b.Loop() {
		if r := w.eval(script); !strings.HasSuffix(r.Str, "1000,") {
			b.Fatal(r)
		}
	}
}
