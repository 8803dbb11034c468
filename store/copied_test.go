package store

import "testing"

// Whoever keeps a process from growing hears of every copy of a value that a write of a few bytes makes, when it is
// evaluated and when it is applied.
func TestCopiedValuesAreTold(t *testing.T) {
	const large = 1 << 20
	for _, line := range [][]string{
		{"SETRANGE", "k", "7", "x"}, {"APPEND", "k", "x"}, {"SETBIT", "k", "9", "1"}, {"BITFIELD", "k", "SET", "u8", "0", "1"},
	} {
		d := newTestDB(t)
		txn := d.begin()
		d.run(txn, "SET", "k", string(make([]byte, large)))
		d.apply(txn)
		d.s.TakeCopied()
		txn = d.begin()
		d.run(txn, line...)
		if n := txn.TakeCopied(); n < large || n > 2*large {
			t.Errorf("%v: %d bytes were copied when it was evaluated, want %d", line, n, large)
		}
		d.apply(txn)
		for _, want := range []int{large, 0} { // it is told once
			if n := d.s.TakeCopied(); n < want || n > 2*want {
				t.Errorf("%v: %d bytes were copied when it was applied, want %d", line, n, want)
			}
		}
	}
}
