package store

import (
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
)

// checkDeadlines looks whether the entries of a model, and no others, are found, and
// whether the buckets are as they are meant to be.
func checkDeadlines(t *testing.T, d *deadlines, model map[*Entry]bool) {
	t.Helper()
	if d.size != len(model) {
		t.Fatalf("%d entries of %d", d.size, len(model))
	}
	seen, last := 0, int64(math.MinInt64)
	d.periods.Scan(func(s period) bool {
		seen += len(s.entries)
		low, high := int64(math.MaxInt64), int64(math.MinInt64)
		for i, e := range s.entries {
			if !model[e] || d.find(e.deadline).bucket != s.bucket || s.seat(e) != i {
				t.Fatalf("deadline %d at seat %d of the period from %d", e.deadline, i, s.from)
			}
			low, high = min(low, e.deadline), max(high, e.deadline)
		}
		switch n := len(s.entries); {
		case n == 0, low < s.low, high > s.high, low < s.from, s.from < last, n > bucketSize && low != high:
			t.Fatalf("period from %d with %d entries from %d to %d, bounds %d and %d", s.from, n, low, high, s.low, s.high)
		case seen == n && s.from != math.MinInt64:
			t.Fatalf("time begins with %d", s.from)
		case !slices.Equal(s.entries[n:cap(s.entries)], make([]*Entry, cap(s.entries)-n)):
			t.Fatal("an entry that is gone is held")
		}
		last = s.high
		return true
	})
	if seen != len(model) {
		t.Fatalf("%d entries in buckets, want %d", seen, len(model))
	}
	all := deadlinesOf(model)
	for _, at := range []int64{math.MinInt64 + 1, -1, 2, 150, 5000, math.MaxInt64} {
		n, _ := slices.BinarySearch(all, at)
		if got := due(d, at, math.MaxInt); !slices.Equal(got, all[:n]) {
			t.Fatalf("before %d: %d deadlines, want %d", at, len(got), n)
		}
		if got := due(d, at, 3); len(got) != min(n, 3) {
			t.Fatalf("%d of at most 3 deadlines before %d, of which there are %d", len(got), at, n)
		}
	}
	first := int64(0)
	if len(all) > 0 {
		first = all[0]
	}
	if got := d.first(); got != first {
		t.Fatalf("the first deadline is %d, want %d", got, first)
	}
}

// deadlinesOf lists the deadlines of a model in order.
func deadlinesOf(model map[*Entry]bool) (list []int64) {
	for e := range model {
		list = append(list, e.deadline)
	}
	slices.Sort(list)
	return list
}

// due lists deadlines before a time, at most limit of them.
func due(d *deadlines, at int64, limit int) (list []int64) {
	d.before(at, func(e *Entry) bool {
		list = append(list, e.deadline)
		return len(list) < limit
	})
	slices.Sort(list)
	return list
}

func TestDeadlinesModel(t *testing.T) {
	extremes := []int64{math.MinInt64, math.MinInt64 + 1, -1, 1, math.MaxInt64 - 1, math.MaxInt64}
	for name, draw := range map[string]func(r *rand.Rand, step int64) int64{
		"few":       func(r *rand.Rand, _ int64) int64 { return 1 + r.Int64N(3) },
		"near":      func(r *rand.Rand, _ int64) int64 { return 1 + r.Int64N(300) },
		"far":       func(r *rand.Rand, _ int64) int64 { return int64(r.Uint64() | 1) },
		"ascending": func(r *rand.Rand, step int64) int64 { return step + r.Int64N(30) },
		"falling":   func(_ *rand.Rand, step int64) int64 { return -step },
		"one":       func(r *rand.Rand, _ int64) int64 { return 7 + r.Int64N(200)/199 - r.Int64N(200)/199 },
		"extreme":   func(r *rand.Rand, _ int64) int64 { return extremes[r.IntN(len(extremes))] },
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			d, model := newDeadlines(), map[*Entry]bool{}
			var list []*Entry
			for step := range int64(6000) {
				// The number of deadlines grows and shrinks by turns.
				grows := r.IntN(5) < 2+int(step/1000%2)*2-int(step/1500%2)
				switch {
				case len(list) == 0 || grows:
					e := &Entry{deadline: draw(r, step+1)}
					d.add(e)
					list, model[e] = append(list, e), true
				case r.IntN(4) == 0:
					i := r.IntN(len(list))
					old, e := list[i], &Entry{deadline: list[i].deadline, seat: 9}
					d.replace(old, e)
					list[i] = e
					delete(model, old)
					model[e] = true
				default:
					i := r.IntN(len(list))
					if name == "ascending" {
						i = min(i, r.IntN(8)) // remove the earliest deadlines first
					}
					d.remove(list[i])
					delete(model, list[i])
					list = slices.Delete(list, i, i+1)
				}
				if step%7 == 0 {
					checkDeadlines(t, &d, model)
				}
			}
			for _, e := range list {
				d.remove(e)
				delete(model, e)
			}
			checkDeadlines(t, &d, model)
			if d.periods.Len() != 0 {
				t.Errorf("%d periods are left", d.periods.Len())
			}
		})
	}
}

// TestDeadlinesOfOneMoment: any number of leases may end in the same millisecond, even more than there are different seats
// (maxSeats).
func TestDeadlinesOfOneMoment(t *testing.T) {
	const n = 3*maxSeats + 100
	d, model := newDeadlines(), map[*Entry]bool{}
	entries := make([]Entry, n)
	for i := range entries {
		entries[i].deadline = 7
		d.add(&entries[i])
		model[&entries[i]] = true
	}
	checkDeadlines(t, &d, model)
	for _, at := range []int64{6, 8} {
		e := &Entry{deadline: at}
		d.add(e)
		model[e] = true
	}
	if d.periods.Len() != 3 {
		t.Errorf("%d periods, want one for each deadline", d.periods.Len())
	}
	for _, i := range rand.New(rand.NewPCG(3, 4)).Perm(n)[:n-10] {
		d.remove(&entries[i])
		delete(model, &entries[i])
	}
	checkDeadlines(t, &d, model)
}

// TestDeadlinesBesideMany: a lock that comes and goes does not move the many leases of one other deadline.
func TestDeadlinesBesideMany(t *testing.T) {
	const n, locks = 50_000, 200
	for _, at := range []int64{6, 8, math.MinInt64, math.MaxInt64} {
		d, model := newDeadlines(), map[*Entry]bool{}
		entries := make([]Entry, n)
		for i := range entries {
			entries[i].deadline = 7
			d.add(&entries[i])
			model[&entries[i]] = true
		}
		lock := &Entry{deadline: at}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range locks {
			d.add(lock)
			d.remove(lock)
		}
		runtime.ReadMemStats(&after)
		if each := (after.TotalAlloc - before.TotalAlloc) / locks; each > 1000 {
			t.Errorf("each lock until %d takes %d bytes of memory", at, each)
		}
		entries[0].seat = 9 // a move would change this
		d.add(lock)
		if entries[0].seat != 9 {
			t.Errorf("a lock until %d has moved the others", at)
		}
		entries[0].seat = 0
		model[lock] = true
		checkDeadlines(t, &d, model)
		if d.periods.Len() != 2 {
			t.Errorf("%d periods for two deadlines", d.periods.Len())
		}
	}
}

// TestDeadlinesLeftOver: most locks are released, and the few others are far apart. Their sparse buckets are joined.
func TestDeadlinesLeftOver(t *testing.T) {
	d, model := newDeadlines(), map[*Entry]bool{}
	entries := make([]Entry, 100_000)
	for i := range entries {
		entries[i].deadline = int64(i + 1)
		d.add(&entries[i])
	}
	for i := range entries {
		if i%100 == 0 {
			model[&entries[i]] = true
		} else {
			d.remove(&entries[i])
		}
	}
	checkDeadlines(t, &d, model)
	if n := d.periods.Len(); n > len(model)/(bucketSize/8) {
		t.Errorf("%d periods for %d keys", n, len(model))
	}
}
