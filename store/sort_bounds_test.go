package store

import (
	"fmt"
	"strings"
	"testing"
)

// TestSortKeepsWhatItReplies: SORT with LIMIT gives a range of the whole result, but does not keep all elements in memory.
func TestSortKeepsWhatItReplies(t *testing.T) {
	d := newTestDB(t)
	const n = 10_000
	push := []string{"RPUSH", "l"}
	for i := range n {
		push = append(push, fmt.Sprintf("%d\x00%d", i*7919%1009, i)) // ALPHA compares up to the zero byte
	}
	d.do(push...)
	for _, order := range []string{"ASC", "DESC"} {
		for _, limit := range [][2]int{{0, 1}, {0, 300}, {500, 700}, {n - 10, 20}, {0, 0}} {
			all := d.run(d.begin(), "SORT", "l", "ALPHA", order).Elems
			part := d.run(d.begin(), "SORT", "l", "ALPHA", order, "LIMIT", fmt.Sprint(limit[0]), fmt.Sprint(limit[1])).Elems
			if got, want := fmt.Sprint(part), fmt.Sprint(all[limit[0]:min(limit[0]+limit[1], n)]); got != want {
				t.Errorf("%s LIMIT %d: other elements than without", order, limit)
			}
		}
		asIs := d.run(d.begin(), "SORT", "l", "BY", "nosort", order).Elems
		part := d.run(d.begin(), "SORT", "l", "BY", "nosort", order, "LIMIT", "3", "5").Elems
		if fmt.Sprint(part) != fmt.Sprint(asIs[3:8]) {
			t.Errorf("%s BY nosort LIMIT: other elements than without", order)
		}
	}
	c := d.ctx(d.begin(), "SORT", "l", "ALPHA")
	items, _ := c.sortFirst(&sortCall{alpha: true, work: c.work}, c.Lookup(0, []byte("l")), 1)
	if cap(items) > 2*sortSpare {
		t.Errorf("for one element it keeps %d", cap(items))
	}
	d.env.Limits = Limits{Reply: 10_000}
	if got := d.do("SORT", "l", "ALPHA", "LIMIT", "9000", "1"); !strings.Contains(got, "reply") {
		t.Errorf("to sort 9000 elements for one replies %s", got)
	}
}

// TestPlainSetEndsWhatIsDue: an expired key has no owner any more. So a SET makes a new key, with a creation number of its own.
func TestPlainSetEndsWhatIsDue(t *testing.T) {
	d := newTestDB(t)
	d.do("SET", "k", "a", "PX", "10")
	first := d.s.dbs[0].get("k").token
	d.advance(1000)
	d.do("SET", "k", "b")
	if got := d.s.dbs[0].get("k").token; got == first {
		t.Errorf("both have the number %d", got)
	}
}

// TestPendingKeysAreSortedOnce: the first SCAN sorts the pending keys. A later SCAN sorts them only if a key has been added since.
func TestPendingKeysAreSortedOnce(t *testing.T) {
	d := newTestDB(t)
	txn := d.begin()
	set := []string{"MSET"}
	for i := range 5000 {
		set = append(set, fmt.Sprint("k", i), "")
	}
	d.run(txn, set...)
	scan := func() (steps int) {
		c := d.ctx(txn, "SCAN", "0")
		steps = 0
		txn.pending(&txn.views[0], func(n int) { steps += n })
		if r := c.Cmd.Run(c); len(r.Elems[1].Elems) == 0 {
			t.Error("SCAN finds no key")
		}
		return steps
	}
	if n := scan(); n < 5000 {
		t.Errorf("the first SCAN counts %d steps", n)
	}
	if n := scan(); n > 0 {
		t.Errorf("the next SCAN counts %d steps", n)
	}
	found := func() bool {
		return strings.Contains(render(d.run(txn, "SCAN", "0", "COUNT", "100000")), `"new"`)
	}
	sp := txn.Savepoint()
	d.run(txn, "SET", "new", "")
	if !found() {
		t.Error("a new key is not found")
	}
	txn.Rollback(sp)
	if found() {
		t.Error("a key that was rolled back is found")
	}
}

// TestTrimsAreBounded: a transaction may make only a limited number of LTRIMs that remove many elements.
func TestTrimsAreBounded(t *testing.T) {
	d := newTestDB(t)
	d.env.Limits = Limits{Entry: MinEntry}
	push := []string{"RPUSH", "l"}
	for i := range 2000 {
		push = append(push, fmt.Sprint(i))
	}
	d.do(push...)
	// The keys are end indexes for LTRIM: 999 removes half, 99 moves a hundred elements, and 0 is almost no work.
	for end, most := range map[string]int{"999": 200, "99": 2000, "0": 1e6} {
		txn := d.begin()
		txn.BeginCall()
		trims := 0
		for ; trims <= most && !txn.tooBig(); trims++ {
			d.run(txn, "COPY", "l", "c", "REPLACE")
			d.run(txn, "LTRIM", "c", "0", end)
		}
		if trims > most || trims < 10 {
			t.Errorf("LTRIM 0 %s: it ends after %d trims", end, trims)
		}
	}
}
