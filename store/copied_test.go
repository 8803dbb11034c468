package store

import (
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
)

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

// LCS finds what the table of all lengths says, and takes a bit for each of its cells.
func TestLCSTakesBits(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	text := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "abc"[random.IntN(3)]
		}
		return string(b)
	}
	for range 300 {
		a, b := text(random.IntN(20)), text(random.IntN(20))
		lengths := make([][]int, len(a)+1)
		lengths[0] = make([]int, len(b)+1)
		for i := range len(a) {
			lengths[i+1] = make([]int, len(b)+1)
			for j := range len(b) {
				if lengths[i+1][j+1] = max(lengths[i][j+1], lengths[i+1][j]); a[i] == b[j] {
					lengths[i+1][j+1] = lengths[i][j] + 1
				}
			}
		}
		var want []byte
		for i, j := len(a), len(b); i > 0 && j > 0; {
			switch {
			case a[i-1] == b[j-1]:
				want = append([]byte{a[i-1]}, want...)
				i, j = i-1, j-1
			case lengths[i-1][j] > lengths[i][j-1]:
				i--
			default:
				j--
			}
		}
		table := newLCSTable(a, b, func(int) {})
		if got := table.common(a, b, int64(table.length)); got != string(want) {
			t.Fatalf("LCS %q %q: %q, want %q", a, b, got, want)
		}
	}
	a, b := text(4000), text(4000)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	newLCSTable(a, b, func(int) {})
	if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 3<<20 {
		t.Errorf("LCS of 4000 bytes each takes %d KB", (after.TotalAlloc-before.TotalAlloc)>>10)
	}
}

// LCS keeps two rows of lengths along the shorter string, whichever comes first, and none for an empty one.
func TestLCSKeepsShortRows(t *testing.T) {
	d := newTestDB(t)
	long := strings.Repeat("ab", 1<<20)
	d.do("SET", "long", long)
	d.do("SET", "short", "b")
	for args, want := range map[[2]string]string{{"long", "short"}: `"b"`, {"short", "long"}: `"b"`, {"long", "none"}: `""`, {"none", "long"}: `""`} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if got := d.do("LCS", args[0], args[1]); got != want {
			t.Errorf("LCS %v: %.20q", args, got)
		}
		if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 1<<20 {
			t.Errorf("LCS %v takes %d KB", args, (after.TotalAlloc-before.TotalAlloc)>>10)
		}
	}
	if n := d.watched("LCS", "long", "short"); n < 100 {
		t.Errorf("LCS was watched %d times", n)
	}
}
