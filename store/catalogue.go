package store

import (
	"strings"
)

// Catalogue is a snapshot of the cached scripts and functions. It is immutable, so any goroutine may read it while the store
// changes.
type Catalogue struct {
	bySHA *tree[script]
	libs  *librarySet

	of      *tree[script] // the tree of which bySHA is a copy
	arrival uint64        // the value of scriptCache.arrival when the copy was made
}

// Catalogue returns the current catalogue: old itself, if nothing has changed since old was made. old may be nil.
func (s *Store) Catalogue(old *Catalogue) *Catalogue {
	c := &s.scripts
	if old != nil && old.of == c.bySHA && old.arrival == c.arrival && old.libs == s.libs {
		return old
	}
	return &Catalogue{bySHA: c.bySHA.Copy(), libs: s.libs, of: c.bySHA, arrival: c.arrival}
}

// Script returns a cached script by its SHA-1 in lower case.
func (c *Catalogue) Script(sha string) (body string, ok bool) {
	found, ok := c.bySHA.Get(script{sha: sha})
	return found.body, ok
}

// FunctionFlags returns the flags that a function declares; name may be in any case.
func (c *Catalogue) FunctionFlags(name string) (flags FunctionFlags, ok bool) {
	_, f := c.libs.function(strings.ToLower(name))
	if f == nil {
		return 0, false
	}
	return f.Flags, true
}
