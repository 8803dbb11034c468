package store

import (
	"math"

	"github.com/tidwall/btree"
)

// deadlines holds the keys of a database that have a deadline, in buckets each of which
// has a period of time to itself. In a bucket there is no order: most locks are let go
// long before their deadlines, and nobody has asked which of them would have been the
// first. A key is appended to its bucket and knows its place when it goes, which takes
// less than a place among all others, and less memory.
type deadlines struct {
	periods *btree.BTreeG[period] // the first, if there is one, begins with time
	size    int
}

// period is the time from a deadline up to the next period.
type period struct {
	from int64
	*bucket
}

// bucket is the keys of a period; one that is left without goes. Deadlines are at least low
// and at most high; the first and the last of them may have gone since.
type bucket struct {
	entries   []*Entry // each at its seat, or some times maxSeats further on
	low, high int64
}

const (
	// bucketSize is how many keys a bucket has before it is parted. One whose keys all
	// have the same deadline has more.
	bucketSize = 64
	// bucketStep is for how many more keys a bucket gets room at once; a large one for an
	// eighth more.
	bucketStep = 8
	// maxSeats is how many seats an Entry tells apart.
	maxSeats = math.MaxUint16 + 1
)

func newDeadlines() deadlines {
	less := func(a, b period) bool { return a.from < b.from }
	return deadlines{periods: btree.NewBTreeGOptions(less, treeOptions)}
}

func newBucket(room int) *bucket {
	return &bucket{make([]*Entry, 0, room), math.MaxInt64, math.MinInt64}
}

// find returns the period that a deadline belongs to, which has no bucket if there are no keys.
func (d *deadlines) find(at int64) (found period) {
	d.periods.Descend(period{from: at}, func(s period) bool {
		found = s
		return false
	})
	return found
}

// add takes in an entry by its deadline.
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

// beside returns a period for a deadline that is not the one that all keys of a full bucket
// have, and leaves those where they are: there may be any number of them.
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

// seat returns the place of an entry in its bucket.
func (b *bucket) seat(e *Entry) int {
	i := int(e.seat)
	for b.entries[i] != e {
		i += maxSeats
	}
	return i
}

// part parts a bucket in the middle of its time.
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

// shrink gives back memory if much is unused.
func (b *bucket) shrink() {
	if n := len(b.entries); cap(b.entries)-n >= max(2*bucketStep, n) {
		b.resize(n + bucketStep)
	}
}

// replace puts an entry in the place of another with the same deadline.
func (d *deadlines) replace(old, e *Entry) {
	b := d.find(old.deadline)
	b.entries[b.seat(old)] = e
	e.seat = old.seat
}

// remove removes an entry, whose deadline is still what it was when it came.
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

// join undoes part around a period whose bucket is nearly empty.
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

// merge makes one period of two, if that leaves its bucket room.
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

// first returns the earliest deadline, 0 if there is none.
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

// before calls fn for the entries with a deadline before at, until it returns false.
// Those of one bucket come in no order.
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
