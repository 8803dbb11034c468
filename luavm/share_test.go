package luavm

import (
	"fmt"
	"strings"
	"testing"

	"lockstep/store"
)

// TestCodeTakesAShare: scripts and functions fill at most a quarter of maxmemory. Without this bound, a user without a right to any
// key filled all of it, and nobody could take a lock until SCRIPT FLUSH.
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
		loaded := 0
		for ; loaded < 1000; loaded++ {
			if r := do(command(loaded)...); r.IsError() {
				if r.Str != string(store.ErrTooMuchCode) {
					t.Fatalf("%s: %s", name, r.Str)
				}
				break
			}
		}
		if size := s.DataSize(); size > limit/4 || size < limit/4-1<<20 {
			t.Errorf("%d %s take %d of %d", loaded, name, size, limit)
		}
		if r := do(command(0)...); name == "scripts" && r.IsError() {
			t.Errorf("a script that is there already: %s", r.Str)
		}
		if r := do("set", "lock", "owner", "nx", "px", "1000"); r.IsError() {
			t.Errorf("a lock beside all the %s: %s", name, r.Str)
		}
		if name == "scripts" {
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
		for i := range 10 {
			if r := do("script", "load", fmt.Sprintf("return %d --%s%s", i, filler, filler)); r.IsError() {
				t.Fatal(r.Str)
			}
		}
		if r := do("function", "restore", dump); r.Str != string(store.ErrTooMuchCode) {
			t.Errorf("libraries beside scripts: %s", r.Str)
		}
	}
}

// TestCodeTakesAShareOfOneTransaction: what a transaction has loaded and flushed so far counts.
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
	load := func(i int) store.Reply { return w.do(2, "script", "load", fmt.Sprintf("return %d --%s", i, filler)) }
	refused := func(r store.Reply) bool { return r.Str == string(store.ErrTooMuchCode) }
	loaded := 0
	transaction(func() {
		for loaded < 1000 && !refused(load(loaded)) {
			loaded++
		}
		if r := load(loaded - 1); r.IsError() {
			t.Errorf("a script that this transaction has loaded: %s", r.Str)
		}
	})
	if size := s.DataSize(); size > limit/4 || size < limit/4-1<<20 {
		t.Fatalf("%d scripts of one transaction take %d of %d", loaded, size, limit)
	}
	transaction(func() {
		w.do(2, "script", "flush")
		for i := range loaded {
			if r := load(1000 + i); r.IsError() {
				t.Fatalf("script %d of %d after SCRIPT FLUSH: %s", i, loaded, r.Str)
			}
		}
		before := w.txn.Savepoint()
		w.do(2, "script", "flush")
		load(2000)
		w.txn.Rollback(before)
		if !refused(load(2001)) {
			t.Error("the room of scripts whose flush was undone has been given away")
		}
	})
}
