package luavm

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// askWhileRunning asks FUNCTION STATS twice while an endless function runs. The result again is how many bytes the second request
// allocated.
func askWhileRunning(t *testing.T, name string, args [][]byte) (r store.Reply, again uint64) {
	t.Helper()
	var w *world
	looks := 0
	w = newWorld(t, Options{MemoryLimit: 1 << 30, Now: func() time.Duration {
		if looks++; looks == 5 {
			r = w.e.RunningFunction()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			w.e.RunningFunction()
			runtime.ReadMemStats(&after)
			again = after.TotalAlloc - before.TotalAlloc
			w.e.KillFunction()
		}
		return time.Duration(looks) * time.Millisecond
	}})
	w.mustLoad(t, fmt.Sprintf("#!lua name=l\nlocal n = 'f' while #n < %d do n = n .. n end redis.register_function(n, function() while true do end end)", len(name)))
	looks = 0
	c := &store.Ctx{Txn: w.txn, RESP: 2, Args: slices.Concat([][]byte{[]byte("fcall"), []byte(name), []byte("0")}, args)}
	c.Cmd, _ = w.table.Resolve(c.Args)
	c.Cmd.Run(c)
	if r.Kind != store.Map {
		t.Fatalf("FUNCTION STATS of %.20s with %d arguments: %v", name, len(args), r)
	}
	return r, again
}

// TestStatsOfALargeCall: FUNCTION STATS copies and shows only a small part of a large call.
func TestStatsOfALargeCall(t *testing.T) {
	const most = 16 << 10
	for what, args := range map[string][][]byte{
		"many arguments": slices.Repeat([][]byte{[]byte("x")}, 300_000),
		"a long one":     {bytes.Repeat([]byte("x"), 8<<20)},
	} {
		r, again := askWhileRunning(t, "f", args)
		if size := store.EncodedSize([]store.Reply{r}); size > most || again > most {
			t.Errorf("%s: a reply of %d bytes, and %d allocated for the next", what, size, again)
		}
		command := r.Elems[1].Elems[3].Elems
		last := command[len(command)-1].Str
		if want := "... (299972 more arguments)"; len(args) > 1 && (len(command) != 32 || last != want) {
			t.Errorf("%s: %d are shown, the last is %q", what, len(command), last)
		}
		if want := strings.Repeat("x", 128) + fmt.Sprintf("... (%d more bytes)", 8<<20-128); len(args) == 1 && last != want {
			t.Errorf("%s: %.200q", what, last)
		}
	}
	r, _ := askWhileRunning(t, strings.Repeat("f", 1<<20), nil)
	if size := store.EncodedSize([]store.Reply{r}); size > most {
		t.Errorf("a long name: a reply of %d bytes", size)
	}
}

// TestStatsOfAnOrdinaryCall: as in Redis, all arguments are shown whole.
func TestStatsOfAnOrdinaryCall(t *testing.T) {
	for _, args := range [][][]byte{
		slices.Repeat([][]byte{[]byte("x")}, 200),
		{bytes.Repeat([]byte("x"), 4<<10)},
	} {
		r, _ := askWhileRunning(t, "f", args)
		for i, arg := range r.Elems[1].Elems[3].Elems[3:] {
			if arg.Str != string(args[i]) {
				t.Errorf("argument %d of %d: %.200q", i, len(args), arg.Str)
			}
		}
		if n := len(r.Elems[1].Elems[3].Elems); n != len(args)+3 {
			t.Errorf("%d of %d", n, len(args)+3)
		}
	}
}
