package store

import (
	"cmp"
	"slices"
	"strings"
)

// index holds the keys of a database in the order of their hashes, as a trie of directories as in extendible hashing (Fagin et al., TODS
// 1979). Hashes are spread evenly, so a lookup reads few cache lines.
//
// A node that a frozen index shares is copied before a change.
type index struct {
	root *node  // always a branch
	gen  uint64 // generation of the nodes that no frozen index shares
	size int
}

const (
	// hashBits is the number of bits of a key's hash: SCAN cursors are hashes, and some clients
	// store cursors in a double.
	hashBits = 48
	hashMask = 1<<hashBits - 1
	// branchDepth limits a branch to 64 children, because a copy of a branch copies all of them.
	branchDepth = 6
	// leafSlots is the number of keys of a full leaf, which the next key splits, unless all keys have one hash.
	leafSlots = 32
	// slotStep is the number of slots by which a leaf grows and shrinks.
	slotStep = 8
)

// slot is a key in a leaf, with its hash: to follow the pointer for a comparison would be a cache miss.
type slot struct {
	hash uint64
	*Entry
}

// compareSlots orders keys by hash, then by name.
func compareSlots(a, b slot) int {
	if a.hash != b.hash {
		return cmp.Compare(a.hash, b.hash)
	}
	return strings.Compare(a.key, b.key)
}

func slotLess(a, b slot) bool { return compareSlots(a, b) < 0 }

// node is a branch or a leaf.
type node struct {
	gen   uint64
	bits  uint8   // number of hash bits that lead to this node from its parent
	depth uint8   // number of hash bits that a branch uses; a child with fewer bits fills several places in kids
	kids  []*node // children of a branch, 1<<depth of them; nil in a leaf
	slots []slot  // keys of a leaf, sorted (compareSlots)
}

func newIndex() index { return index{root: &node{kids: []*node{{}}}} }

// freeze returns a copy of the index that stays as it is while x changes.
func (x *index) freeze() index {
	frozen := *x
	x.gen++
	return frozen
}

// path returns the hash shifted so that its first bit is the highest bit. Its bits lead through the
// trie.
func path(hash uint64) uint64 { return hash << (64 - hashBits) }

// place returns the index of the child that a path leads to.
func (n *node) place(p uint64) int { return int(p >> (64 - n.depth)) }

// put stores a child in all its places in n.kids; at is the index of one of them.
func (n *node) put(at int, kid *node) {
	span := 1 << (n.depth - kid.bits)
	at &^= span - 1
	for i := range span {
		n.kids[at+i] = kid
	}
}

// find returns the index of a key in a leaf, or where to insert it. p is its path below the branches.
func (n *node) find(p, hash uint64, key string) (at int, found bool) {
	s := n.slots
	if len(s) > leafSlots {
		return slices.BinarySearchFunc(s, slot{hash, &Entry{key: key}}, compareSlots)
	}
	at = int(p >> 32 * uint64(len(s)) >> 32)
	for at > 0 && s[at-1].hash >= hash {
		at--
	}
	for at < len(s) && s[at].hash < hash {
		at++
	}
	for at < len(s) && s[at].hash == hash && s[at].key < key {
		at++
	}
	return at, at < len(s) && s[at].hash == hash && s[at].key == key
}

// get returns the entry of a key, or nil.
func (x *index) get(hash uint64, key string) *Entry {
	n, p := x.root, path(hash)
	for n.kids != nil {
		n = n.kids[n.place(p)]
		p <<= n.bits
	}
	if at, found := n.find(p, hash, key); found {
		return n.slots[at].Entry
	}
	return nil
}

// set stores an entry and returns the entry that it replaced, or nil.
func (x *index) set(s slot) *Entry {
	n, p, used := x.ownRoot(), path(s.hash), uint8(0)
	for {
		place := n.place(p)
		kid := x.own(n, place)
		if kid.kids != nil {
			n, p, used = kid, p<<kid.bits, used+kid.bits
			continue
		}
		at, found := kid.find(p<<kid.bits, s.hash, s.key)
		if found {
			old := kid.slots[at].Entry
			kid.slots[at] = s
			return old
		}
		if len(kid.slots) < leafSlots || used+kid.bits == hashBits {
			kid.insert(at, s)
			x.size++
			return nil
		}
		x.part(n, place, used+kid.bits)
	}
}

// remove removes a key, if it exists.
func (x *index) remove(hash uint64, key string) { x.removeFrom(x.ownRoot(), path(hash), hash, key) }

func (x *index) removeFrom(n *node, p, hash uint64, key string) {
	place := n.place(p)
	kid := x.own(n, place)
	p <<= kid.bits
	if kid.kids != nil {
		x.removeFrom(kid, p, hash, key)
		if kid.depth > 0 {
			return
		}
		leaf := x.own(kid, 0)
		leaf.bits = kid.bits
		n.put(place, leaf)
		x.join(n, place)
		return
	}
	at, found := kid.find(p, hash, key)
	if !found {
		return
	}
	kid.slots = slices.Delete(kid.slots, at, at+1)
	x.size--
	if spare := cap(kid.slots) - len(kid.slots); spare >= max(2*slotStep, len(kid.slots)) {
		kid.slots = roomy(kid.slots)
	}
	if len(kid.slots) <= leafSlots/4 { // for a larger leaf, x.join would cost more than it gains
		x.join(n, place)
	}
}

// ownRoot returns the root for a change. If a frozen index shares the root, ownRoot first replaces it by a copy.
func (x *index) ownRoot() *node {
	if x.root.gen != x.gen {
		x.root = x.root.copy(x.gen)
	}
	return x.root
}

// own returns a child that no frozen index shares, if necessary a copy. No frozen index may share n.
func (x *index) own(n *node, place int) *node {
	kid := n.kids[place]
	if kid.gen != x.gen {
		kid = kid.copy(x.gen)
		n.put(place, kid)
	}
	return kid
}

func (n *node) copy(gen uint64) *node {
	c := *n
	c.gen, c.kids = gen, slices.Clone(n.kids)
	if n.kids == nil {
		c.slots = roomy(n.slots)
	}
	return &c
}

// roomy returns a copy of s, with the slots of the argument more appended. The copy has the capacity for at least one further slot.
func roomy(s []slot, more ...slot) []slot {
	n := len(s) + len(more)
	return append(append(make([]slot, 0, n-n%slotStep+slotStep), s...), more...)
}

func (n *node) insert(at int, s slot) {
	if len(n.slots) == cap(n.slots) && len(n.slots) < leafSlots {
		n.slots = roomy(n.slots)
	}
	n.slots = slices.Insert(n.slots, at, s)
}

// part splits the full leaf n.kids[place] or, if n has no bits left, puts a branch above it. The argument used is the leaf's depth in bits.
func (x *index) part(n *node, place int, used uint8) {
	leaf := n.kids[place]
	if leaf.bits == branchDepth {
		n.kids[place] = &node{gen: x.gen, bits: branchDepth, kids: []*node{leaf}}
		leaf.bits = 0
		return
	}
	if leaf.bits == n.depth {
		n.double()
		place *= 2
	}
	half := slices.IndexFunc(leaf.slots, func(s slot) bool { return path(s.hash)<<used>>63 == 1 })
	if half < 0 {
		half = len(leaf.slots)
	}
	low := &node{gen: x.gen, bits: leaf.bits + 1, slots: roomy(leaf.slots[:half])}
	high := &node{gen: x.gen, bits: leaf.bits + 1, slots: roomy(leaf.slots[half:])}
	span := 1 << (n.depth - low.bits)
	n.put(place&^span, low)
	n.put(place|span, high)
}

// double makes the branch use one more bit.
func (n *node) double() {
	kids := make([]*node, 0, 2*len(n.kids))
	for _, kid := range n.kids {
		kids = append(kids, kid, kid)
	}
	n.kids, n.depth = kids, n.depth+1
}

// join is the inverse of part: it merges the leaf n.kids[place] with its other half, again and again, while both are small.
func (x *index) join(n *node, place int) {
	for {
		kid := n.kids[place]
		if kid.kids != nil || kid.bits == 0 {
			return
		}
		span := 1 << (n.depth - kid.bits)
		low, high := n.kids[place&^span], n.kids[place|span]
		if low.bits != high.bits || low.kids != nil || high.kids != nil || len(low.slots)+len(high.slots) > leafSlots/2 {
			return
		}
		n.put(place, &node{gen: x.gen, bits: kid.bits - 1, slots: roomy(low.slots, high.slots...)})
		for n.depth > 0 && !slices.ContainsFunc(n.kids, func(k *node) bool { return k.bits == n.depth }) {
			n.halve()
			place /= 2
		}
	}
}

// halve makes the branch use one bit less. The bit must not separate any children.
func (n *node) halve() {
	kids := make([]*node, 0, len(n.kids)/2)
	for i := 0; i < len(n.kids); i += 2 {
		kids = append(kids, n.kids[i])
	}
	n.kids, n.depth = kids, n.depth-1
}

// ascend calls fn for the keys whose hashes are at least the given one, in order of hash, until fn returns false.
func (x *index) ascend(from uint64, fn func(slot) bool) {
	if from <= hashMask { // a client may send any cursor
		x.root.ascend(path(from), from, fn)
	}
}

func (n *node) ascend(p, from uint64, fn func(slot) bool) bool {
	if n.kids == nil {
		at, _ := n.find(p, from, "")
		for _, s := range n.slots[at:] {
			if !fn(s) {
				return false
			}
		}
		return true
	}
	for i := n.place(p); i < len(n.kids); {
		kid := n.kids[i]
		if !kid.ascend(p<<kid.bits, from, fn) {
			return false
		}
		span := 1 << (n.depth - kid.bits)
		i, p = i&^(span-1)+span, 0
	}
	return true
}
