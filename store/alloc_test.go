package store

import (
	"fmt"
	"testing"
)

// TestAllocations limits the allocations of commands on locks, from evaluation to Apply, to measured values.
func TestAllocations(t *testing.T) {
	if testing.CoverMode() != "" {
		t.Skip("coverage counts")
	}
	table := NewTable(Commands())
	call := func(args ...string) *Ctx {
		c := &Ctx{}
		for _, a := range args {
			c.Args = append(c.Args, []byte(a))
		}
		c.Cmd = table.Lookup(c.Args[0])
		return c
	}
	set := call("SET", "lock", "0123456789abcdef", "NX", "PX", "30000")
	del := call("DEL", "lock")
	hset := call("HINCRBY", "rlock", "uuid:1", "1")
	for _, tc := range []struct {
		name  string
		calls []*Ctx
		limit float64
	}{
		{"SET NX PX, DEL", []*Ctx{set, del}, 7},
		{"HINCRBY, HEXISTS, PEXPIRE, PTTL", []*Ctx{hset, call("HEXISTS", "rlock", "uuid:1"), call("PEXPIRE", "rlock", "30000"), call("PTTL", "rlock")}, 9},
		{"GET, EXISTS, HGET", []*Ctx{call("GET", "other1"), call("EXISTS", "other1"), call("HGET", "rlock", "uuid:1")}, 0},
	} {
		d := newTestDB(t)
		for i := range 1000 {
			d.do("SET", fmt.Sprint("other", i), "owner", "PX", "30000")
		}
		s, seq := d.s, d.seq
		txn := s.Begin(d.now, 1, Env{})
		got := testing.AllocsPerRun(5000, func() {
			for _, c := range tc.calls {
				txn.Restart(txn.Now(), 1)
				c.Txn = txn
				if r := c.Cmd.Run(c); r.IsError() {
					t.Fatal(r.Str)
				}
				if b := txn.Writes().Bytes(); len(b) > 0 {
					seq++
					if err := s.Apply(b, seq, nil); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
		if got > tc.limit {
			t.Errorf("%s: %.1f allocations, limit %.0f", tc.name, got, tc.limit)
		}
	}
}
