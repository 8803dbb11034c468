package luavm

import (
	"path/filepath"
	"testing"
	"time"
)

// FuzzScript: whatever a script does, the engine replies, and can be used again.
func FuzzScript(f *testing.F) {
	files, err := filepath.Glob("testdata/cases/*.txt")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		for i, c := range readCases(f, file) {
			if i%7 == 0 {
				f.Add(c.Script)
			}
		}
	}
	now := time.Duration(0)
	w := newWorld(f, Options{
		Now:       func() time.Duration { now += time.Millisecond; return now },
		TimeLimit: 200 * time.Millisecond, MemoryLimit: 64 << 20,
		Fault: func(msg string) { f.Log(msg) },
	})
	fresh := newCanary(w.e).shape.String()
	f.Fuzz(func(t *testing.T, script string) {
		w.reset()
		before := newCanary(w.e)
		state := w.e.L
		w.eval(script, "k1", "k2")
		before.check(t, w, state, fresh, script)
		if r := w.eval("return redis.call('echo',string.rep('ok',2)..1)"); r.Str != "okok1" {
			t.Fatalf("after %q: %q", script, r.Str)
		}
	})
}
