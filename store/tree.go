package store

import "sync/atomic"

// tree is a copy-on-write B-tree that also finds an element by its index. A copy takes constant time.
//
// Any number of goroutines may read a tree, and one of them may copy it at the same time.
type tree[T any] struct {
	root *treeNode[T] // nil if the tree is empty
	gen  uint64       // generation of the nodes that no copy shares
	less func(a, b T) bool
}

// treeNode has elements in order. A branch also has a child before its first element, and one behind each element.
type treeNode[T any] struct {
	gen   uint64
	count int // number of elements in the node and below it
	items []T
	kids  []*treeNode[T] // nil in a leaf
}

const (
	// treeMost is the number of elements of a full node.
	treeMost = 63
	// treeLeast is the least number of elements of a node but the root. It is small, so that nodes do not split and join constantly.
	treeLeast = 20
	// treeHeight is more than the height of any tree: no memory has room for (treeLeast+1)^(treeHeight-1) elements.
	treeHeight = 16
)

// treePath is a position in a tree: the index of the child in each node, and then of the element.
type treePath [treeHeight]uint8

// treeGen is the latest generation that any tree has got.
var treeGen atomic.Uint64

func newTree[T any](less func(a, b T) bool) *tree[T] {
	return &tree[T]{gen: treeGen.Add(1), less: less}
}

// Copy returns a copy that is independent of the original.
func (t *tree[T]) Copy() *tree[T] {
	t.gen = treeGen.Add(1)
	return &tree[T]{t.root, treeGen.Add(1), t.less}
}

// Clear removes all elements.
func (t *tree[T]) Clear() { t.root = nil }

// Len returns the number of elements.
func (t *tree[T]) Len() int {
	if t.root == nil {
		return 0
	}
	return t.root.count
}

// search returns the index of the first element of a node that is not less than x, and whether it equals x.
func (t *tree[T]) search(n *treeNode[T], x *T) (i int, found bool) {
	low, high := 0, len(n.items)
	for low < high {
		if h := (low + high) / 2; t.less(n.items[h], *x) {
			low = h + 1
		} else {
			high = h
		}
	}
	return low, low < len(n.items) && !t.less(*x, n.items[low])
}

// Get returns the element that equals x.
func (t *tree[T]) Get(x T) (found T, ok bool) {
	for n := t.root; n != nil; {
		i, ok := t.search(n, &x)
		if ok {
			return n.items[i], true
		}
		if n.kids == nil {
			break
		}
		n = n.kids[i]
	}
	return found, false
}

// GetAt returns the element at an index.
func (t *tree[T]) GetAt(i int) (x T, ok bool) {
	if i < 0 || i >= t.Len() {
		return x, false
	}
	n := t.root
	for n.kids != nil {
		place, rest, own := n.step(i)
		if own {
			return n.items[place], true
		}
		n, i = n.kids[place], rest
	}
	return n.items[i], true
}

// step finds the element at index i: n.items[place] if own is true, else at index rest below n.kids[place].
func (n *treeNode[T]) step(i int) (place, rest int, own bool) {
	if i < n.count/2 {
		for place = 0; i > n.kids[place].count; place++ {
			i -= n.kids[place].count + 1
		}
		return place, i, i == n.kids[place].count
	}
	place = len(n.items)
	first := n.count - n.kids[place].count // the index of the child's first element
	for i < first-1 {
		place--
		first -= n.kids[place].count + 1
	}
	if i == first-1 {
		return place - 1, 0, true
	}
	return place, i - first, false
}

// Min returns the first element.
func (t *tree[T]) Min() (T, bool) { return t.GetAt(0) }

// Max returns the last element.
func (t *tree[T]) Max() (T, bool) { return t.GetAt(t.Len() - 1) }

// Set puts an element in the place of the one that equals it, or adds it.
func (t *tree[T]) Set(x T) (old T, replaced bool) {
	var path treePath
	for n, depth := t.root, 0; n != nil; depth++ {
		i, found := t.search(n, &x)
		path[depth] = uint8(i)
		if found {
			n = t.ownRoot()
			for _, i := range path[:depth] {
				n = t.own(n, int(i))
			}
			old, n.items[i] = n.items[i], x
			return old, true
		}
		if n.kids == nil {
			break
		}
		n = n.kids[i]
	}
	t.add(path[:], x)
	return old, false
}

// Load is Set, but faster for an element that comes behind all others.
func (t *tree[T]) Load(x T) {
	if last, any := t.Max(); any && !t.less(last, x) {
		t.Set(x)
		return
	}
	var path treePath
	for n, depth := t.root, 0; n != nil; depth++ {
		path[depth] = uint8(len(n.items))
		if n.kids == nil {
			break
		}
		n = n.kids[len(n.items)]
	}
	t.add(path[:], x)
}

// add inserts an element at the position path in a leaf.
func (t *tree[T]) add(path []uint8, x T) {
	if t.root == nil {
		t.root = &treeNode[T]{gen: t.gen, count: 1, items: []T{x}}
		return
	}
	root := t.ownRoot()
	t.insert(root, path, x)
	if len(root.items) > treeMost {
		t.root = &treeNode[T]{gen: t.gen, count: root.count, kids: []*treeNode[T]{root}}
		t.split(t.root, 0)
	}
}

// insert adds an element at path in or below n. The caller must split n if n becomes too large.
func (t *tree[T]) insert(n *treeNode[T], path []uint8, x T) {
	n.count++
	i := int(path[0])
	if n.kids == nil {
		n.items = insertAt(n.items, i, x)
		return
	}
	kid := t.own(n, i)
	t.insert(kid, path[1:], x)
	if len(kid.items) > treeMost {
		t.split(n, i)
	}
}

// split divides the child at index i in two. Both get new arrays, so neither keeps alive what is later removed from the other.
func (t *tree[T]) split(n *treeNode[T], i int) {
	low := n.kids[i]
	half := len(low.items) / 2
	high := &treeNode[T]{gen: t.gen, items: withRoom(low.items[half+1:])}
	n.items = insertAt(n.items, i, low.items[half])
	low.items = withRoom(low.items[:half])
	if low.kids != nil {
		high.kids, low.kids = withRoom(low.kids[half+1:]), withRoom(low.kids[:half+1])
	}
	high.recount()
	low.count -= high.count + 1
	n.kids = insertAt(n.kids, i+1, high)
}

// withRoom returns a copy with capacity for further elements.
func withRoom[T any](s []T) []T {
	return append(make([]T, 0, roomFor(len(s)+1)), s...)
}

func (n *treeNode[T]) recount() {
	n.count = len(n.items)
	for _, kid := range n.kids {
		n.count += kid.count
	}
}

// ownRoot returns the root for a change. If another tree may share the root, ownRoot first replaces it with a copy.
func (t *tree[T]) ownRoot() *treeNode[T] {
	if t.root.gen != t.gen {
		t.root = t.root.copy(t.gen)
	}
	return t.root
}

// own is ownRoot for the child of n at index i. The node n itself must not be shared with another tree.
func (t *tree[T]) own(n *treeNode[T], i int) *treeNode[T] {
	if n.kids[i].gen != t.gen {
		n.kids[i] = n.kids[i].copy(t.gen)
	}
	return n.kids[i]
}

func (n *treeNode[T]) copy(gen uint64) *treeNode[T] {
	c := &treeNode[T]{gen: gen, count: n.count, items: append(make([]T, 0, len(n.items)+1), n.items...)}
	if n.kids != nil {
		c.kids = append(make([]*treeNode[T], 0, len(n.kids)+1), n.kids...)
	}
	return c
}

// Items returns all elements.
func (t *tree[T]) Items() []T {
	all := make([]T, 0, t.Len())
	t.Scan(func(x T) bool {
		all = append(all, x)
		return true
	})
	return all
}

// Scan calls fn for all elements in order until fn returns false.
func (t *tree[T]) Scan(fn func(T) bool) {
	if t.root != nil {
		t.root.scan(fn)
	}
}

func (n *treeNode[T]) scan(fn func(T) bool) bool {
	if n.kids != nil && !n.kids[0].scan(fn) {
		return false
	}
	return n.scanFrom(0, fn)
}

// scanFrom is scan, but begins with the element at index i of the node.
func (n *treeNode[T]) scanFrom(i int, fn func(T) bool) bool {
	for ; i < len(n.items); i++ {
		if !fn(n.items[i]) || n.kids != nil && !n.kids[i+1].scan(fn) {
			return false
		}
	}
	return true
}

// scanBack is scan in reverse order, but begins with the element at index i-1 of the node.
func (n *treeNode[T]) scanBack(i int, fn func(T) bool) bool {
	for i--; i >= 0; i-- {
		if !fn(n.items[i]) || n.kids != nil && !n.kids[i].scanBackAll(fn) {
			return false
		}
	}
	return true
}

func (n *treeNode[T]) scanBackAll(fn func(T) bool) bool {
	if n.kids != nil && !n.kids[len(n.items)].scanBackAll(fn) {
		return false
	}
	return n.scanBack(len(n.items), fn)
}

// Ascend calls fn, in order, for the elements that are not less than the argument from. It ends when fn returns false.
func (t *tree[T]) Ascend(from T, fn func(T) bool) {
	if t.root != nil {
		t.ascend(t.root, &from, fn)
	}
}

func (t *tree[T]) ascend(n *treeNode[T], from *T, fn func(T) bool) bool {
	i, found := t.search(n, from)
	if !found && n.kids != nil && !t.ascend(n.kids[i], from, fn) {
		return false
	}
	return n.scanFrom(i, fn)
}

// Descend calls fn, in reverse order, for the elements that are not greater than the argument from. It ends when fn returns false.
func (t *tree[T]) Descend(from T, fn func(T) bool) {
	if t.root != nil {
		t.descend(t.root, &from, fn)
	}
}

func (t *tree[T]) descend(n *treeNode[T], from *T, fn func(T) bool) bool {
	i, found := t.search(n, from)
	if found {
		i++
	} else if n.kids != nil && !t.descend(n.kids[i], from, fn) {
		return false
	}
	return n.scanBack(i, fn)
}
