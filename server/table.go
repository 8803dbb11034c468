package server

import (
	"hash/maphash"
	"iter"
	"math/rand/v2"
	"sync"
)

// A Go map never shrinks: after deletions, it keeps its memory, and iterations take as long as before. So one client could slow down the
// server for good. The maps of this file shrink.

const (
	// A roomy map shrinks when it has fewer than roomy.most/sparse entries. It does not shrink if roomy.most is at most fewEntries.
	sparse     = 8
	fewEntries = 32
)

// roomy is a map that shrinks when most of its entries have been dropped. The zero value is empty.
type roomy[K comparable, V any] struct {
	m    map[K]V
	most int // the largest number of entries since the map last shrank
}

func (r *roomy[K, V]) put(key K, value V) {
	if r.m == nil {
		r.m = map[K]V{}
	}
	r.m[key] = value
	r.most = max(r.most, len(r.m))
}

func (r *roomy[K, V]) drop(key K) {
	delete(r.m, key)
	if r.most > fewEntries && len(r.m) < r.most/sparse {
		less := make(map[K]V, len(r.m))
		for k, v := range r.m {
			less[k] = v
		}
		r.m, r.most = less, len(less)
	}
}

// table is a map for names that shrinks. A large table has many parts, so that no single operation moves many entries. The zero value is
// empty.
type table[V any] struct {
	parts []roomy[string, V] // no part, one part, or tableParts parts
	n     int                // entries in all parts
	form  int                // how many times divide has replaced the parts
}

const (
	tableParts = 256
	manyInOne  = 2048 // a table with more entries is split into tableParts parts
	fewInParts = 256  // a split table with fewer entries is joined into one part again
)

// tableSeed keeps clients from choosing names that all come into one part.
var tableSeed = maphash.MakeSeed()

func (t *table[V]) len() int { return t.n }

// get returns the value of a name.
func (t *table[V]) get(name string) (value V, is bool) {
	switch len(t.parts) {
	case 0:
	case 1:
		value, is = t.parts[0].m[name]
	default:
		value, is = t.parts[maphash.String(tableSeed, name)%tableParts].m[name]
	}
	return value, is
}

// getBytes does what get does, for a name in a byte slice. It does not copy the name.
func (t *table[V]) getBytes(name []byte) (value V, is bool) {
	switch len(t.parts) {
	case 0:
	case 1:
		value, is = t.parts[0].m[string(name)]
	default:
		value, is = t.parts[maphash.Bytes(tableSeed, name)%tableParts].m[string(name)]
	}
	return value, is
}

func (t *table[V]) part(name string) *roomy[string, V] {
	if len(t.parts) == 1 {
		return &t.parts[0]
	}
	return &t.parts[maphash.String(tableSeed, name)%tableParts]
}

func (t *table[V]) put(name string, value V) {
	if t.parts == nil {
		t.parts = make([]roomy[string, V], 1)
	}
	p := t.part(name)
	t.n -= len(p.m)
	p.put(name, value)
	if t.n += len(p.m); t.n > manyInOne && len(t.parts) == 1 {
		t.divide(tableParts)
	}
}

func (t *table[V]) drop(name string) {
	if t.parts == nil {
		return
	}
	p := t.part(name)
	t.n -= len(p.m)
	p.drop(name)
	if t.n += len(p.m); t.n < fewInParts && len(t.parts) > 1 {
		t.divide(1)
	}
}

// divide replaces the table's parts by new ones and moves the entries to them. The argument is the number of new parts.
func (t *table[V]) divide(parts int) {
	old := t.parts
	t.form++
	t.parts = make([]roomy[string, V], parts)
	for i := range old {
		for name, value := range old[i].m {
			t.part(name).put(name, value)
		}
	}
}

// all yields the entries. It begins with a random part. The caller may drop entries that all has already yielded.
func (t *table[V]) all() iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		parts, first := t.parts, 0
		if len(parts) > 1 {
			first = rand.IntN(len(parts))
		}
		for i := range parts {
			for name, value := range parts[(first+i)%len(parts)].m {
				if !yield(name, value) {
					return
				}
			}
		}
	}
}

// namesOfTable returns the names in a table that mu guards. It releases mu after each part, and begins anew after divide.
func namesOfTable[V any](mu *sync.RWMutex, t *table[V]) (names []string) {
	form := 0
	for i, more := 0, true; more; i++ {
		mu.RLock()
		if i == 0 || t.form != form {
			i, form, names = 0, t.form, make([]string, 0, t.n)
		}
		if i < len(t.parts) {
			for name := range t.parts[i].m {
				names = append(names, name)
			}
		}
		more = i+1 < len(t.parts)
		mu.RUnlock()
	}
	return names
}
