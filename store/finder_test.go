package store

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"
)

// TestCompactFormsAreIndexed: most lookups do not pass all elements, neither in a transaction nor in Apply.
func TestCompactFormsAreIndexed(t *testing.T) {
	d := newTestDB(t)
	d.s.config = d.s.config.with(ParamHashEntries, fmt.Sprint(MaxCompact)).with(ParamScoreEntries, fmt.Sprint(MaxCompact))
	h, z := []string{"HSET", "h"}, []string{"ZADD", "z"}
	for i := range MaxCompact {
		h = append(h, fmt.Sprintf("%04d", i), "")
		z = append(z, fmt.Sprint(i), fmt.Sprintf("%04d", i))
	}
	d.do(h...)
	d.do(z...)
	const n = 10_000
	last := fmt.Sprintf("%04d", MaxCompact-1)
	for _, args := range [][]string{
		append([]string{"HSET", "h"}, slices.Repeat([]string{last, "v"}, n)...),
		append([]string{"HDEL", "h"}, slices.Repeat([]string{"none"}, n)...),
		append([]string{"HMGET", "h"}, slices.Repeat([]string{"none"}, n)...),
		append([]string{"ZADD", "z", "XX"}, slices.Repeat([]string{"1", "none"}, n)...),
		append([]string{"ZADD", "z"}, slices.Repeat([]string{"100000", last, "100001", last}, n/2)...),
		append([]string{"ZREM", "z"}, slices.Repeat([]string{"none"}, n)...),
		append([]string{"ZMSCORE", "z"}, slices.Repeat([]string{"none"}, n)...),
	} {
		txn, watched := d.begin(), 0
		c := d.ctx(txn, args...)
		c.Watch = func() { watched++ }
		c.Cmd.Run(c)
		// Watch is called after each workLook steps. A step passes passedPerStep elements; the names in the arguments take few steps.
		if watched < 2 || watched > 30 {
			t.Errorf("%s of %d was watched %d times", args[0], n, watched)
		}
		if most := int64(200 * MaxCompact * fieldBytes); txn.find.moved > most {
			t.Errorf("%s of %d passed %d bytes", args[0], n, txn.find.moved)
		}
		apply := &committed{s: d.s, seq: d.seq + 1}
		writes := newDecoder(txn.Writes().Bytes())
		for len(writes.B) > 0 {
			if !d.s.applyOne(apply, writes.op(), &writes, 0, nil) || writes.Bad {
				t.Fatal("corrupt")
			}
		}
		if apply.find.moved > 200*MaxCompact*fieldBytes {
			t.Errorf("to apply %s of %d passed %d bytes", args[0], n, apply.find.moved)
		}
	}
}

// TestCombinationsAreIndexed: a command that combines sorted sets does not search them from the start for each member.
func TestCombinationsAreIndexed(t *testing.T) {
	d := newTestDB(t)
	z := &SortedSet{}
	for i := range MaxCompact {
		z.set(fmt.Sprintf("%04d", i), float64(i), &anyForm, nil)
	}
	if z.byScore != nil {
		t.Fatal("not compact")
	}
	c := d.ctx(d.begin(), "ZDIFF", "1", "z")
	in := &weighted{scores: z, weight: 1}
	for i := range MaxCompact {
		score, ok := in.score(c, fmt.Sprintf("%04d", i))
		none, any := in.score(c, fmt.Sprintf("none %d", i))
		if !ok || score != float64(i) || any || none != 0 {
			t.Fatal(i, score, ok, none, any)
		}
	}
	if in.find.scores == nil || in.find.passed > (searchesPerIndex+1)*MaxCompact {
		t.Errorf("%d elements were passed", in.find.passed)
	}
}

// TestTrimKeepsTheEnds: when a list loses its middle, it keeps the right elements at both ends, whether they are few or many.
func TestTrimKeepsTheEnds(t *testing.T) {
	const n = 3000
	full, size := newList(), []int64{}
	for i := range n {
		full.push(false, strings.Repeat("x", i%40))
		size = append(size, listElem{value: strings.Repeat("x", i%40)}.size())
	}
	for _, ends := range [][2]int{{1, 0}, {0, 1}, {1, 1}, {100, 0}, {0, 100}, {70, 100}, {176, 0}, {177, 0}, {0, 177}, {1000, 1000}, {n, 0}, {0, 0}} {
		l := full.clone().(*Deque)
		l.remove(ends[0], n-ends[0]-ends[1])
		bytes, i := int64(0), 0
		l.Each(0, func(value string) bool {
			at := i
			if i >= ends[0] {
				at = n - ends[1] + i - ends[0]
			}
			if len(value) != at%40 {
				t.Fatalf("%v: element %d has %d bytes", ends, i, len(value))
			}
			bytes += size[at]
			i++
			return true
		})
		if l.bytes != bytes || i != ends[0]+ends[1] {
			t.Errorf("%v: %d elements of %d bytes, counted as %d", ends, i, bytes, l.bytes)
		}
		l.push(true, "first")
		l.push(false, "last")
		if l.At(0) != "first" || l.At(l.Len()-1) != "last" {
			t.Errorf("%v: pushed in the wrong places", ends)
		}
	}
	if full.Len() != n {
		t.Error("the original has changed")
	}
}

// TestFinderFindsWhatIsThere compares the results of a finder with those of a plain search, while the collections change.
func TestFinderFindsWhatIsThere(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	name := func() string { return fmt.Sprint(r.Intn(600)) }
	form := &anyForm
	f, h, z := &finder{}, &Hash{}, &SortedSet{}
	other := &Hash{}
	for range 2 * fewElements {
		other.set(name(), "", form, nil)
	}
	indexed := [2]int{}
	for i := range 40_000 {
		inHash, n := i%4000 < 2000, name()
		if i%4000 == 0 {
			h, z = h.clone().(*Hash), z.clone().(*SortedSet) // as the first write of a transaction does
		}
		switch few := i/200%3 == 0; { // sometimes there are only removals
		case inHash && (few || r.Intn(3) == 0):
			h.remove(n, f)
		case inHash:
			h.set(n, "v", form, f)
		case few || r.Intn(3) == 0:
			z.remove(n, f)
		default:
			z.set(n, float64(r.Intn(100)), form, f)
		}
		if r.Intn(500) == 0 {
			f.field(other, n)
		}
		n = name()
		if inHash {
			at, _ := f.field(h, n)
			if want, _ := h.search(n); at != want {
				t.Fatalf("step %d: field %s is at %d, found at %d", i, n, want, at)
			}
			indexed[0] += int(Flag(f.places != nil).Int)
			continue
		}
		indexed[1] += int(Flag(f.scores != nil).Int)
		score, ok, _ := f.score(z, n)
		if want, is, _ := z.searchScore(n); ok != is || score != want {
			t.Fatalf("step %d: member %s has score %v %v, found %v %v", i, n, want, is, score, ok)
		}
	}
	if indexed[0] < 1000 || indexed[1] < 1000 {
		t.Errorf("there was an index in %d steps", indexed)
	}
}

// If a transaction removes elements from a large compact form again and again, it ends with the error for too many writes.
func TestShiftsInCompactFormsAreBounded(t *testing.T) {
	d := newTestDB(t)
	d.env.Limits = Limits{Entry: MinEntry}
	h := []string{"HSET", "h"}
	for i := range 500 {
		h = append(h, fmt.Sprintf("%03d", i), "")
	}
	d.do(h...)
	txn := d.begin()
	txn.BeginCall()
	txn.find.moved = shiftShare*copiesPerEntry*(MinEntry+entryRoom) - 1
	if txn.tooBig() {
		t.Error("too much too early")
	}
	d.run(txn, "HDEL", "h", "000")
	if !txn.tooBig() {
		t.Error("what a deletion shifts is not counted")
	}
	txn.BeginCall()
	if txn.tooBig() {
		t.Error("the next call pays for the last one")
	}
}
