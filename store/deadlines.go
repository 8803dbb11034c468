package store

import (
	"math"
)

// deadlines holds the keys of a database that have a deadline, in unordered buckets: most locks are released early, so their order rarely
// matters.
type deadlines struct {
	periods *tree[period] // the first period, if any, begins at math.MinInt64
	size    int
}

// period is the time from a deadline (from) to the beginning of the next period, with its bucket.
type period struct {
	from int64
	*bucket
}

// bucket holds the keys of a period, with deadlines in [low, high], which removals do not narrow. An empty bucket is removed.
type bucket struct {
	entries   []*Entry // the index of an entry is its seat plus a multiple of maxSeats
	low, high int64
}

const (
	// bucketSize is the largest number of keys in a bucket, unless all of them have the same deadline.
	bucketSize = 64
	// bucketStep is the number of entries by which a bucket grows; a large bucket grows by an
	// eighth.
	bucketStep = 8
	// maxSeats is the number of different seats that an Entry can store.
	maxSeats = math.MaxUint16 + 1
)

func newDeadlines() deadlines {
	less := func(a, b period) bool { return a.from < b.from }
	return deadlines{periods: newTree(less)}
}

func newBucket(room int) *bucket {
	return &bucket{make([]*Entry, 0, room), math.MaxInt64, math.MinInt64}
}

// find returns the period that contains a deadline. The bucket of the result is nil if there are no periods.
func (d *deadlines) find(at int64) (found period) {
	d.periods.Descend(period{from: at}, func(s period) bool {
		found = s
		return false
	})
	return found
}

// add inserts an entry by its deadline.
func (d *deadlines) add(e *Entry) {
	s := d.find(e.deadline)
	switch {
	case s.bucket == nil:
		s = period{math.MinInt64, newBucket(bucketStep)}
		d.periods.Set(s)
	case len(s.entries) >= bucketSize && s.low == s.high && e.deadline != s.low:
		s = d.beside(s, e.deadline)
	}
	s.add(e)
	d.size++
	if len(s.entries) > bucketSize && s.low < s.high {
		d.part(s)
	}
}

// beside makes an empty period for the deadline at, without moving the keys of s, which all have one other deadline.
func (d *deadlines) beside(s period, at int64) period {
	other := newBucket(bucketStep)
	if at > s.high {
		later := period{s.high + 1, other}
		d.periods.Set(later)
		return later
	}
	full := *s.bucket
	*s.bucket = *other
	d.periods.Set(period{full.low, &full})
	return s
}

func (b *bucket) add(e *Entry) {
	if n := len(b.entries); n == cap(b.entries) {
		b.resize(n + max(bucketStep, n/8))
	}
	e.seat = uint16(len(b.entries) % maxSeats)
	b.entries = append(b.entries, e)
	b.low, b.high = min(b.low, e.deadline), max(b.high, e.deadline)
}

func (b *bucket) resize(room int) {
	b.entries = append(make([]*Entry, 0, room), b.entries...)
}

// seat returns the index of an entry in its bucket.
func (b *bucket) seat(e *Entry) int {
	i := int(e.seat)
	for b.entries[i] != e {
		i += maxSeats
	}
	return i
}

// part splits a bucket in the middle between its first and last deadline, unless they are the same.
func (d *deadlines) part(s period) {
	low, high := s.entries[0].deadline, s.entries[0].deadline
	for _, e := range s.entries {
		low, high = min(low, e.deadline), max(high, e.deadline)
	}
	s.low, s.high = low, high
	if low == high {
		return
	}
	middle := high - int64(uint64(high-low)/2)
	early := bucket{s.entries[:0], math.MaxInt64, math.MinInt64}
	late := newBucket(len(s.entries)/2 + bucketStep)
	for _, e := range s.entries {
		if e.deadline < middle {
			early.add(e)
		} else {
			late.add(e)
		}
	}
	clear(s.entries[len(early.entries):])
	*s.bucket = early
	s.shrink()
	late.shrink()
	d.periods.Set(period{middle, late})
}

// shrink releases memory if much of it is unused.
func (b *bucket) shrink() {
	if n := len(b.entries); cap(b.entries)-n >= max(2*bucketStep, n) {
		b.resize(n + bucketStep)
	}
}

// replace puts an entry in the place of another one with the same deadline.
func (d *deadlines) replace(old, e *Entry) {
	b := d.find(old.deadline)
	b.entries[b.seat(old)] = e
	e.seat = old.seat
}

// remove removes an entry. The entry must have the deadline with which it was added.
func (d *deadlines) remove(e *Entry) {
	s := d.find(e.deadline)
	i, last := s.seat(e), len(s.entries)-1
	s.entries[i] = s.entries[last]
	s.entries[i].seat = e.seat
	s.entries[last] = nil
	s.entries = s.entries[:last]
	d.size--
	s.shrink()
	if last <= bucketSize/4 {
		d.join(s)
	}
}

// join merges a nearly empty bucket with a neighbour, if the result does not become too full. It removes an empty bucket that has no
// neighbour.
func (d *deadlines) join(s period) {
	if s.from > math.MinInt64 && d.merge(d.find(s.from-1), s) {
		return
	}
	var next period
	d.periods.Ascend(s, func(n period) bool {
		next = n
		return n.from == s.from
	})
	switch {
	case next.from > s.from:
		d.merge(s, next)
	case len(s.entries) == 0:
		d.periods.Delete(s)
	}
}

// merge joins two adjacent periods if one of them is empty or the result is at most half full, and reports whether it did.
func (d *deadlines) merge(early, late period) bool {
	switch {
	case len(late.entries) == 0:
	case len(early.entries) == 0:
		*early.bucket = *late.bucket
	case len(early.entries)+len(late.entries) <= bucketSize/2:
		for _, e := range late.entries {
			early.add(e)
		}
	default:
		return false
	}
	d.periods.Delete(late)
	return true
}

// first returns the earliest deadline, or 0 if there is none.
func (d *deadlines) first() int64 {
	s, any := d.periods.Min()
	if !any {
		return 0
	}
	if s.low < s.high {
		s.low = math.MaxInt64
		for _, e := range s.entries {
			s.low = min(s.low, e.deadline)
		}
	}
	return s.low
}

// before calls fn for the entries with a deadline before at, unordered within a bucket, until fn returns false.
func (d *deadlines) before(at int64, fn func(*Entry) bool) {
	d.periods.Scan(func(s period) bool {
		if s.low >= at {
			return false
		}
		for _, e := range s.entries {
			if e.deadline < at && !fn(e) {
				return false
			}
		}
		return true
	})
}
