package store

import "unsafe"

// A small write may copy a large value, in the Txn and in Apply, while a snapshot keeps a third copy: too much for some nodes.

// copyStep is the least number of bytes that are copied between two calls of the function that Brake has set.
const copyStep = 256 << 10

// treeCopy is about how many bytes a write to a large collection copies: a leaf of the tree, and the branches above it.
const treeCopy = 4 << 10

// Brake sets a function that is called before data is copied, once copyStep bytes have come together. The argument bytes counts them. The
// function may wait for memory, but must not use the store.
func (s *Store) Brake(brake func(bytes int)) { s.brake = brake }

// copying counts bytes that are about to be copied, and calls the brake for every copyStep bytes or more.
func (s *Store) copying(bytes int) {
	if s.uncounted += bytes; s.uncounted < copyStep {
		return
	}
	bytes, s.uncounted = s.uncounted, 0
	if s.brake != nil {
		s.brake(bytes)
	}
}

// copySize returns about how many bytes are copied by e.clone and by the first write to the clone.
func (e *Entry) copySize() int {
	const entry, element = int(unsafe.Sizeof(Entry{})), int(treeFieldSize)
	switch v := e.collection().(type) {
	case nil:
		return entry
	case *Hash:
		if v.big == nil {
			return entry + len(v.small)*int(fieldSize)
		}
	case *MemberSet:
		if v.tree == nil {
			return entry + len(v.ints)*int(intSize)
		}
	case *SortedSet:
		if v.byScore == nil {
			return entry + len(v.small)*int(scoredSize)
		}
	}
	return entry + min(treeCopy, e.elems.Len()*element)
}

// tree reports whether the value of the entry is in a tree: a list, or another collection in its large form.
func (e *Entry) tree() bool {
	switch v := e.collection().(type) {
	case *Hash:
		return v.big != nil
	case *MemberSet:
		return v.tree != nil
	case *SortedSet:
		return v.byScore != nil
	case *Deque:
		return true
	}
	return false
}

// cloned counts the bytes of a copy of e that the caller is about to make.
func (t *Txn) cloned(e *Entry) {
	n := e.copySize()
	t.held += n
	t.s.copying(n)
}

// Held returns about how many bytes the transaction has copied for its changes, replaced copies included.
func (t *Txn) Held() int { return t.held }

// Forget frees large buffers and pending entries. After Forget, only Restart may be called.
func (t *Txn) Forget() {
	t.ws.Forget()
	if t.held <= keepWrites {
		return
	}
	t.held, t.find = 0, finder{}
	for i := range t.views {
		t.views[i].over, t.views[i].sorted = nil, nil
	}
}
