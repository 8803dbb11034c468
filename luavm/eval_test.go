package luavm

import (
	"testing"

	"github.com/lockstep-io/lockstep/store"
)

// An EVALSHA of the unlock script allocates no memory.
func TestAllocations(t *testing.T) {
	if testing.CoverMode() != "" {
		t.Skip("coverage counts")
	}
	w := newWorld(t, Options{})
	w.do(2, "set", "lock", "somebody")
	sha := w.do(2, "script", "load", unlockScript).Str
	c := &store.Ctx{Txn: w.txn, RESP: 2, Args: [][]byte{[]byte("evalsha"), []byte(sha), []byte("1"), []byte("lock"), []byte("me")}}
	cmd, _ := w.table.Resolve(c.Args)
	got := testing.AllocsPerRun(1000, func() {
		if r := cmd.Run(c); r.Kind != store.Integer {
			t.Fatal(r)
		}
	})
	if got > 0 {
		t.Errorf("%.1f allocations, limit 0", got)
	}
}

// The changes that a script makes to KEYS and ARGV end with the script.
func TestKeysBelongToOneScript(t *testing.T) {
	w := newWorld(t, Options{})
	w.eval("KEYS.x, KEYS[7], ARGV[0], ARGV[5000] = 1, 2, 3, 4 setmetatable(KEYS, {__index=function() return 'left' end})", "a", "b", "c")
	for _, script := range []string{
		"return {KEYS[1] or '-', KEYS[2] or '-', KEYS[7] or '-', KEYS.x or '-', ARGV[0] or '-', ARGV[5000] or '-', #KEYS, #ARGV}",
		"local n = 0 for _ in pairs(KEYS) do n = n + 1 end return {KEYS[1], '-', '-', '-', '-', '-', n, #ARGV}",
	} {
		if got, want := wire(w.eval(script, "k"), 2), wire(w.do(2, "eval", "return {'k', '-', '-', '-', '-', '-', 1, 0}", "0"), 2); got != want {
			t.Errorf("%s: %q, want %q", script, got, want)
		}
	}
}
