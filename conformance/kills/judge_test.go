package kills

import (
	"testing"
	"time"
)

// Histories made up for the judge: what it must find in each.
func TestJudge(t *testing.T) {
	now := time.Now()
	l := lease{key: "l", owner: "a", ttl: time.Second, sent: now}
	for name, c := range map[string]struct {
		history func(*judge)
		want    map[fault]int
	}{
		"locks one after the other": {func(j *judge) {
			h := newHolders(j)
			h.take("k", "a")
			h.drop("k", "a")
			h.take("k", "b")
			h.take("other", "a")
		}, nil},
		"a lock granted while it is held": {func(j *judge) {
			h := newHolders(j)
			h.take("k", "a")
			h.take("k", "b")
			h.drop("k", "a") // not b's
			h.take("k", "c")
		}, map[fault]int{twoHolders: 2}},
		"counting": {func(j *judge) {
			c := counter{name: "n"}
			c.changed(j, 1, 1)
			c.changed(j, 1, 2)
			c.changed(j, -1, 1)
		}, nil},
		"an increment executed twice": {func(j *judge) {
			c := counter{name: "n"}
			c.changed(j, 1, 1)
			c.changed(j, 1, 3)
			c.changed(j, 1, 4) // told once
		}, map[fault]int{ranTwice: 1}},
		"an increment lost": {func(j *judge) {
			c := counter{name: "n"}
			c.changed(j, 1, 1)
			c.changed(j, 1, 1)
		}, map[fault]int{writeLost: 1}},
		"an increment of unknown fate": {func(j *judge) {
			for _, got := range []int64{1, 2} {
				c := counter{name: "n"}
				c.changed(j, 1, 1)
				c.maybe(1)
				c.is(j, got)
				c.changed(j, 1, got+1)
			}
		}, nil},
		"an increment of unknown fate executed twice": {func(j *judge) {
			c := counter{name: "n"}
			c.maybe(1)
			c.is(j, 2)
		}, map[fault]int{ranTwice: 1}},
		"a decrement of unknown fate": {func(j *judge) {
			c := counter{name: "n", low: 2, high: 2}
			c.maybe(-1)
			c.is(j, 1)
			c.maybe(-1)
			c.is(j, -1)
			c.changed(j, -1, -1)
		}, map[fault]int{ranTwice: 1, writeLost: 1}},
		"elements": {func(j *judge) {
			e := newElements("list")
			e.acked["a"], e.acked["b"], e.maybe["c"], e.maybe["d"] = true, true, true, true
			e.are(j, []string{"b", "c", "a"})
		}, nil},
		"an element twice, one lost, one from nowhere, an unknown one twice": {func(j *judge) {
			e := newElements("list")
			e.acked["a"], e.acked["b"], e.maybe["c"] = true, true, true
			e.are(j, []string{"a", "a", "a", "z", "c", "c"})
		}, map[fault]int{ranTwice: 3, writeLost: 1}},
		"a lease that stands": {func(j *judge) {
			if !l.owned(j, "a", now.Add(999*time.Millisecond)) {
				j.fault(leaseShort, "a read in time was not judged")
			}
			l.remains(j, 500, now.Add(500*time.Millisecond))
			l.remains(j, 900, now.Add(500*time.Millisecond))
		}, nil},
		"a lease read too late to tell": {func(j *judge) {
			if l.owned(j, nil, now.Add(1000*time.Millisecond)) {
				j.fault(leaseShort, "a read after the end was judged")
			}
		}, nil},
		"a lease that ended early": {func(j *judge) {
			l.owned(j, nil, now.Add(999*time.Millisecond))
			l.owned(j, "b", now.Add(time.Millisecond))
			l.remains(j, 498, now.Add(500*time.Millisecond))
		}, map[fault]int{leaseShort: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJudge(t.Logf)
			c.history(j)
			for _, f := range faults {
				if j.found[f] != c.want[f] {
					t.Errorf("%s: %d found, want %d: %q", f, j.found[f], c.want[f], j.told)
				}
			}
		})
	}
}

func TestSummary(t *testing.T) {
	var all []time.Duration
	for i := range 100 {
		all = append(all, time.Duration(100-i)*time.Millisecond)
	}
	if got, want := summarise(all), (spread{N: 100, P50: 50, P90: 90, P99: 99, Max: 100}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := summarise(nil); got != (spread{}) {
		t.Errorf("of nothing: %+v", got)
	}
}
