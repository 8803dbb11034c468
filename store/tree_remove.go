package store

// Delete removes the element that equals x and returns it.
func (t *tree[T]) Delete(x T) (gone T, ok bool) {
	var path treePath
	for n, depth := t.root, 0; n != nil; depth++ {
		i, found := t.search(n, &x)
		path[depth] = uint8(i)
		if found {
			return t.deleteAt(path[:depth+1]), true
		}
		if n.kids == nil {
			break
		}
		n = n.kids[i]
	}
	return gone, false
}

// DeleteAt removes the element at an index and returns it.
func (t *tree[T]) DeleteAt(i int) (gone T, ok bool) {
	if i < 0 || i >= t.Len() {
		return gone, false
	}
	var path treePath
	n, depth := t.root, 0
	for ; n.kids != nil; depth++ {
		place, rest, own := n.step(i)
		if path[depth] = uint8(place); own {
			return t.deleteAt(path[:depth+1]), true
		}
		n, i = n.kids[place], rest
	}
	path[depth] = uint8(i)
	return t.deleteAt(path[:depth+1]), true
}

// PopMin removes the first element and returns it.
func (t *tree[T]) PopMin() (T, bool) { return t.DeleteAt(0) }

// PopMax removes the last element and returns it.
func (t *tree[T]) PopMax() (T, bool) { return t.DeleteAt(t.Len() - 1) }

// deleteAt removes the element at the position path.
func (t *tree[T]) deleteAt(path []uint8) T {
	root := t.ownRoot()
	gone := t.remove(root, path)
	if len(root.items) > 0 {
		return gone
	}
	if t.root = nil; root.kids != nil {
		t.root = root.kids[0]
	}
	return gone
}

// remove removes the element at path in or below n. The caller must refill n if n becomes too small.
func (t *tree[T]) remove(n *treeNode[T], path []uint8) (gone T) {
	n.count--
	i := int(path[0])
	if n.kids == nil {
		n.items, gone = removeAt(n.items, i)
		return gone
	}
	kid := t.own(n, i)
	if len(path) > 1 {
		gone = t.remove(kid, path[1:])
	} else {
		gone = n.items[i]
		n.items[i] = t.removeLast(kid)
	}
	t.refill(n, i)
	return gone
}

// removeLast is remove for the last element in n and below n.
func (t *tree[T]) removeLast(n *treeNode[T]) (gone T) {
	n.count--
	if n.kids == nil {
		n.items, gone = removeAt(n.items, len(n.items)-1)
		return gone
	}
	last := len(n.kids) - 1
	gone = t.removeLast(t.own(n, last))
	t.refill(n, last)
	return gone
}

// refill gives the child at index i an element of a neighbour, or joins it with one, if it has too few.
func (t *tree[T]) refill(n *treeNode[T], i int) {
	switch {
	case len(n.kids[i].items) >= treeLeast:
	case i > 0 && len(n.kids[i-1].items) > treeLeast:
		t.shiftRight(n, i-1)
	case i < len(n.items) && len(n.kids[i+1].items) > treeLeast:
		t.shiftLeft(n, i)
	default:
		t.join(n, max(i-1, 0))
	}
}

// shiftRight moves an element from the child at index i to the next child, by way of n.
func (t *tree[T]) shiftRight(n *treeNode[T], i int) {
	low, high := t.own(n, i), t.own(n, i+1)
	high.items = insertAt(high.items, 0, n.items[i])
	low.items, n.items[i] = removeAt(low.items, len(low.items)-1)
	if low.kids != nil {
		var kid *treeNode[T]
		low.kids, kid = removeAt(low.kids, len(low.kids)-1)
		high.kids = insertAt(high.kids, 0, kid)
	}
	low.recount()
	high.recount()
}

// shiftLeft moves an element to the child at index i from the next child, by way of n.
func (t *tree[T]) shiftLeft(n *treeNode[T], i int) {
	low, high := t.own(n, i), t.own(n, i+1)
	low.items = insertAt(low.items, len(low.items), n.items[i])
	high.items, n.items[i] = removeAt(high.items, 0)
	if low.kids != nil {
		var kid *treeNode[T]
		high.kids, kid = removeAt(high.kids, 0)
		low.kids = insertAt(low.kids, len(low.kids), kid)
	}
	low.recount()
	high.recount()
}

// join moves the element at index i of n, and the contents of the next child, to the end of the child at i.
func (t *tree[T]) join(n *treeNode[T], i int) {
	low := t.own(n, i)
	var between T
	var high *treeNode[T]
	n.items, between = removeAt(n.items, i)
	n.kids, high = removeAt(n.kids, i+1)
	low.items = append(append(append(make([]T, 0, roomFor(len(low.items)+1+len(high.items))), low.items...), between), high.items...)
	if low.kids != nil {
		low.kids = append(append(make([]*treeNode[T], 0, roomFor(len(low.kids)+len(high.kids))), low.kids...), high.kids...)
	}
	low.count += 1 + high.count
}
