package tally

import (
	"math"
	"sync"
	"testing"
	"time"
)

// TestBuckets: each value is in the first bucket whose bound is not smaller, at every scale, and the largest value in none.
func TestBuckets(t *testing.T) {
	for _, s := range []Scale{Work, Human, Count, {Unit: 3, Step: 3, Buckets: 5}} {
		for i, bound := range s.Bounds(1) {
			for _, v := range []int64{int64(bound) - 1, int64(bound), int64(bound) + 1} {
				h := New(s)
				h.Observe(v)
				got := h.Load()
				for j, upto := range got.Upto {
					want := uint64(0)
					if float64(v) <= s.Bounds(1)[j] {
						want = 1
					}
					if upto != want {
						t.Errorf("%+v: %d near bound %d is counted %d times in bucket %d", s, v, i, upto, j)
					}
				}
				if got.Count != 1 || got.Sum != v {
					t.Errorf("%+v: %d counts as %+v", s, v, got)
				}
			}
		}
		h := New(s)
		h.Observe(math.MaxInt64)
		h.Observe(-1)
		if got := h.Load(); got.Count != 2 || got.Upto[len(got.Upto)-1] != 1 || got.Upto[0] != 1 || got.Sum != math.MaxInt64 {
			t.Errorf("%+v: the largest and a negative value: %+v", s, got)
		}
	}
}

// TestCountedAtOnce: what many goroutines count at once is counted.
func TestCountedAtOnce(t *testing.T) {
	h, l := New(Work), NewLocks([]string{"plain"})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 1000 {
				h.Took(time.Millisecond)
				l.Waits("plain")
				l.Waited("plain", Got, time.Second)
			}
		})
	}
	all.Wait()
	if got := h.Load(); got.Count != 8000 || got.Sum != int64(8*time.Second) {
		t.Errorf("%+v", got)
	}
	if k := l.of("plain"); k.Waiting.Load() != 0 || k.Waited[Got].Load() != 8000 || k.Wait.Load().Count != 8000 {
		t.Errorf("%d wait, %d have got it", k.Waiting.Load(), k.Waited[Got].Load())
	}
}

// TestUnknownKinds: a kind that the counts do not know makes no new label.
func TestUnknownKinds(t *testing.T) {
	l := NewLocks([]string{"plain"})
	l.Granted("plain")
	for _, kind := range []string{"a", "b", ""} {
		l.Granted(kind)
		l.Missed(kind)
		l.Ended(kind, Forced, time.Minute)
	}
	got := map[string]uint64{}
	l.Each(func(kind string, k *LockKind) { got[kind] = k.Granted.Load() })
	l.Ended("plain", Expired, -1) // nobody knows for how long
	if k := l.of("plain"); k.Ended[Expired].Load() != 1 || k.Held.Any() || !l.of(OtherKind).Held.Any() {
		t.Errorf("%+v", k)
	}
	other := l.of(OtherKind)
	if len(got) != 2 || got["plain"] != 1 || got[OtherKind] != 3 || other.Missed.Load() != 3 || other.Ended[Forced].Load() != 3 || other.Held.Load().Count != 3 {
		t.Error(got)
	}
}

func BenchmarkHeld(b *testing.B) {
	h := NewHeld()
	for i := range b.N {
		h.Begin(0, uint64(i), "6f1ed002-ab5d-4b3a-9f0a-0123456789ab:1", int64(i), 1)
		h.End(0, uint64(i), "6f1ed002-ab5d-4b3a-9f0a-0123456789ab:1", int64(i))
	}
}

func BenchmarkObserve(b *testing.B) {
	h := New(Work)
	for i := range b.N {
		h.Took(time.Duration(i) * 100)
	}
}

func BenchmarkEnded(b *testing.B) {
	l := NewLocks([]string{"plain", "shedlock", "reentrant", "exclusive", "shared", "limit", "redisson", "redisson-fair", "redisson-readwrite"})
	for i := range b.N {
		l.Ended("redisson-readwrite", Released, time.Duration(i)*1000)
	}
}
