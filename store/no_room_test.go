package store

import (
	"fmt"
	"strings"
	"testing"
)

// TestReserve: calls that are not refused may use the reserve, but the last quarter only for keys that expire soon.
func TestReserve(t *testing.T) {
	d := newTestDB(t)
	d.do("SET", "k", "v")
	d.do("HSET", "h", "f", "9")
	d.do("SET", "big", strings.Repeat("x", 5<<20))
	d.env.Limits.Memory = emptySize
	long := strings.Repeat("n", 100_000)
	add := func(calls ...[]string) (overrun Error) {
		txn := d.begin()
		for _, args := range calls {
			c := d.ctx(txn, args...)
			if r := c.Cmd.Run(c); r.IsError() {
				t.Fatalf("%.20q: %s", args, r.Str)
			}
			if overrun = c.OverrunSoFar(); overrun != "" {
				return overrun
			}
			overrun = c.Overrun()
		}
		return overrun
	}
	rename := []string{"rename", "k", long}
	if got := add(rename); got != "" {
		t.Errorf("below the reserve: %s", got)
	}
	d.do("SET", "more", strings.Repeat("x", 1<<20))
	temporary := [][]string{{"set", "signal", long}, {"pexpire", "signal", "60000"}, {"del", "k"}}
	for name, calls := range map[string][][]string{
		"lasting":         {rename},
		"too long":        {temporary[0], {"pexpire", "signal", "60001"}},
		"one of two":      append([][]string{rename}, temporary[:2]...),
		"lasting anew":    append(temporary[:2:2], []string{"set", "signal", long}),
		"too many":        [][]string{{"incr", "a"}, {"incr", "b"}, {"incr", "c"}, {"incr", "d"}, {"incr", "e"}, {"incr", "f"}, {"incr", "g"}, {"incr", "i"}, {"incr", "j"}, {"lpush", "l", long}},
		"longer than was": {{"append", "k", long}, {"pexpire", "k", "1"}},
	} {
		if got := add(calls...); got != ErrOutOfMemory {
			t.Errorf("beyond three quarters of the reserve, %s: %q", name, got)
		}
	}
	goOn := [][]string{{"hincrby", "h", "f", "1"}, {"del", "k"}, {"rename", "more", "m"}, {"expire", "k", "10"}}
	for _, calls := range append([][][]string{temporary}, goOn[:1], goOn[1:2], goOn[2:3], goOn[3:]) {
		if got := add(calls...); got != "" {
			t.Errorf("beyond three quarters of the reserve, %.30q: %s", calls, got)
		}
	}
	d.do("SET", "still", strings.Repeat("x", 2<<20))
	if got := add(temporary...); got != ErrOutOfMemory {
		t.Errorf("beyond the reserve: %q", got)
	}
	for _, args := range goOn {
		if got := add(args); got != "" {
			t.Errorf("%q: %s", args, got)
		}
	}
}

// TestReserveOfTheDirectory: when the data directory is full, calls that are not refused have a reserve, too.
func TestReserveOfTheDirectory(t *testing.T) {
	d := newTestDB(t)
	d.do("SET", "k", "v")
	full := int64(0)
	d.env.DiskFull = func(size int64) (data, most int64, is bool) {
		if full == 0 {
			full = size
		}
		return full, full + 400_000, true
	}
	overrun := func(calls ...[]string) (overrun Error) {
		txn := d.begin()
		txn.BeginCall()
		for _, args := range calls {
			c := d.ctx(txn, args...)
			if _, denied := c.NoRoom(); denied != (args[0] == "lpush") {
				t.Errorf("%.20q: refused: %v", args, denied)
			}
			c.Cmd.Run(c)
			if overrun = c.OverrunSoFar(); overrun != "" {
				return overrun
			}
			overrun = c.Overrun()
		}
		if overrun == "" {
			d.apply(txn)
		}
		return overrun
	}
	name := func(n int) string { return strings.Repeat("n", n) }
	signal := [][]string{{"lpush", name(80_000), "1"}, {"pexpire", name(80_000), "1000"}}
	for _, c := range []struct {
		want  Error
		calls [][]string
	}{
		{"", [][]string{{"rename", "k", name(250_000)}}},
		{ErrQuota, [][]string{{"rename", name(250_000), name(350_000)}}},
		{ErrQuota, signal[:1]},
		{"", signal},
		{ErrQuota, [][]string{{"lpush", name(90_000), "1"}, {"pexpire", name(90_000), "1000"}}},
		{"", [][]string{{"expire", name(250_000), "10"}, {"rename", name(250_000), "k"}}},
	} {
		if got := overrun(c.calls...); got != c.want {
			t.Errorf("%.20q: %q, want %q", c.calls, got, c.want)
		}
	}
}

// TestReplacesAtFullMemory: of the writes that may add data, only those pass that need no more room than before.
func TestReplacesAtFullMemory(t *testing.T) {
	d := newTestDB(t)
	d.do("SET", "k", "value")
	d.do("HSET", "h", "f", "value")
	d.do("ZADD", "z", "1", "m")
	d.env.Limits.Memory = 1
	for _, c := range []struct {
		want string
		args []string
	}{
		{"goes on", []string{"set", "k", "value"}}, {"goes on", []string{"set", "k", "value", "px", "100"}}, {"refused", []string{"set", "k", "other", "px", "100"}}, {"goes on", []string{"SET", "k", "value", "XX", "GET", "KEEPTTL"}},
		{"refused", []string{"set", "k", "longer"}}, {"refused", []string{"set", "k", "value", "nx"}}, {"refused", []string{"set", "none", "v"}},
		{"goes on", []string{"set", "k", "other", "px", "100", "xx"}}, {"refused", []string{"set", "k", "longer", "xx"}}, {"refused", []string{"set", "h", "v"}}, {"refused", []string{"set", "none", "", "xx"}},
		{"goes on", []string{"getset", "k", "value"}}, {"refused", []string{"getset", "k", "other"}},
		{"goes on", []string{"setex", "k", "10", "value"}}, {"refused", []string{"setex", "none", "10", "value"}},
		{"goes on", []string{"psetex", "k", "10", "value"}}, {"refused", []string{"psetex", "k", "10", "other"}},
		{"goes on", []string{"hset", "h", "f", "value"}}, {"refused", []string{"hset", "h", "f", "longer"}}, {"refused", []string{"hset", "h", "g", ""}},
		{"goes on", []string{"hmset", "h", "f", "value"}}, {"refused", []string{"hmset", "h", "f", "v"}}, {"refused", []string{"hset", "h", "f", "v", "g", "v"}}, {"refused", []string{"hset", "k", "f", "v"}},
		{"goes on", []string{"zadd", "z", "2", "m"}}, {"goes on", []string{"zadd", "z", "XX", "GT", "CH", "2", "m"}}, {"refused", []string{"zadd", "z", "2", "n"}},
		{"refused", []string{"zadd", "z", "2", "m", "3", "n"}}, {"refused", []string{"zadd", "none", "2", "m"}}, {"refused", []string{"zadd", "z", "xx", "2"}},
		{"goes on", []string{"zincrby", "z", "-5", "m"}}, {"refused", []string{"zincrby", "z", "-5", "n"}}, {"refused", []string{"zincrby", "none", "1", "m"}}, {"refused", []string{"zincrby", "k", "1", "m"}},
		{"goes on", []string{"set", "k", "value", "px", "100", "ifeq", "value"}}, {"goes on", []string{"set", "k", "other", "px", "100", "ifeq", "value"}}, {"refused", []string{"set", "k", "longer", "ifeq", "value"}},
		{"goes on", []string{"set", "none", "longer", "px", "100", "ifeq", "longer"}}, {"goes on", []string{"set", "k", "longer", "px", "100", "ifeq", "longer"}}, {"is wrong", []string{"set", "none", "longer", "px", "100", "ifdeq", "longer"}},
		{"goes on", []string{"set", "k", "longer", "ifne", "value"}}, {"goes on", []string{"set", "k", "value", "ifne", "other"}}, {"refused", []string{"set", "k", "other", "ifne", "longer"}}, {"refused", []string{"set", "none", "v", "ifne", "v"}},
		{"is wrong", []string{"set", "k", "longer", "px"}},
		{"refused", []string{"setnx", "k", "v"}}, {"refused", []string{"mset", "k", "v"}}, {"refused", []string{"append", "k", "v"}},
	} {
		txn := d.begin()
		got, before := "goes on", txn.size
		ctx := d.ctx(txn, c.args...)
		if _, denied := ctx.NoRoom(); denied {
			got = "refused"
		} else if r := ctx.Cmd.Run(ctx); txn.size == before && r.Str == string(ErrSyntax) {
			got = "is wrong"
		} else if r.IsError() || txn.size > before {
			t.Errorf("%q: %s, and the data has grown by %d", c.args, render(r), txn.size-before)
		}
		if got != c.want {
			t.Errorf("%q: %s, want %s", c.args, got, c.want)
		}
	}
}

// TestCountersUseTheReserve: at full memory, commands may change counters, but longer numbers count against the reserve.
func TestCountersUseTheReserve(t *testing.T) {
	d := newTestDB(t)
	const n = 3000
	for i := range n {
		d.do("SET", fmt.Sprint(i), "1")
		d.do("HSET", "h", fmt.Sprint(i), "1")
	}
	d.env.Limits.Memory = d.s.DataSize() + emptySize
	most := d.s.DataSize() + DefaultMaxEntry
	refused := 0
	count := func(args ...string) {
		txn := d.begin()
		txn.BeginCall()
		c := d.ctx(txn, args...)
		if _, denied := c.NoRoom(); denied {
			refused++
		} else if r := c.Cmd.Run(c); r.IsError() || c.Overrun() != "" {
			refused++
		} else {
			d.apply(txn)
		}
	}
	for i := range n {
		count("incrbyfloat", fmt.Sprint(i), "1e4900")
		count("hincrbyfloat", "h", fmt.Sprint(i), "1e4900")
	}
	if got := d.s.DataSize(); got > most || refused == 0 {
		t.Errorf("the data has %d bytes, its limit and the reserve allow %d; %d commands were refused", got, most, refused)
	}
	refused = 0
	for i := n - 100; i < n; i++ {
		count("incr", fmt.Sprint(i))
		count("hincrby", "h", fmt.Sprint(i), "-1")
	}
	if refused > 0 {
		t.Errorf("%d counters could not be changed", refused)
	}
}

// TestRoomIsFoundByAnIndex: NoRoom does not search a large compact form from its start for each command.
func TestRoomIsFoundByAnIndex(t *testing.T) {
	d := newTestDB(t)
	d.s.config = d.s.config.with(ParamHashEntries, fmt.Sprint(MaxCompact)).with(ParamScoreEntries, fmt.Sprint(MaxCompact))
	for i := range MaxCompact {
		d.do("HSET", "h", fmt.Sprint(i), "1")
		d.do("ZADD", "z", "1", fmt.Sprint(i))
	}
	d.env.Limits.Memory = 1
	last := fmt.Sprint(MaxCompact - 1)
	for _, args := range [][]string{{"hset", "h", last, "1"}, {"hincrby", "h", last, "1"}, {"zadd", "z", "2", last}, {"zincrby", "z", "2", last}} {
		txn := d.begin()
		c := d.ctx(txn, args...)
		for range 10 * searchesPerIndex {
			if _, denied := c.NoRoom(); denied {
				t.Errorf("%q is refused", args)
			}
		}
		if txn.find.places == nil && txn.find.scores == nil {
			t.Errorf("%q: no index", args)
		}
	}
}
