package store

import (
	"strings"

	"github.com/tidwall/btree"
)

// Field is a field of a hash.
type Field struct {
	Name, Value string
	hash        uint64 // only set in the tree form
}

func fieldLess(a, b Field) bool {
	if a.hash != b.hash {
		return a.hash < b.hash
	}
	return a.Name < b.Name
}

// Hash is the value of a hash key. A small one is a slice in the order of
// insertion, which is the order in which Redis replies; a large one is a
// copy-on-write tree in the order of field hashes, which HSCAN needs.
type Hash struct {
	small []Field
	big   *fieldTree
}

// fieldTree is the large form. It knows its size; the small one, of which there are many,
// finds it out.
type fieldTree struct {
	*btree.BTreeG[Field]
	bytes int64
}

// Len returns the number of fields.
func (h *Hash) Len() int {
	if h.big != nil {
		return h.big.Len()
	}
	return len(h.small)
}

// Compact reports whether the hash still has its small form; it decides what
// OBJECT ENCODING says.
func (h *Hash) Compact() bool { return h.big == nil }

// Get returns the value of a field.
func (h *Hash) Get(name string) (string, bool) {
	if h.big != nil {
		f, ok := h.big.Get(Field{Name: name, hash: hashOf(name)})
		return f.Value, ok
	}
	for i := range h.small {
		if h.small[i].Name == name {
			return h.small[i].Value, true
		}
	}
	return "", false
}

// Each calls fn for every field until it returns false.
func (h *Hash) Each(fn func(Field) bool) {
	if h.big != nil {
		h.big.Scan(fn)
		return
	}
	for _, f := range h.small {
		if !fn(f) {
			return
		}
	}
}

// ascend calls fn for the fields from a hash on, in hash order (tree form).
func (h *Hash) ascend(from uint64, fn func(Field) bool) {
	h.big.Ascend(Field{hash: from}, fn)
}

// set copies the name if the field is new; the value must be a string of its
// own. It returns by how much the hash has grown.
func (h *Hash) set(name, value string, form *forms) (grown int64) {
	if h.big == nil {
		grown = h.setSmall(name, value)
		if len(h.small) > form.hashEntries || len(name) > form.hashValue || len(value) > form.hashValue {
			grown += h.grow()
		}
		return grown
	}
	f := Field{Name: name, hash: hashOf(name)}
	if old, ok := h.big.Get(f); ok {
		f.Name = old.Name
		grown = -old.size(treeFieldSize)
	} else {
		f.Name = strings.Clone(name)
	}
	f.Value = value
	grown += f.size(treeFieldSize)
	h.big.bytes += grown
	h.big.Set(f)
	return grown
}

// setSmall is set for the small form, which it keeps.
func (h *Hash) setSmall(name, value string) (grown int64) {
	for i := range h.small {
		if f := &h.small[i]; f.Name == name {
			grown = allocated(len(value)) - allocated(len(f.Value))
			f.Value = value
			return grown
		}
	}
	f := Field{Name: strings.Clone(name), Value: value}
	h.small = append(h.small, f)
	return f.size(fieldSize)
}

// grow changes to the tree form and returns by how much the hash has grown. As in Redis there
// is no way back.
func (h *Hash) grow() (grown int64) {
	before := h.size()
	h.big = &fieldTree{BTreeG: btree.NewBTreeGOptions(fieldLess, treeOptions)}
	for _, f := range h.small {
		h.big.bytes += f.size(treeFieldSize)
		f.hash = hashOf(f.Name)
		h.big.Set(f)
	}
	h.small = nil
	return h.size() - before
}

// remove removes a field, if it is there, and returns by how much the hash has grown.
func (h *Hash) remove(name string) (grown int64) {
	if h.big != nil {
		if f, had := h.big.Delete(Field{Name: name, hash: hashOf(name)}); had {
			grown = -f.size(treeFieldSize)
			h.big.bytes += grown
		}
		return grown
	}
	for i := range h.small {
		if f := &h.small[i]; f.Name == name {
			grown = -f.size(fieldSize)
			h.small = append(h.small[:i], h.small[i+1:]...)
			return grown
		}
	}
	return 0
}

func (h *Hash) clone() collection {
	if h.big != nil {
		return &Hash{big: &fieldTree{h.big.Copy(), h.big.bytes}}
	}
	return &Hash{small: append(make([]Field, 0, len(h.small)+1), h.small...)}
}

// size is what the fields take.
func (h *Hash) size() int64 {
	if h.big != nil {
		return treeSize + h.big.bytes
	}
	n := int64(0)
	for i := range h.small {
		n += h.small[i].size(fieldSize)
	}
	return n
}

// size is what a field takes whose form takes each.
func (f *Field) size(each int64) int64 {
	return each + allocated(len(f.Name)) + allocated(len(f.Value))
}

// at returns the field at a place in the order of Each.
func (h *Hash) at(i int) Field {
	if h.big != nil {
		f, _ := h.big.GetAt(i)
		return f
	}
	return h.small[i]
}
