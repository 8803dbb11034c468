package luavm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/store"
)

// TestCodeTakesAShare: scripts and functions fill at most a quarter of maxmemory.
func TestCodeTakesAShare(t *testing.T) {
	const limit = 40 << 20
	filler := strings.Repeat("z", 100_000)
	library := func(i int) string {
		return fmt.Sprintf("#!lua name=l%d\nredis.register_function('f%d', function() return 1 end) --%s", i, i, filler)
	}
	for name, command := range map[string]func(i int) []string{
		"scripts":   func(i int) []string { return []string{"script", "load", fmt.Sprintf("return %d --%s", i, filler)} },
		"libraries": func(i int) []string { return []string{"function", "load", library(i)} },
	} {
		w := newWorld(t, Options{})
		s, seq := store.New(), uint64(0)
		do := func(args ...string) store.Reply {
			seq++
			w.txn = s.Begin(store.Time{Lease: 1, Wall: 1}, seq, store.Env{Limits: store.Limits{Memory: limit}})
			r := w.do(2, args...)
			if err := s.Apply(w.txn.Writes().Bytes(), seq, nil); err != nil {
				t.Fatal(err)
			}
			return r
		}
		loaded, share := 0, int64(limit/4)
		if name == "scripts" {
			share /= 2 // beyond that, SCRIPT LOAD keeps a script only as long as EVAL does
		}
		for ; loaded < 1000; loaded++ {
			if r := do(command(loaded)...); r.IsError() {
				if r.Str != string(store.ErrTooMuchCode) {
					t.Fatalf("%s: %s", name, r.Str)
				}
				break
			}
		}
		if size := s.DataSize(); size > share || size < share-1<<20 {
			t.Errorf("%d %s take %d of %d", loaded, name, size, limit)
		}
		if size := s.ScriptSize(); size > share+9<<20 {
			t.Errorf("%d scripts take %d of %d", loaded, size, limit)
		}
		if r := do("set", "lock", "owner", "nx", "px", "1000"); r.IsError() {
			t.Errorf("a lock beside all the %s: %s", name, r.Str)
		}
		if name == "scripts" {
			if sha := do(command(1000)...); do("evalsha", sha.Str, "0").Int != 1000 {
				t.Error("a script that was loaded when there was no room cannot be called")
			}
			if r := do("function", "load", library(0)); r.IsError() {
				t.Errorf("a library beside all the scripts: %s", r.Str)
			}
			continue
		}
		if r := do("function", "load", "replace", library(0)); r.IsError() {
			t.Errorf("a library in place of itself: %s", r.Str)
		}
		dump := do("function", "dump").Str
		if r := do("function", "restore", dump, "flush"); r.IsError() {
			t.Errorf("all libraries in place of themselves: %s", r.Str)
		}
		do("function", "flush")
		for i := range 30 {
			if r := do("script", "load", fmt.Sprintf("return %d --%s%s", i, filler, filler)); r.IsError() {
				t.Fatal(r.Str)
			}
		}
		if r := do("function", "restore", dump); r.Str != string(store.ErrTooMuchCode) {
			t.Errorf("libraries beside scripts: %s", r.Str)
		}
	}
}

// TestCodeTakesAShareOfOneTransaction: the bound counts all code that a transaction has loaded so far, even if the transaction has
// flushed it.
func TestCodeTakesAShareOfOneTransaction(t *testing.T) {
	const limit = 40 << 20
	filler := strings.Repeat("z", 100_000)
	w := newWorld(t, Options{})
	s, seq := store.New(), uint64(0)
	transaction := func(calls func()) {
		seq++
		w.txn = s.Begin(store.Time{Lease: 1, Wall: 1}, seq, store.Env{Limits: store.Limits{Memory: limit}})
		calls()
		if err := s.Apply(w.txn.Writes().Bytes(), seq, nil); err != nil {
			t.Fatal(err)
		}
	}
	load := func(i int) { w.do(2, "script", "load", fmt.Sprintf("return %d --%s", i, filler)) }
	const share = limit / 8
	full := func(what string) {
		t.Helper()
		if size := s.DataSize(); size > share || size < share-1<<20 {
			t.Errorf("%s: the pinned scripts take %d of %d", what, size, share)
		}
	}
	transaction(func() {
		for i := range 100 {
			load(i)
		}
	})
	full("loaded by one transaction")
	transaction(func() {
		w.do(2, "script", "flush")
		for i := range 100 {
			load(1000 + i)
		}
	})
	full("loaded after SCRIPT FLUSH")
	transaction(func() {
		before := w.txn.Savepoint()
		w.do(2, "script", "flush")
		load(2000)
		w.txn.Rollback(before)
		for i := range 10 {
			load(2001 + i)
		}
	})
	full("loaded after a SCRIPT FLUSH that was undone")
}
