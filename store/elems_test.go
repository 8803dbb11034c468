package store

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestDequeGaps inserts at one place until there is no room between positions,
// and pushes beyond the first and the last one.
func TestDequeGaps(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	l, want := newList(), []string{}
	for i := range 3000 {
		at := rng.IntN(len(want) + 1)
		switch i % 3 {
		case 0:
			at = len(want) / 2
		case 1:
			at = min(1, len(want))
		}
		value := fmt.Sprint(i)
		l.insert(at, value)
		want = slices.Insert(want, at, value)
		if i%7 == 0 {
			at := rng.IntN(len(want))
			n := rng.IntN(len(want)-at) % 3
			l.remove(at, n)
			want = slices.Delete(want, at, at+n)
		}
	}
	var got []string
	l.Each(0, func(value string) bool {
		got = append(got, value)
		return true
	})
	if !slices.Equal(got, want) {
		t.Errorf("%d elements, want %d, or in another order", len(got), len(want))
	}
	edge := newList()
	edge.tree.Set(listElem{math.MaxInt64 - 5, "b"})
	edge.tree.Set(listElem{math.MinInt64 + 5, "a"})
	edge.push(true, "first")
	edge.push(false, "last")
	edge.insert(2, "middle")
	if got := fmt.Sprint((&Ctx{}).listSlice(edge, 0, edge.Len())); got != fmt.Sprint(Strs("first", "a", "middle", "b", "last").Elems) {
		t.Errorf("at the edges: %s", got)
	}
}

// TestInsertionMovesFew: an insertion gives only a few elements new positions, however long the list is.
func TestInsertionMovesFew(t *testing.T) {
	for name, at := range map[string]func(n int) int{
		"behind the first":  func(int) int { return 1 },
		"before the last":   func(n int) int { return n - 1 },
		"in the middle":     func(n int) int { return n / 2 },
		"always one behind": func(n int) int { return n - 600 },
	} {
		l, moved := newList(), 0
		for range 1000 {
			l.push(false, "x")
		}
		for range 1000 {
			before := positions(l)
			i := at(l.Len())
			l.insert(i, "y")
			if l.At(i) != "y" {
				t.Fatalf("%s: inserted elsewhere", name)
			}
			for j, p := range slices.Delete(positions(l), i, i+1) {
				if p != before[j] {
					moved++
				}
			}
		}
		if moved > 1000*40 {
			t.Errorf("%s: %d elements moved for each insertion", name, moved/1000)
		}
	}
	long := newList()
	for range 200_000 {
		long.push(false, "x")
	}
	for range 10_000 {
		long.insert(1, "y")
	}
	if n := long.Len(); n != 210_000 || long.At(10_000) != "y" || long.At(10_001) != "x" {
		t.Errorf("%d elements, or in another order", n)
	}
}

func positions(l *Deque) (list []int64) {
	l.tree.Scan(func(e listElem) bool {
		list = append(list, e.at)
		return true
	})
	return list
}

// TestWiden: whatever the positions of the elements are, widen makes a gap, and the order of the elements stays the same.
func TestWiden(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		l, at, n := newList(), []int64{0, -20, math.MinInt64, math.MaxInt64 - 80}[rng.IntN(4)], 2+rng.IntN(30)
		for i := range n {
			l.tree.Set(listElem{at, fmt.Sprint(i)})
			at += 1 + rng.Int64N(2)*rng.Int64N(2)
		}
		i := 1 + rng.IntN(n-1)
		l.widen(i)
		if _, ok := l.gap(i); !ok {
			t.Fatalf("no gap before %d: %v", i, positions(l))
		}
		for j := range n {
			if l.At(j) != fmt.Sprint(j) {
				t.Fatalf("another order: %v", positions(l))
			}
		}
	}
}

func TestFormsOfCollections(t *testing.T) {
	d := newTestDB(t)
	encoding := func(key, want string) {
		t.Helper()
		if got := d.do("OBJECT", "ENCODING", key); got != `"`+want+`"` {
			t.Errorf("%s is a %s, want %s", key, got, want)
		}
	}
	for i := range defaultForms.setEntries {
		d.do("SADD", "ints", fmt.Sprint(i))
	}
	encoding("ints", "intset")
	d.do("SADD", "ints", "-1")
	encoding("ints", "hashtable")
	d.do("SREM", "ints", "-1")
	encoding("ints", "hashtable")
	d.do("SADD", "words", "01")
	encoding("words", "hashtable")
	for i := range defaultForms.scoreEntries {
		d.do("ZADD", "scores", fmt.Sprint(i), fmt.Sprint(i))
	}
	encoding("scores", "listpack")
	d.do("ZADD", "scores", "1", "one more")
	encoding("scores", "skiplist")
	d.do("ZADD", "long", "1", strings.Repeat("m", defaultForms.scoreValue))
	encoding("long", "listpack")
	d.do("ZADD", "long", "1", strings.Repeat("m", defaultForms.scoreValue+1))
	encoding("long", "skiplist")
	d.do("RPUSH", "list", "a")
	encoding("list", "quicklist")
}

func TestRandomMembers(t *testing.T) {
	for _, n := range []int{5, 700} {
		d := newTestDB(t)
		for i := range n {
			d.do("SADD", "s", fmt.Sprint(i))
			d.do("ZADD", "z", "1.5", fmt.Sprint("m", i))
		}
		for _, call := range [][]string{{"SRANDMEMBER", "s"}, {"ZRANDMEMBER", "z"}} {
			seen := map[string]bool{}
			for range 40 * n {
				seen[d.do(call...)] = true
			}
			if len(seen) != n {
				t.Errorf("%s picked %d members of %d", call[0], len(seen), n)
			}
			for _, count := range []int{0, 1, n - 1, n, n + 1} {
				different := map[string]bool{}
				for _, r := range d.run(d.begin(), append(call, fmt.Sprint(count))...).Elems {
					different[r.Str] = true
				}
				if len(different) != min(count, n) {
					t.Errorf("%s %d: %d different members", call[0], count, len(different))
				}
			}
			if got := len(d.run(d.begin(), append(call, fmt.Sprint(-2*n))...).Elems); got != 2*n {
				t.Errorf("%s %d: %d members", call[0], -2*n, got)
			}
			if got := d.do(append(call, "-9000000000000000000")...); got != render(valueRange) {
				t.Errorf("%s of too many: %s", call[0], got)
			}
		}
		popped := map[string]bool{}
		for i := 0; d.do("EXISTS", "s") == ":1"; i++ {
			for _, r := range d.popSome(1 + i%3) {
				if popped[r.Str] {
					t.Fatalf("%s was popped twice", r.Str)
				}
				popped[r.Str] = true
			}
		}
		if len(popped) != n {
			t.Errorf("%d members of %d were popped", len(popped), n)
		}
	}
}

func (d *testDB) popSome(n int) []Reply {
	txn := d.begin()
	r := d.run(txn, "SPOP", "s", fmt.Sprint(n))
	d.apply(txn)
	return r.Elems
}

// TestSortForScripts: a script must see the elements in a defined order.
func TestSortForScripts(t *testing.T) {
	d := newTestDB(t)
	d.do("SADD", "s", "c", "a", "b")
	args := [][]byte{[]byte("SORT"), []byte("s"), []byte("BY"), []byte("nosort")}
	c := &Ctx{Txn: d.begin(), Cmd: d.table.Lookup(args[0]), Args: args, InScript: true}
	if got := render(c.Cmd.Run(c)); got != `["a" "b" "c"]` {
		t.Errorf("got %s", got)
	}
}

// TestCollectionsKeepDeadlines: a command that changes a value keeps the key's time to live; a command that replaces the value does not.
func TestCollectionsKeepDeadlines(t *testing.T) {
	d := newTestDB(t)
	for _, tc := range []struct{ set, change, ttl string }{
		{"RPUSH k a b", "LPUSH k c", ":100"},
		{"RPUSH k a b", "LPOP k", ":100"},
		{"RPUSH k a", "LMOVE k k left right", ":100"},
		{"SADD k a b", "SREM k a", ":100"},
		{"ZADD k 1 a", "ZADD k 2 a 3 b", ":100"},
		{"SADD k a b", "SUNIONSTORE k k", ":-1"},
		{"ZADD k 1 a", "ZUNIONSTORE k 1 k", ":-1"},
		{"ZADD k 1 a", "ZRANGESTORE k k 0 -1", ":-1"},
		{"RPUSH k 2 1", "SORT k STORE k", ":-1"},
		{"SET k a", "SETBIT k 1 1", ":100"},
		{"SET k a", "BITFIELD k SET u8 0 1", ":100"},
		{"SET k a", "BITOP NOT k k", ":-1"},
	} {
		d.do("DEL", "k")
		d.do(words(tc.set)...)
		d.do("EXPIRE", "k", "100")
		d.do(words(tc.change)...)
		if got := d.do("TTL", "k"); got != tc.ttl {
			t.Errorf("%s, %s: TTL %s, want %s", tc.set, tc.change, got, tc.ttl)
		}
	}
}
