package store

import (
	"fmt"
	"strings"
	"testing"
)

// manyIntegers creates sets of 500 integers each, s0 and so on, and lists their keys.
func manyIntegers(d *testDB, sets int) (keys []string) {
	for i := range sets {
		call := []string{"SADD", fmt.Sprint("s", i)}
		for j := range 500 {
			call = append(call, fmt.Sprint(i*500+j))
		}
		d.do(call...)
		keys = append(keys, call[1])
	}
	return keys
}

// TestCombinedSetsStopAtTheLimit: a command that combines sets builds no result beyond what it may reply or write.
func TestCombinedSetsStopAtTheLimit(t *testing.T) {
	const sets = 200
	d := newTestDB(t)
	keys := manyIntegers(d, sets)
	d.do(append([]string{"SUNIONSTORE", "all"}, keys...)...)
	count, members := fmt.Sprint(sets), sets*500
	reply, write := ErrReplyTooBig(256<<10), ErrEntryTooBig(MinEntry)
	d.env.Limits = Limits{Reply: 256 << 10, Entry: MinEntry}
	for _, x := range []struct {
		want Error
		call []string
	}{
		{reply, append([]string{"SUNION"}, keys...)},
		{reply, append([]string{"ZUNION", count}, keys...)},
		{reply, append(append([]string{"ZUNION", count}, keys...), "WITHSCORES")},
		{reply, []string{"SINTER", "all", "all"}}, {reply, []string{"ZINTER", "2", "all", "all"}},
		{reply, []string{"SDIFF", "all", "none"}}, {reply, []string{"ZDIFF", "2", "all", "none"}},
		{write, append([]string{"SUNIONSTORE", "d"}, keys...)},
		{write, append([]string{"ZUNIONSTORE", "d", count}, keys...)},
		{write, []string{"SINTERSTORE", "d", "all", "all"}}, {write, []string{"ZINTERSTORE", "d", "2", "all", "all"}},
		{write, []string{"SDIFFSTORE", "d", "all", "none"}}, {write, []string{"ZDIFFSTORE", "d", "2", "all", "none"}},
	} {
		if took := d.refused(x.want, x.call...); took > 2<<20 {
			t.Errorf("%.40q took %d bytes", x.call, took)
		}
	}
	for _, call := range []string{"SINTERCARD 2 all all", "ZINTERCARD 2 all all"} {
		if got := d.do(strings.Fields(call)...); got != fmt.Sprint(":", members) && got != fmt.Sprint(members) {
			t.Errorf("%s: %s", call, got)
		}
		if got := d.do(append(strings.Fields(call), "LIMIT", "7")...); got != ":7" && got != "7" {
			t.Errorf("%s LIMIT 7: %s", call, got)
		}
	}
}

// TestCombinedSetsWithinTheLimit: while a command builds its result, it refuses the results that would be too large in the end, and
// no others.
func TestCombinedSetsWithinTheLimit(t *testing.T) {
	d := newTestDB(t)
	keys := manyIntegers(d, 4) // integers of one to four digits
	d.do(append([]string{"SUNIONSTORE", "all"}, keys...)...)
	for _, call := range []string{"SUNION all none", "SINTER all all", "SDIFF all none", "ZUNION 1 all", "ZUNION 1 all WITHSCORES", "ZINTER 1 all", "ZDIFF 1 all"} {
		for _, resp := range []int{2, 3} {
			d.resp = resp
			d.env.Limits = Limits{}
			args := strings.Fields(call)
			r := d.run(d.begin(), args...)
			whole := Extent(r.Elems, 1<<30)
			for _, limit := range []int{whole, whole - 1} {
				d.env.Limits.Reply = int64(limit)
				txn := d.begin()
				r := d.run(txn, args...)
				if refused := r.IsError() || txn.Outsized(&r); refused != (limit < whole) {
					t.Errorf("%s with RESP%d: %d of %d bytes: %t", call, resp, limit, whole, refused)
				}
			}
		}
	}
}

// TestStoredSetsWithinTheLimit: a result is refused if, and only if, its writes would be. It does not matter whether it replaces
// another value.
func TestStoredSetsWithinTheLimit(t *testing.T) {
	for sets := 1; sets <= 8; sets++ {
		d := newTestDB(t)
		d.do(append([]string{"SUNIONSTORE", "all"}, manyIntegers(d, sets)...)...)
		for _, before := range []string{"none", "all"} {
			d.do("DEL", "d")
			d.do("COPY", before, "d")
			for _, call := range []string{"SUNIONSTORE d all", "SINTERSTORE d all", "SDIFFSTORE d all", "ZUNIONSTORE d 1 all", "ZINTERSTORE d 1 all", "ZDIFFSTORE d 1 all"} {
				run := func(limit int64) (*Ctx, Reply) {
					d.env.Limits = Limits{Entry: limit}
					txn := d.begin()
					txn.BeginCall()
					ctx := d.ctx(txn, strings.Fields(call)...)
					return ctx, ctx.Call(ctx.Cmd.Run)
				}
				whole, _ := run(MaxEntry)
				whole.env.Limits.Entry = MinEntry
				want := whole.Overrun()
				ctx, r := run(MinEntry)
				if got := ctx.Overrun(); got != want && Error(r.Str) != want {
					t.Errorf("%s of %d members over %s: %q, want %q", call, sets*500, before, render(r), want)
				}
				if want == "" && r.IsError() {
					t.Errorf("%s of %d members over %s: %s", call, sets*500, before, render(r))
				}
			}
		}
		d.env.Limits = Limits{}
	}
}
