package store

import (
	"math"
)

// Deque is the value of a list key: a copy-on-write tree of elements, ordered by positions with gaps. An insertion without a gap gives
// elements around it new positions. Positions are local: writes name indexes.
type Deque struct {
	tree  *tree[listElem]
	bytes int64 // the sum of listElem.size of all elements
}

type listElem struct {
	at    int64
	value string
}

func listElemLess(a, b listElem) bool { return a.at < b.at }

// listStride is the distance between the position of a pushed element and that of its neighbour.
const listStride = 1 << 20

func newList() *Deque { return &Deque{tree: newTree(listElemLess)} }

// Len returns the number of elements.
func (l *Deque) Len() int { return l.tree.Len() }

func (l *Deque) clone() collection { return &Deque{l.tree.Copy(), l.bytes} }

func (l *Deque) size() int64 { return treeSize + l.bytes }

func (e listElem) size() int64 { return listElemSize + allocated(len(e.value)) }

// At returns the element at an index that must exist.
func (l *Deque) At(i int) string {
	e, _ := l.tree.GetAt(i)
	return e.value
}

// Each calls fn for the elements whose index is at least the argument from, until fn returns false.
func (l *Deque) Each(from int, fn func(value string) bool) {
	l.eachFrom(l.tree.Ascend, from, func(e listElem) bool { return fn(e.value) })
}

// eachBack calls fn for the elements whose index is at most the argument from, the last one first, until fn returns false.
func (l *Deque) eachBack(from int, fn func(value string) bool) {
	l.eachFrom(l.tree.Descend, from, func(e listElem) bool { return fn(e.value) })
}

// eachFrom calls fn for the elements from an index on, until fn returns false. The function walk is l.tree.Ascend or l.tree.Descend.
func (l *Deque) eachFrom(walk func(from listElem, fn func(listElem) bool), from int, fn func(listElem) bool) {
	if first, ok := l.tree.GetAt(from); ok {
		walk(first, fn)
	}
}

// push adds value, which must not share memory with a buffer that is used again, at the head or at the tail.
func (l *Deque) push(head bool, value string) {
	if head {
		l.insert(0, value)
	} else {
		l.insert(l.Len(), value)
	}
}

// set replaces the element at an index that must exist.
func (l *Deque) set(i int, value string) {
	e, _ := l.tree.GetAt(i)
	l.bytes -= e.size()
	e.value = value
	l.bytes += e.size()
	l.tree.Set(e)
}

// insert inserts value before the element at index i, or at the end if i is the length.
func (l *Deque) insert(i int, value string) {
	at, ok := l.gap(i)
	if !ok {
		l.widen(i)
		at, _ = l.gap(i)
	}
	e := listElem{at, value}
	l.bytes += e.size()
	l.tree.Set(e)
}

// gap returns a free position for an element that is inserted at index i; ok is false if there is none.
func (l *Deque) gap(i int) (at int64, ok bool) {
	n := l.Len()
	switch {
	case n == 0:
		return 0, true
	case i == n:
		last, _ := l.tree.Max()
		return last.at + listStride, last.at <= math.MaxInt64-listStride
	case i == 0:
		first, _ := l.tree.Min()
		return first.at - listStride, first.at >= math.MinInt64+listStride
	}
	after, _ := l.tree.GetAt(i)
	before, _ := l.tree.GetAt(i - 1)
	half := uint64(after.at-before.at) / 2
	return before.at + int64(half), half > 0
}

// widen makes a gap before index i: it spreads the elements of the smallest surrounding range of 2^k positions with at most (4/3)^k
// elements, or all elements. In the long run an insertion moves O(log n) elements.
func (l *Deque) widen(i int) {
	if i == 0 || i == l.Len() {
		l.spread()
		return
	}
	pivot, _ := l.tree.GetAt(i - 1)
	from, to := i-1, i
	may := 1.0
	for k := 1; k < 63; k++ {
		may *= 4. / 3
		first := pivot.at &^ (1<<k - 1)
		last := first + (1<<k - 1)
		if from, to = l.reach(from, to, first, last); float64(to-from) <= may {
			l.place(from, to, first, (1<<k)/int64(to-from))
			return
		}
	}
	l.spread()
}

// reach extends the range [from, to) of indexes by all neighbouring elements whose positions are in [first, last].
func (l *Deque) reach(from, to int, first, last int64) (int, int) {
	if from > 0 {
		l.eachFrom(l.tree.Descend, from-1, func(e listElem) bool {
			if e.at >= first {
				from--
			}
			return e.at >= first
		})
	}
	l.eachFrom(l.tree.Ascend, to, func(e listElem) bool {
		if e.at <= last {
			to++
		}
		return e.at <= last
	})
	return from, to
}

// place gives the elements with indexes in [from, to) the positions at, at+distance and so on.
func (l *Deque) place(from, to int, at, distance int64) {
	moved := make([]listElem, 0, to-from)
	for range to - from {
		e, _ := l.tree.DeleteAt(from)
		moved = append(moved, e)
	}
	for _, e := range moved {
		e.at = at
		l.tree.Set(e)
		at += distance
	}
}

// spread gives all elements new positions at the distance listStride.
func (l *Deque) spread() {
	spread := newList()
	at := int64(0)
	l.tree.Scan(func(e listElem) bool {
		spread.tree.Load(listElem{at, e.value})
		at += listStride
		return true
	})
	l.tree = spread.tree
}

// remove removes the n elements from index i on, which must exist.
func (l *Deque) remove(i, n int) {
	if n == l.Len() { // takes constant time, as DEL does
		l.tree.Clear()
		l.bytes = 0
		return
	}
	if left := l.Len() - n; keepsFew(left, n) {
		l.keep(i, left-i)
		return
	}
	for ; n > 0; n-- {
		var gone listElem
		switch i {
		case 0:
			gone, _ = l.tree.PopMin()
		case l.Len() - 1:
			gone, _ = l.tree.PopMax()
			i--
		default:
			gone, _ = l.tree.DeleteAt(i)
		}
		l.bytes -= gone.size()
	}
}

// keepsFew reports whether only few elements stay. A new tree of these is then less work than the removal of the others, and takes
// little memory.
func keepsFew(stay, leave int) bool { return stay <= leave/16 }

// keep keeps the given numbers of elements at the head and at the tail, and removes the others.
func (l *Deque) keep(head, tail int) {
	kept := newList()
	add := func(e listElem) {
		kept.tree.Load(e)
		kept.bytes += e.size()
	}
	for i := range head {
		e, _ := l.tree.GetAt(i)
		add(e)
	}
	for i := l.Len() - tail; i < l.Len(); i++ {
		e, _ := l.tree.GetAt(i)
		add(e)
	}
	*l = *kept
}
