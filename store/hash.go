package store

import (
	"strings"
)

// Field is a field of a hash.
type Field struct {
	Name, Value string
	hash        uint64 // set only in the large form
}

func fieldLess(a, b Field) bool {
	if a.hash != b.hash {
		return a.hash < b.hash
	}
	return a.Name < b.Name
}

// Hash is the value of a hash key: a slice in the order of insertion, as Redis replies, or a tree in hash order for HSCAN.
type Hash struct {
	small []Field
	big   *fieldTree
}

// fieldTree is the large form. It stores its size in bytes; small hashes compute theirs, to save memory.
type fieldTree struct {
	*tree[Field]
	bytes int64
}

// Len returns the number of fields.
func (h *Hash) Len() int {
	if h.big != nil {
		return h.big.Len()
	}
	return len(h.small)
}

// Compact reports whether the hash has its small form. OBJECT ENCODING shows the form.
func (h *Hash) Compact() bool { return h.big == nil }

// Get returns the value of a field.
func (h *Hash) Get(name string) (string, bool) {
	if h.big != nil {
		f, ok := h.big.Get(Field{Name: name, hash: hashOf(name)})
		return f.Value, ok
	}
	if at, _ := h.search(name); at >= 0 {
		return h.small[at].Value, true
	}
	return "", false
}

// search returns the index of a field in the small form, or -1, and how many fields it has passed.
func (h *Hash) search(name string) (at, passed int) {
	for i := range h.small {
		if h.small[i].Name == name {
			return i, i
		}
	}
	return -1, len(h.small)
}

// Each calls fn for every field until fn returns false.
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

// ascend calls fn for the fields whose hash codes are at least from, in order. The hash must have its large form.
func (h *Hash) ascend(from uint64, fn func(Field) bool) {
	h.big.Ascend(Field{hash: from}, fn)
}

// set sets a field and returns by how much the estimated memory grew. value must not share memory with a buffer that is used again.
func (h *Hash) set(name, value string, form *forms, f *finder) (grown int64) {
	if h.big == nil {
		grown = h.setSmall(name, value, f)
		if len(h.small) > form.hashEntries || len(name) > form.hashValue || len(value) > form.hashValue {
			grown += h.grow()
		}
		return grown
	}
	field := Field{Name: name, hash: hashOf(name)}
	if old, ok := h.big.Get(field); ok {
		field.Name = old.Name
		grown = -old.size(treeFieldSize)
	} else {
		field.Name = strings.Clone(name)
	}
	field.Value = value
	grown += field.size(treeFieldSize)
	h.big.bytes += grown
	h.big.Set(field)
	return grown
}

// setSmall is h.set for the small form. It does not convert a hash that has become too large for this form.
func (h *Hash) setSmall(name, value string, f *finder) (grown int64) {
	at, passed := f.field(h, name)
	f.wrote(int64(passed) * fieldBytes)
	if at >= 0 {
		field := &h.small[at]
		grown = allocated(len(value)) - allocated(len(field.Value))
		field.Value = value
		return grown
	}
	field := Field{Name: strings.Clone(name), Value: value}
	h.small = insertAt(h.small, len(h.small), field)
	f.addedField(h)
	return field.size(fieldSize)
}

// grow converts the hash to the large form and returns by how much its estimated memory grew. As in Redis, a hash never
// shrinks back.
func (h *Hash) grow() (grown int64) {
	before := h.size()
	h.big = &fieldTree{tree: newTree(fieldLess)}
	for _, f := range h.small {
		h.big.bytes += f.size(treeFieldSize)
		f.hash = hashOf(f.Name)
		h.big.Set(f)
	}
	h.small = nil
	return h.size() - before
}

// remove removes a field, if it exists, and returns by how much the estimated memory grew (0 or less).
func (h *Hash) remove(name string, f *finder) (grown int64) {
	if h.big != nil {
		if field, had := h.big.Delete(Field{Name: name, hash: hashOf(name)}); had {
			grown = -field.size(treeFieldSize)
			h.big.bytes += grown
		}
		return grown
	}
	i, passed := f.field(h, name)
	if i < 0 {
		return 0
	}
	f.wrote(int64(passed+len(h.small)-i) * fieldBytes)
	f.removedField(h, name)
	grown = -h.small[i].size(fieldSize)
	h.small, _ = removeAt(h.small, i)
	return grown
}

func (h *Hash) clone() collection {
	if h.big != nil {
		return &Hash{big: &fieldTree{h.big.Copy(), h.big.bytes}}
	}
	return &Hash{small: append(make([]Field, 0, len(h.small)+1), h.small...)}
}

// size returns the estimated memory of the fields.
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

// size returns the estimated memory of a field. The argument each is the memory without the bytes of name and value: fieldSize or
// treeFieldSize.
func (f *Field) size(each int64) int64 {
	return each + allocated(len(f.Name)) + allocated(len(f.Value))
}

// at returns the field at an index in the order of Each.
func (h *Hash) at(i int) Field {
	if h.big != nil {
		f, _ := h.big.GetAt(i)
		return f
	}
	return h.small[i]
}
