package store

import (
	"bytes"
	"strconv"
	"strings"
	"testing"
)

// TestForms: parameters decide when a collection leaves its compact form, also in Apply. A restored value keeps its form.
func TestForms(t *testing.T) {
	d := newTestDB(t)
	set := func(name, value string) {
		txn := d.begin()
		txn.SetConfig(name, value)
		if v := txn.Writes().Version(); v != 2 {
			t.Errorf("%s: an entry of version %d, which version 0.1.0 would take", name, v)
		}
		d.apply(txn)
	}
	set(ParamHashEntries, "1000")
	set(ParamHashValue, "2kb")
	set(ParamSetEntries, "1000")
	set(ParamScoreEntries, "1000")
	set(ParamScoreValue, "2kb")
	long := strings.Repeat("x", 2000)
	for i := range 900 {
		d.do("HSET", "h", long[:i+1], long[i:])
		d.do("SADD", "s", strconv.Itoa(i))
		d.do("ZADD", "z", "1", long[:i+1])
	}
	check := func(compact bool) {
		t.Helper()
		for _, key := range []string{"h", "s", "z"} {
			e := d.begin().Lookup(0, []byte(key))
			if got := e.collection().(interface{ Compact() bool }).Compact(); got != compact {
				t.Errorf("%s: compact is %t", key, got)
			}
			if want := e.elems.Len(); want < 900 {
				t.Errorf("%s has %d elements", key, want)
			}
		}
	}
	check(true)
	for _, name := range []string{ParamHashEntries, ParamSetEntries, ParamScoreEntries} {
		set(name, "2")
	}
	check(true)
	var b bytes.Buffer
	if err := d.s.Snapshot().Encode(&b); err != nil {
		t.Fatal(err)
	}
	s, err := Restore(&b)
	if err != nil {
		t.Fatal(err)
	}
	size := d.s.DataSize()
	if d.s = s; s.DataSize() != size {
		t.Errorf("restored, the data takes %d, and took %d", s.DataSize(), size)
	}
	check(true)
	txn := d.begin()
	txn.HashSet(0, []byte("h"), "one", "more")
	txn.SetAdd(0, []byte("s"), "1000")
	txn.ScoreSet(0, []byte("z"), "one", 2)
	if txn.Lookup(0, []byte("h")).Fields().Compact() {
		t.Error("the transaction does not see what will be")
	}
	d.apply(txn)
	check(false)
	// No parameter allows a compact form of more than MaxCompact elements.
	set(ParamHashEntries, "1000000000")
	txn = d.begin()
	for i := range MaxCompact + 1 {
		txn.HashSet(0, []byte("many"), strconv.Itoa(i), "")
	}
	d.apply(txn)
	if d.begin().Lookup(0, []byte("many")).Fields().Compact() {
		t.Errorf("a compact hash of %d fields", MaxCompact+1)
	}
}
