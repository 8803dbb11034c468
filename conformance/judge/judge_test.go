package judge

import (
	"testing"
	"time"
)

// These are invented histories, each with the faults that the judge must find in it.
func TestJudge(t *testing.T) {
	now := time.Now()
	l := Lease{Key: "l", Owner: "a", TTL: time.Second, Sent: now, Granted: now.Add(10 * time.Millisecond)}
	// The lock is granted late, as in an election. So the lease counts from shortly before the reply.
	slow := Lease{Key: "l", Owner: "a", TTL: time.Second, Sent: now, Granted: now.Add(400 * time.Millisecond)}
	for name, c := range map[string]struct {
		history func(*Judge)
		want    map[Fault]int
	}{
		"locks one after the other": {func(j *Judge) {
			h := NewHolders(j)
			h.Take("k", "a")
			h.Drop("k", "a")
			h.Take("k", "b")
			h.Take("other", "a")
		}, nil},
		"a lock granted while it is held": {func(j *Judge) {
			h := NewHolders(j)
			h.Take("k", "a")
			h.Take("k", "b")
			h.Drop("k", "a") // the entry of b must stay
			h.Take("k", "c")
		}, map[Fault]int{TwoHolders: 2}},
		"tokens that rise": {func(j *Judge) {
			tokens := NewTokens(j)
			tokens.Is("k", "a", 5)
			tokens.Is("k", "a", 5)
			tokens.Is("k", "b", 7)
			tokens.Is("other", "b", 6)
		}, nil},
		"a token twice, one that falls, and one that changes": {func(j *Judge) {
			tokens := NewTokens(j)
			tokens.Is("k", "a", 5)
			tokens.Is("k", "b", 5)
			tokens.Is("k", "c", 4)
			tokens.Is("k", "c", 6)
		}, map[Fault]int{WrongToken: 3}},
		"counting": {func(j *Judge) {
			c := Counter{Name: "n"}
			c.Changed(j, 1, 1)
			c.Changed(j, 1, 2)
			c.Changed(j, -1, 1)
		}, nil},
		"an increment executed twice": {func(j *Judge) {
			c := Counter{Name: "n"}
			c.Changed(j, 1, 1)
			c.Changed(j, 1, 3)
			c.Changed(j, 1, 4) // the fault must be reported only once
		}, map[Fault]int{RanTwice: 1}},
		"an increment lost": {func(j *Judge) {
			c := Counter{Name: "n"}
			c.Changed(j, 1, 1)
			c.Changed(j, 1, 1)
		}, map[Fault]int{WriteLost: 1}},
		"an increment of unknown fate": {func(j *Judge) {
			for _, got := range []int64{1, 2} {
				c := Counter{Name: "n"}
				c.Changed(j, 1, 1)
				c.Maybe(1)
				c.Is(j, got)
				c.Changed(j, 1, got+1)
			}
		}, nil},
		"an increment of unknown fate executed twice": {func(j *Judge) {
			c := Counter{Name: "n"}
			c.Maybe(1)
			c.Is(j, 2)
		}, map[Fault]int{RanTwice: 1}},
		"a decrement of unknown fate": {func(j *Judge) {
			c := Counter{Name: "n", Low: 2, High: 2}
			c.Maybe(-1)
			c.Is(j, 1)
			c.Maybe(-1)
			c.Is(j, -1)
			c.Changed(j, -1, -1)
		}, map[Fault]int{RanTwice: 1, WriteLost: 1}},
		"elements": {func(j *Judge) {
			e := NewElements("list")
			e.Acked["a"], e.Acked["b"], e.Maybe["c"], e.Maybe["d"] = true, true, true, true
			e.Are(j, []string{"b", "c", "a"})
		}, nil},
		"an element twice, one lost, one from nowhere, an unknown one twice": {func(j *Judge) {
			e := NewElements("list")
			e.Acked["a"], e.Acked["b"], e.Maybe["c"] = true, true, true
			e.Are(j, []string{"a", "a", "a", "z", "c", "c"})
		}, map[Fault]int{RanTwice: 3, WriteLost: 1}},
		"a lease that stands": {func(j *Judge) {
			if !l.Owned(j, "a", now.Add(999*time.Millisecond)) || !slow.Owned(j, "a", now.Add(1299*time.Millisecond)) {
				j.Fault(LeaseShort, "a read in time was not judged")
			}
			slow.Remains(j, 799, now.Add(500*time.Millisecond))
			l.Remains(j, 499, now.Add(500*time.Millisecond))
			l.Remains(j, 900, now.Add(500*time.Millisecond))
		}, nil},
		"a lease read too late to tell": {func(j *Judge) {
			if l.Owned(j, nil, now.Add(1000*time.Millisecond)) || slow.Owned(j, nil, now.Add(1300*time.Millisecond)) {
				j.Fault(LeaseShort, "a read after the end was judged")
			}
		}, nil},
		"a lease that ended early": {func(j *Judge) {
			l.Owned(j, nil, now.Add(999*time.Millisecond))
			slow.Owned(j, nil, now.Add(1299*time.Millisecond))
			l.Owned(j, "b", now.Add(time.Millisecond))
			l.Remains(j, 498, now.Add(500*time.Millisecond))
			slow.Remains(j, 798, now.Add(500*time.Millisecond))
		}, map[Fault]int{LeaseShort: 5}},
	} {
		t.Run(name, func(t *testing.T) {
			j := New(t.Logf)
			c.history(j)
			for _, f := range Faults {
				if j.found[f] != c.want[f] {
					t.Errorf("%s: %d found, want %d: %q", f, j.found[f], c.want[f], j.told)
				}
			}
		})
	}
}
