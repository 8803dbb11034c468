package store

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"
)

// TestCompactFormsAreIndexed: a look-up does not pass all elements each time, neither in a transaction nor in Apply.
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
		// Each look is workLook steps of passedPerStep elements, if the names themselves are left out.
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

// TestFinderFindsWhatIsThere compares it with a search, for collections that change.
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
		switch few := i/200%3 == 0; { // sometimes more goes than comes
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

// A deletion of a large compact form's elements, again and again, ends as too much for one transaction.
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
