package main

import (
	"slices"
	"testing"
	"time"
)

// ms makes a grant from times in milliseconds.
func ms(name string, from, to int, f fate) grant {
	return grant{name, time.Duration(from) * time.Millisecond, time.Duration(to) * time.Millisecond, f}
}

func TestCount(t *testing.T) {
	for _, c := range []struct {
		what    string
		history []grant
		want    counts
	}{
		{"nothing", nil, counts{}},
		{"one after the other", []grant{ms("a", 0, 10, kept), ms("a", 10, 20, kept), ms("a", 25, 30, kept)}, counts{Granted: 3}},
		{"different locks", []grant{ms("a", 0, 10, kept), ms("b", 5, 15, kept)}, counts{Granted: 2}},
		{"two inside", []grant{ms("a", 0, 10, lost), ms("a", 9, 20, kept)}, counts{Granted: 2, Lost: 1, HeldTwice: 1}},
		{"in any order", []grant{ms("a", 9, 20, kept), ms("b", 0, 90, kept), ms("a", 0, 10, lost)}, counts{Granted: 3, Lost: 1, HeldTwice: 1}},
		{"lost, and nobody came", []grant{ms("a", 0, 10, lost), ms("a", 11, 20, kept)}, counts{Granted: 2, Lost: 1}},
		{"doubled, though both found their token", []grant{ms("a", 0, 10, kept), ms("a", 5, 8, kept)}, counts{Granted: 2, HeldTwice: 1}},
		// The second grant ends before the first one does, so the third grant overlaps the first.
		{"a short one inside a long one", []grant{ms("a", 0, 100, kept), ms("a", 10, 20, kept), ms("a", 50, 60, kept)}, counts{Granted: 3, HeldTwice: 2}},
		{"the next lock begins anew", []grant{ms("a", 0, 100, kept), ms("b", 10, 20, kept)}, counts{Granted: 2}},
		{"not checked", []grant{ms("a", 0, 100, notAsked), ms("a", 100, 120, kept)}, counts{Granted: 2, NotChecked: 1}},
	} {
		if got := count(c.history); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.what, got, c.want)
		}
	}
}

func TestWithoutService(t *testing.T) {
	history := []grant{ms("a", 2100, 0, kept), ms("b", 10, 0, kept), ms("c", 990, 0, kept), ms("d", 2000, 0, kept), ms("e", 5010, 0, kept)}
	faults := []time.Duration{time.Second, 5 * time.Second, 6 * time.Second}
	got := withoutService(history, faults, 6500*time.Millisecond)
	// After the first fault, the longest time without a grant is from 2100 to 5000 ms. The time from 1000 to 2000 ms is shorter.
	want := []time.Duration{2900 * time.Millisecond, 990 * time.Millisecond, 500 * time.Millisecond}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if q := quantile(got, 0.5); q != 990*time.Millisecond {
		t.Errorf("median %v", q)
	}
	if q := quantile(got, 1); q != 2900*time.Millisecond {
		t.Errorf("maximum %v", q)
	}
}
