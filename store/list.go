package store

import (
	"math"

	"github.com/tidwall/btree"
)

// Deque is the value of a list key: a copy-on-write tree of elements, ordered by positions.
// Positions are numbers with gaps between them. A push takes a position beyond the end; an
// insertion takes the middle between its neighbours. If there is no gap, all positions are assigned
// anew. So access to both ends and to any index takes O(log n), and a copy O(1).
type Deque struct {
	tree  *btree.BTreeG[listElem]
	bytes int64 // see size
}

type listElem struct {
	at    int64
	value string
}

func listElemLess(a, b listElem) bool { return a.at < b.at }

// listStride is the distance between neighbours without an insertion between them.
const listStride = 1 << 20

func newList() *Deque { return &Deque{tree: btree.NewBTreeGOptions(listElemLess, treeOptions)} }

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

// Each calls fn for the elements from an index on until fn returns false.
func (l *Deque) Each(from int, fn func(value string) bool) {
	if first, ok := l.tree.GetAt(from); ok {
		l.tree.Ascend(first, func(e listElem) bool { return fn(e.value) })
	}
}

// eachBack is Each in the direction of the head.
func (l *Deque) eachBack(from int, fn func(value string) bool) {
	if first, ok := l.tree.GetAt(from); ok {
		l.tree.Descend(first, func(e listElem) bool { return fn(e.value) })
	}
}

// push adds value at one end. It keeps value, which must not share memory with a buffer.
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
		l.spread()
		at, _ = l.gap(i)
	}
	e := listElem{at, value}
	l.bytes += e.size()
	l.tree.Set(e)
}

// gap returns a free position before index i; ok is false if there is none.
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

// spread assigns all positions anew, with gaps.
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

// remove removes n elements from index i on. They must exist.
func (l *Deque) remove(i, n int) {
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
