package store

import "unsafe"

// defaultSamples is how many elements MEMORY USAGE looks at if nobody says.
const defaultSamples = 5

// treeSlack is the memory that the trees take for each byte that they hold, and the
// buckets of deadlines: on average a node is about two thirds full.
const treeSlack = 1.5

// MemoryUsage is MEMORY USAGE. The figure is this store's own: the entry, its
// place in the trees, and the value, whose elements are measured by samples.
func MemoryUsage(c *Ctx) Reply {
	samples := int64(defaultSamples)
	for i := 3; i < len(c.Args); i += 2 {
		if !equalFold(c.Args[i], "samples") || i+1 == len(c.Args) {
			return Err(ErrSyntax)
		}
		n, ok := ParseInt(c.Args[i+1])
		switch {
		case !ok:
			return notInteger
		case n < 0:
			return Err(ErrSyntax)
		}
		samples = n
	}
	e := c.Lookup(c.DB, c.Args[2])
	if e == nil {
		return Nil
	}
	return Int(e.memory(samples))
}

// memory estimates what the key takes; samples 0 measures every element.
func (e *Entry) memory(samples int64) int64 {
	total := int64(unsafe.Sizeof(*e)) + inTree(unsafe.Sizeof(slot{})) + allocated(len(e.key))
	if e.deadline != 0 {
		total += inTree(unsafe.Sizeof(e))
	}
	if e.elems == nil {
		return total + allocated(len(e.str))
	}
	total += int64(unsafe.Sizeof(*e.elems))
	n := int64(e.elems.Len())
	if samples == 0 || samples > n {
		samples = n
	}
	sum, seen := e.sample(samples)
	return total + sum*n/max(seen, 1)
}

// sample measures up to n elements of a collection.
func (e *Entry) sample(n int64) (sum, seen int64) {
	more := func(size int64) bool {
		sum += size
		seen++
		return seen < n
	}
	switch v := e.collection().(type) {
	case *Hash:
		each := int64(unsafe.Sizeof(Field{}))
		if !v.Compact() {
			each = inTree(unsafe.Sizeof(Field{}))
		}
		v.Each(func(f Field) bool { return more(each + allocated(len(f.Name)) + allocated(len(f.Value))) })
	case *Deque:
		v.Each(0, func(s string) bool { return more(inTree(unsafe.Sizeof(listElem{})) + allocated(len(s))) })
	case *MemberSet:
		compact := v.Compact()
		v.Each(func(name string) bool {
			if compact {
				return more(int64(unsafe.Sizeof(int64(0))))
			}
			return more(inTree(unsafe.Sizeof(member{})) + allocated(len(name)))
		})
	case *SortedSet:
		each := int64(unsafe.Sizeof(Scored{}))
		if !v.Compact() {
			each = inTree(unsafe.Sizeof(Scored{})) + inTree(unsafe.Sizeof(scoredName{}))
		}
		v.Each(0, func(m Scored) bool { return more(each + allocated(len(m.Member))) })
	}
	return sum, seen
}

func inTree(size uintptr) int64 { return int64(float64(size) * treeSlack) }

// allocated is what the allocator gives for a string: sizes are rounded up.
func allocated(n int) int64 {
	switch {
	case n == 0:
		return 0
	case n <= 8:
		return 8
	case n <= 512:
		return int64(n+15) &^ 15
	}
	return int64(n+127) &^ 127
}
