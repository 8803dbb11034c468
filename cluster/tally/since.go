package tally

import "hash/maphash"

// sinceSlots is how many locks Since remembers at most: it takes 1 MiB.
const sinceSlots = 1 << 16

// Since remembers since when locks are held, in a table of fixed size. A later lock may take the place of an earlier one, which is then
// forgotten. One goroutine uses it.
type Since struct {
	seed  maphash.Seed
	slots []since // nil before the first lock
}

type since struct {
	lock uint64
	at   int64
}

// NewSince returns a Since without locks.
func NewSince() *Since { return &Since{seed: maphash.MakeSeed()} }

// slot returns the place of a lock, and its name there.
func (s *Since) slot(token uint64, owner string) (*since, uint64) {
	h := maphash.String(s.seed, owner) ^ token*0x9e3779b97f4a7c15 | 1 // never 0
	return &s.slots[(h>>8)%sinceSlots], h
}

// Begin notes that an owner holds the lock with a token since then.
func (s *Since) Begin(token uint64, owner string, at int64) {
	if s.slots == nil {
		s.slots = make([]since, sinceSlots)
	}
	p, h := s.slot(token, owner)
	*p = since{h, at}
}

// End returns for how long an owner has held a lock that ends, and forgets it; -1 if that is not known.
func (s *Since) End(token uint64, owner string, at int64) int64 {
	if s.slots == nil {
		return -1
	}
	p, h := s.slot(token, owner)
	if p.lock != h {
		return -1
	}
	began := p.at
	*p = since{}
	return max(at-began, 0)
}
