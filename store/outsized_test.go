package store

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
)

// refused runs a call that must reply with an error, and returns how many bytes it allocated.
func (d *testDB) refused(want Error, args ...string) (bytes uint64) {
	d.t.Helper()
	txn := d.begin()
	ctx := d.ctx(txn, args...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r := ctx.Call(ctx.Cmd.Run)
	runtime.ReadMemStats(&after)
	if Error(r.Str) != want || !r.IsError() {
		d.t.Errorf("%.40q: got %.100s, want %s", args, render(r), want)
	}
	return after.TotalAlloc - before.TotalAlloc
}

// noise returns bytes that cannot be compressed.
func noise(r *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return string(b)
}

// largeValues creates a value of each type, and returns their keys. Each value has 8 MiB, which cannot be compressed.
func largeValues(d *testDB) []string {
	const n, size = 512, 16 << 10
	r := rand.New(rand.NewPCG(1, 2))
	d.env.Limits = Limits{Entry: 32 << 20}
	calls := map[string][]string{"l": {"RPUSH"}, "s": {"SADD"}, "h": {"HSET"}, "z": {"ZADD"}}
	for key, call := range calls {
		call = append(call, key)
		for i := range n {
			switch key {
			case "z":
				call = append(call, fmt.Sprint(i))
			case "h":
				call = append(call, fmt.Sprint("f", i))
			}
			call = append(call, noise(r, size))
		}
		d.do(call...)
	}
	d.do("SET", "str", noise(r, n*size))
	return []string{"l", "s", "h", "z", "str"}
}

// TestDumpStopsAtTheLimit: DUMP ends when it has written as much as a reply may have. It makes no other copy of the value.
func TestDumpStopsAtTheLimit(t *testing.T) {
	d := newTestDB(t)
	keys := largeValues(d)
	for _, key := range keys {
		d.env.Limits.Reply = 1 << 20
		if took := d.refused(ErrReplyTooBig(1<<20), "DUMP", key); took > 4<<20 {
			t.Errorf("DUMP %s took %d bytes", key, took)
		}
		d.env.Limits.Reply = 0
		txn := d.begin()
		whole, ok := txn.Lookup(0, []byte(key)).dump(&Ctx{Txn: txn})
		if !ok {
			t.Fatalf("DUMP %s is refused", key)
		}
		for more, want := range []bool{false, true} {
			d.env.Limits.Reply = int64(len(whole) - 1 + more)
			txn := d.begin()
			if dump, ok := txn.Lookup(0, []byte(key)).dump(&Ctx{Txn: txn}); ok != want || ok && dump != whole {
				t.Errorf("DUMP %s of %d bytes within %d: %t", key, len(whole), d.env.Limits.Reply, ok)
			}
		}
	}
}

// TestDumpTakesOneBuffer: besides the reply, DUMP allocates only small pieces and, if the value is one string, one copy of it.
func TestDumpTakesOneBuffer(t *testing.T) {
	d := newTestDB(t)
	for _, key := range largeValues(d) {
		txn := d.begin()
		e, ctx := txn.Lookup(0, []byte(key)), &Ctx{Txn: txn}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		dump, _ := e.dump(ctx)
		runtime.ReadMemStats(&after)
		if took := int(after.TotalAlloc - before.TotalAlloc); took > 2*len(dump)+len(dump)/2 {
			t.Errorf("DUMP %s of %d bytes took %d", key, len(dump), took)
		}
	}
}

// TestFunctionDumpStopsAtTheLimit: FUNCTION DUMP copies no more of the libraries than a reply may have.
func TestFunctionDumpStopsAtTheLimit(t *testing.T) {
	d := newTestDB(t)
	txn, r := d.begin(), rand.New(rand.NewPCG(1, 2))
	for i := range 64 {
		txn.LoadLibrary(&Library{Name: fmt.Sprint(i), Code: noise(r, 64<<10), Functions: []Function{{Name: fmt.Sprint("f", i)}}})
	}
	d.apply(txn)
	dump, ok := (&Ctx{Txn: d.begin()}).DumpLibraries()
	if !ok || len(dump) < 4<<20 {
		t.Fatalf("a dump of %d bytes, %t", len(dump), ok)
	}
	d.env.Limits.Reply = 256 << 10
	c := &Ctx{Txn: d.begin()}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, ok := c.DumpLibraries(); ok {
		t.Error("a dump that is too large was returned")
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 2<<20 {
		t.Errorf("it took %d bytes", took)
	}
}

// TestDumpIsWatched: a DUMP of many elements calls Watch, which can end a long command.
func TestDumpIsWatched(t *testing.T) {
	d := newTestDB(t)
	for key, call := range map[string][]string{"l": {"RPUSH", "l"}, "s": {"SADD", "s"}, "h": {"HSET", "h"}, "z": {"ZADD", "z"}} {
		for i := range 10_000 {
			call = append(call, fmt.Sprint(i))
			if key == "s" {
				call[len(call)-1] += strings.Repeat("x", 30) // these sets are no intsets, and the compressor searches long for matches
			}
		}
		d.do(call...)
		ctx, watched := d.ctx(d.begin(), "DUMP", key), 0
		ctx.Watch = func() { watched++ }
		ctx.Cmd.Run(ctx)
		if least := map[string]int{"s": 100}[key]; watched < max(least, 1) {
			t.Errorf("DUMP %s was watched %d times", key, watched)
		}
	}
}
