package store

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// TestCopiedValuesAreTold: the brake learns what a small write copies, at evaluation, and at Apply while a snapshot shares the data.
func TestCopiedValuesAreTold(t *testing.T) {
	const large = 1 << 20
	bits := string(make([]byte, large))
	const keys, elements = 5, 512
	many := func(line ...string) (lines [][]string) {
		for key := range keys {
			call := []string{line[0], fmt.Sprint("k", key)}
			for i := range elements {
				for _, arg := range line[1:] {
					call = append(call, strings.ReplaceAll(arg, "#", fmt.Sprint(i)))
				}
			}
			lines = append(lines, call)
		}
		return lines
	}
	for _, c := range []struct {
		data  [][]string
		line  []string // a command; % is the number of a key
		least int      // the least number of bytes that are copied
	}{
		{[][]string{{"SET", "k0", bits}}, []string{"SETRANGE", "k%", "7", "x"}, large},
		{[][]string{{"SET", "k0", bits}}, []string{"APPEND", "k%", "x"}, large},
		{[][]string{{"SET", "k0", bits}}, []string{"SETBIT", "k%", "9", "1"}, large},
		{[][]string{{"SET", "k0", bits}}, []string{"BITFIELD", "k%", "SET", "u8", "0", "1"}, large},
		{many("HSET", "f#", "v"), []string{"HSET", "k%", "f7", "w"}, keys * elements * int(fieldSize)},
		{many("HSET", "f#", "v"), []string{"HDEL", "k%", "f7"}, keys * elements * int(fieldSize)},
		{many("HSET", "f#", "v"), []string{"COPY", "k%", "k0", "REPLACE"}, keys * elements * int(fieldSize)},
		{many("HSET", "f#", "v"), []string{"RENAME", "k%", "n%"}, keys * elements * int(fieldSize)},
		{many("HSET", "f#", "v"), []string{"PEXPIRE", "k%", "1000"}, keys * elements * int(fieldSize)},
		{many("SADD", "#"), []string{"SADD", "k%", "-1"}, keys * elements * int(intSize)},
		{many("ZADD", "#", "m#"), []string{"ZADD", "k%", "7", "m9"}, keys * treeCopy},
		{many("RPUSH", "#"), []string{"LSET", "k%", "7", "x"}, keys * treeCopy},
		{many("SADD", "m#"), []string{"SREM", "k%", "m9"}, keys * treeCopy},
	} {
		d := newTestDB(t)
		for _, line := range c.data {
			d.do(line...)
		}
		told := 0
		d.s.Brake(func(bytes int) { told += bytes })
		takes := func(what string) {
			if told += d.s.uncounted; told < c.least {
				t.Errorf("%v: %d bytes were copied when it was %s, want %d", c.line, told, what, c.least)
			}
			told, d.s.uncounted = 0, 0
		}
		d.s.uncounted = 0
		txn := d.begin()
		for i := range c.data {
			line := slices.Clone(c.line)
			for at := range line {
				line[at] = strings.ReplaceAll(line[at], "%", fmt.Sprint(i))
			}
			d.run(txn, line...)
		}
		takes("evaluated")
		d.s.Snapshot()
		d.apply(txn)
		takes("applied")
	}
}

// TestCopiesAreToldInTime: the brake is told of each long value before the value is copied.
func TestCopiesAreToldInTime(t *testing.T) {
	const large = 1 << 20
	d := newTestDB(t)
	for i := range 8 {
		d.do("SET", fmt.Sprint("k", i), strings.Repeat("x", large))
	}
	for _, step := range []string{"evaluated", "applied"} {
		txn := d.begin()
		calls, changed := 0, 0
		d.s.Brake(func(bytes int) {
			if bytes > large+copyStep {
				t.Errorf("%s: told of %d bytes at once", step, bytes)
			}
			if calls++; step == "applied" {
				changed = 0
				for i := range 8 {
					if d.s.dbs[0].keys.get(hashOf(fmt.Sprint("k", i)), fmt.Sprint("k", i)).str[0] == 'y' {
						changed++
					}
				}
			}
		})
		for i := range 8 {
			d.run(txn, "SETRANGE", fmt.Sprint("k", i), "0", "y")
			if step == "evaluated" && calls != i+1 {
				t.Errorf("after %d values it was called %d times", i+1, calls)
			}
		}
		if step == "applied" {
			if d.apply(txn); changed != 7 {
				t.Errorf("%d of 8 values had been changed at the last call", changed)
			}
		}
	}
}

// TestForgottenCopies: when the writes of a transaction have been copied, the transaction drops the values that it has copied.
func TestForgottenCopies(t *testing.T) {
	d := newTestDB(t)
	d.do("SET", "k", strings.Repeat("x", 2*keepWrites))
	txn := d.begin()
	d.run(txn, "SETRANGE", "k", "0", "y")
	if txn.Held() < 2*keepWrites {
		t.Errorf("it holds %d bytes", txn.Held())
	}
	if txn.Forget(); txn.Held() != 0 || len(txn.views[0].over) != 0 {
		t.Errorf("%d bytes and %d entries are kept", txn.Held(), len(txn.views[0].over))
	}
	txn.Restart(d.now, d.seq+1)
	if d.run(txn, "SETRANGE", "k", "0", "y"); txn.Held() < 2*keepWrites || len(txn.views[0].over) != 1 {
		t.Errorf("the next one holds %d bytes in %d entries", txn.Held(), len(txn.views[0].over))
	}
}

// LCS finds the same subsequence as a plain algorithm with a table of all lengths, but its table takes only one bit for each cell.
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

// TestLCSKeepsShortRows: LCS keeps rows as long as the shorter string, whichever string comes first.
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
