// Package tally counts what /metrics shows. It costs the hot path two atomic additions per value, and allocates nothing.
package tally

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// Scale is the upper bounds of a histogram's buckets: Unit, Unit*2^Step, Unit*2^(2*Step) and so on. A further bucket has the rest.
type Scale struct {
	Unit    int64 // greater than 0; ns if the values are durations
	Step    int   // 1 or more
	Buckets int   // number of buckets with a bound; at most maxBuckets
}

const maxBuckets = 24

// These are the scales of the histograms of a node.
var (
	// Work is for the work of a node: 16 µs to 16.8 s.
	Work = Scale{Unit: int64(16 * time.Microsecond), Step: 1, Buckets: 21}
	// Human is for times that clients choose: 1 ms to 4.7 h.
	Human = Scale{Unit: int64(time.Millisecond), Step: 2, Buckets: 13}
	// Count is for numbers: 1 to 16384.
	Count = Scale{Unit: 1, Step: 1, Buckets: 15}
)

// Bounds returns the upper bounds of the buckets, in units of per.
func (s Scale) Bounds(per float64) []float64 {
	bounds := make([]float64, s.Buckets)
	for i := range bounds {
		bounds[i] = float64(s.Unit<<(i*s.Step)) / per
	}
	return bounds
}

// Histogram counts values by size. Several goroutines may use it.
type Histogram struct {
	scale  Scale
	counts [maxBuckets + 1]atomic.Uint64
	sum    atomic.Int64
}

// New returns a histogram without values.
func New(scale Scale) *Histogram { return &Histogram{scale: scale} }

// Observe counts a value. A negative value counts as 0.
func (h *Histogram) Observe(v int64) {
	v = max(v, 0)
	i := 0
	if v > 0 {
		i = (bits.Len64(uint64(v-1)/uint64(h.scale.Unit)) + h.scale.Step - 1) / h.scale.Step
	}
	h.counts[min(i, h.scale.Buckets)].Add(1)
	h.sum.Add(v)
}

// Took is Observe for a duration.
func (h *Histogram) Took(d time.Duration) { h.Observe(int64(d)) }

// Seen is what a histogram has counted.
type Seen struct {
	Upto  []uint64 // by bucket: the number of values that are not larger than its bound
	Count uint64   // the number of all values
	Sum   int64    // may lack values that are counted at this moment
}

// Load returns what the histogram has counted so far.
func (h *Histogram) Load() Seen {
	s := Seen{Sum: h.sum.Load(), Upto: make([]uint64, h.scale.Buckets)}
	for i := range h.counts[:h.scale.Buckets+1] {
		if s.Count += h.counts[i].Load(); i < len(s.Upto) {
			s.Upto[i] = s.Count
		}
	}
	return s
}

// Any reports whether the histogram has a value.
func (h *Histogram) Any() bool {
	for i := range h.counts {
		if h.counts[i].Load() > 0 {
			return true
		}
	}
	return false
}

// Scale returns the scale of the histogram.
func (h *Histogram) Scale() Scale { return h.scale }
