package store

import (
	"strings"
	"testing"
)

// TestBitsWriteLittle: of a long string only what has changed goes into the
// log, and the string that Apply makes is the one that the command saw.
func TestBitsWriteLittle(t *testing.T) {
	long := strings.Repeat("x", 10000)
	for _, tc := range []struct {
		call  string
		limit int // bytes of the write set
	}{
		{"SETBIT k 40000 1", 10},
		{"SETBIT k 160000 1", 10},
		{"SETBIT none 160000 0", 12},
		{"BITFIELD k SET u16 800 258 INCRBY u8 816 1", 12},
		{"BITFIELD k OVERFLOW FAIL INCRBY u2 160000 7", 10},
		{"SETBIT k 0 0", 0},
		{"BITFIELD k GET u8 0 SET u8 0 120", 0},
	} {
		d := newTestDB(t)
		d.do("SET", "k", long)
		txn := d.begin()
		d.run(txn, words(tc.call)...)
		if got := txn.Writes().Size(); got > tc.limit {
			t.Errorf("%s wrote %d bytes", tc.call, got)
		}
		view := dump(txn)
		d.apply(txn)
		if got := dump(d.begin()); got != view {
			t.Errorf("%s: the transaction and what was applied differ", tc.call)
		}
	}
}
