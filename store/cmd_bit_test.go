package store

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
)

// TestBitsWriteLittle: for a change of a part of a long string, the log gets only that part.
func TestBitsWriteLittle(t *testing.T) {
	long := strings.Repeat("x", 10000)
	for _, tc := range []struct {
		call  string
		limit int // most bytes that the write set may have
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

// TestUnchangedBitsAreNotCopied: a command that changes no bit does not copy the string.
func TestUnchangedBitsAreNotCopied(t *testing.T) {
	d := newTestDB(t)
	d.do("SET", "k", strings.Repeat("x", 8<<20))
	for _, call := range []string{"SETBIT k 0 0", "BITFIELD k SET u8 0 120", "BITFIELD k SET u8 0 120 SET u8 #8388607 120"} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range 1000 {
			d.run(d.begin(), words(call)...)
		}
		if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 16<<20 {
			t.Errorf("%s a thousand times takes %d KB", call, (after.TotalAlloc-before.TotalAlloc)>>10)
		}
	}
}

// A command that reads all bits of a long string counts its steps, so its time limit can end it.
func TestLongBitStringsAreWatched(t *testing.T) {
	d := newTestDB(t)
	d.do("SET", "k", strings.Repeat("\x00", 8<<20))
	for _, call := range []string{"BITOP NOT d k", "BITCOUNT k", "BITPOS k 1"} {
		if d.watched(words(call)...) == 0 {
			t.Errorf("%s was not watched", call)
		}
	}
	if d.watched(append([]string{"BITFIELD", "k"}, strings.Fields(strings.Repeat("SET i64 0 0 ", 5000))...)...) == 0 {
		t.Error("BITFIELD of many operations was not watched")
	}
}

// BITFIELD reads and writes exactly the bits that its operations name.
func TestBitFieldWritesItsBits(t *testing.T) {
	d := newTestDB(t)
	random := rand.New(rand.NewPCG(1, 2))
	bits := make([]byte, 200) // each is '0' or '1'
	for i := range bits {
		bits[i] = '0'
	}
	d.do("SET", "k", string(make([]byte, len(bits)/8)))
	for range 2000 {
		width := 1 + random.IntN(63)
		offset := random.IntN(len(bits) - width)
		value := random.Uint64() >> (64 - width)
		old := uint64(0)
		for i, b := range fmt.Appendf(nil, "%0*b", width, value) {
			old = old<<1 | uint64(bits[offset+i]-'0')
			bits[offset+i] = b
		}
		field := []string{fmt.Sprint("u", width), fmt.Sprint(offset)}
		got := d.do("BITFIELD", "k", "SET", field[0], field[1], fmt.Sprint(value), "GET", field[0], field[1])
		if want := fmt.Sprintf("[:%d :%d]", old, value); got != want {
			t.Fatalf("%v: %s, want %s", field, got, want)
		}
	}
	for i, b := range bits {
		if got := d.do("GETBIT", "k", fmt.Sprint(i)); got != ":"+string(b) {
			t.Fatalf("bit %d is %s", i, got)
		}
	}
}
