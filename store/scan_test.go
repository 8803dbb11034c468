package store

import (
	"fmt"
	"strings"
	"testing"
)

// scanAll calls a scan command until the cursor is 0. Before each call but the first, it calls the function between.
func scanAll(t *testing.T, d *testDB, txn *Txn, call []string, at int, between func()) map[string]int {
	t.Helper()
	seen := map[string]int{}
	args := append([]string{}, call...)
	for steps := 0; ; steps++ {
		if steps > 10000 {
			t.Fatal("the iteration does not end")
		}
		r := d.run(txn, args...)
		for _, e := range r.Elems[1].Elems {
			seen[e.Str]++
		}
		args[at] = r.Elems[0].Str
		if args[at] == "0" {
			return seen
		}
		between()
	}
}

func TestScanIsComplete(t *testing.T) {
	d := newTestDB(t)
	const n = 1000
	for i := range n {
		d.do("SET", fmt.Sprint("k", i), "v")
	}
	txn := d.begin()
	for i := range n / 2 { // half of the keys are pending writes
		d.run(txn, "SET", fmt.Sprint("pending", i), "v")
		d.run(txn, "DEL", fmt.Sprint("k", i))
	}
	for _, count := range []string{"1", "7", "1000", "100000"} {
		seen := scanAll(t, d, txn, []string{"SCAN", "0", "COUNT", count}, 1, func() {})
		if len(seen) != n {
			t.Errorf("COUNT %s: %d keys of %d", count, len(seen), n)
		}
		for key, times := range seen {
			if times != 1 || !strings.HasPrefix(key, "pending") && d.run(txn, "EXISTS", key).Int != 1 {
				t.Errorf("COUNT %s: %s came %d times", count, key, times)
			}
		}
	}
}

// TestScanInParts: a client that asks for everything at once gets about a megabyte, and must ask again for the rest.
func TestScanInParts(t *testing.T) {
	d := newTestDB(t)
	const n = 40_000
	for i := range n {
		d.do("SET", fmt.Sprint("k", i), "v")
		d.do("SADD", "s", fmt.Sprint(i))
		d.do("HSET", "h", fmt.Sprint("f", i), strings.Repeat("v", 50))
		d.do("ZADD", "z", fmt.Sprint(i), fmt.Sprint(i))
	}
	txn := d.begin()
	for call, want := range map[string]int{"SCAN 0 COUNT 10000000": n + 3, "SSCAN s 0 COUNT 10000000": n, "HSCAN h 0 COUNT 10000000": n + 1, "ZSCAN z 0 COUNT 10000000": n} {
		args, at := strings.Fields(call), 1
		if args[0] != "SCAN" {
			at = 2
		}
		first := d.run(txn, args...)
		if size := Extent(first.Elems[1].Elems, 1<<30); size < scanPart || size > scanPart+1<<10 || first.Elems[0].Str == "0" {
			t.Errorf("%s returns %d bytes and goes on at %s", call, size, first.Elems[0].Str)
		}
		if got := len(scanAll(t, d, txn, args, at, func() {})); got != want {
			t.Errorf("%s: %d of %d", call, got, want)
		}
	}
}

// TestScanUnderChange: a key that exists from the first call to the last is returned, whatever happens to other keys meanwhile.
func TestScanUnderChange(t *testing.T) {
	d := newTestDB(t)
	for i := range 300 {
		d.do("SET", fmt.Sprint("stays", i), "v")
		d.do("SET", fmt.Sprint("goes", i), "v")
		d.do("HSET", "h", fmt.Sprint("stays", i), "v", fmt.Sprint("goes", i), "v")
		d.do("SADD", "s", fmt.Sprint("stays", i), fmt.Sprint("goes", i))
		d.do("ZADD", "z", "1", fmt.Sprint("stays", i), "2", fmt.Sprint("goes", i))
	}
	for _, call := range [][]string{{"SCAN", "0"}, {"HSCAN", "h", "0"}, {"SSCAN", "s", "0"}, {"ZSCAN", "z", "0"}} {
		i := 0
		txn := d.begin()
		seen := scanAll(t, d, txn, call, len(call)-1, func() {
			key := fmt.Sprint("goes", i)
			d.run(txn, "DEL", key)
			d.run(txn, "SET", fmt.Sprint("comes", i), "v")
			d.run(txn, "HDEL", "h", key)
			d.run(txn, "HSET", "h", fmt.Sprint("comes", i), "v")
			d.run(txn, "SREM", "s", key)
			d.run(txn, "SADD", "s", fmt.Sprint("comes", i))
			d.run(txn, "ZREM", "z", key)
			d.run(txn, "ZADD", "z", "3", fmt.Sprint("comes", i), "9", fmt.Sprint("stays", i))
			i++
		})
		for i := range 300 {
			if key := fmt.Sprint("stays", i); seen[key] != 1 {
				t.Errorf("%s: %s came %d times", call[0], key, seen[key])
			}
		}
	}
}

// TestScanKeepsEqualHashesTogether: keys with the same hash come in one call, because the cursor is a hash.
func TestScanKeepsEqualHashesTogether(t *testing.T) {
	walk := scanWalk{left: 2}
	visited := 0
	for _, hash := range []uint64{0, 5, 5, 5, 9} {
		if !walk.visit(hash) {
			break
		}
		visited++
	}
	if visited != 4 || walk.cursor != 9 {
		t.Errorf("visited %d, cursor %d; want 4 and 9", visited, walk.cursor)
	}
}

func TestScanFilters(t *testing.T) {
	d := newTestDB(t)
	d.script(`
		SET aa 1 => +OK
		HSET ab f v => :1
		SCAN 0 MATCH ab => ["0" ["ab"]]
		SCAN 0 TYPE string => ["0" ["aa"]]
		SCAN 0 TYPE HASH MATCH a* => ["0" ["ab"]]
		SCAN 0 TYPE list => ["0" []]
		SCAN 0 COUNT 0 => -ERR syntax error
		SCAN 0 COUNT x => -ERR value is not an integer or out of range
		SCAN 0 COUNT => -ERR syntax error
		SCAN x => -ERR invalid cursor
		SCAN 18446744073709551616 => -ERR invalid cursor
		HSCAN ab 0 TYPE string => -ERR syntax error
		HSCAN ab 77 COUNT 1 => ["0" ["f" "v"]]
		HSCAN ab 0 MATCH g => ["0" []]
		HSCAN aa 0 => -WRONGTYPE Operation against a key holding the wrong kind of value
		HSCAN none 0 FOO => ["0" []]
	`)
}
