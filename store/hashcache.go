package store

import "hash/maphash"

// hashCache remembers the hashes of the names looked up last. The leader looks a name up to read ahead, to evaluate a request, and to
// apply its writes, and SHA-256 takes 80 ns each time.
type hashCache [256]cachedHash

// cachedHash has the size of a cache line of the processor. It holds a copy of the name, because the memory of a request is used again.
type cachedHash struct {
	length uint8
	name   [maxCachedName]byte
	hash   uint64
}

// maxCachedName is the length of the longest names that a hashCache remembers.
const maxCachedName = 55

var cacheSeed = maphash.MakeSeed()

// of returns hashOf(name).
func (c *hashCache) of(name string) uint64 {
	if len(name) == 0 || len(name) > maxCachedName {
		return hashOf(name)
	}
	e := &c[maphash.String(cacheSeed, name)%uint64(len(c))]
	if string(e.name[:e.length]) != name {
		e.hash = hashOf(name)
		e.length = uint8(copy(e.name[:], name))
	}
	return e.hash
}
