package store

import "unsafe"

// A compact form is searched from its start, which is fast for a few elements. But there may be MaxCompact of them, and a request may
// search 100,000 times. So after some searches, a finder makes an index.

const (
	// fewElements is the largest number of elements without an index: to search so many takes less than a microsecond.
	fewElements = 64
	// searchesPerIndex is a number of searches that each pass all elements. To make an index takes about as long as these searches.
	searchesPerIndex = 16
	// passedPerStep is how many elements a search passes in the time of one step (see Ctx.work).
	passedPerStep = 32
	// shiftShare is how many bytes a write can shift in a compact form in the time of copying one to new memory.
	shiftShare = 8
	// removedBytes is how many bytes can be shifted in the time of removing one element from a list.
	removedBytes = 4096
)

const (
	fieldBytes  = int64(unsafe.Sizeof(Field{}))
	scoredBytes = int64(unsafe.Sizeof(Scored{}))
)

// finder finds elements of one compact collection. Until it searches another, only methods that get it may change these. A nil finder has
// no index.
type finder struct {
	hash   *Hash
	set    *SortedSet
	places map[string]int     // where to begin the search for a field: its index or, after removals, a higher one; nil: there is no index yet
	scores map[string]float64 // the scores of the members; nil: there is no index yet
	passed int                // elements that searches have passed since the finder made its last index
	moved  int64              // bytes that writes have passed and shifted, for Txn.tooBig
}

// about prepares the finder for a collection: it drops what the finder knows of another collection.
func (f *finder) about(h *Hash, z *SortedSet) {
	if f.hash != h || f.set != z {
		*f = finder{hash: h, set: z, moved: f.moved}
	}
}

// field returns the index of a field in a small form, or -1, and how many elements the search has passed.
func (f *finder) field(h *Hash, name string) (at, passed int) {
	if f == nil || len(h.small) <= fewElements {
		return h.search(name)
	}
	f.about(h, nil)
	if f.passed > searchesPerIndex*len(h.small) {
		f.passed, f.places = 0, make(map[string]int, len(h.small))
		for i := range h.small {
			f.places[h.small[i].Name] = i
		}
	}
	if f.places == nil {
		at, passed = h.search(name)
	} else if place, ok := f.places[name]; !ok {
		at = -1
	} else {
		for at = min(place, len(h.small)-1); h.small[at].Name != name; at-- {
			passed++
		}
	}
	f.passed += passed
	return at, passed
}

// score returns the score of a member of a small form, and how many elements the search has passed.
func (f *finder) score(z *SortedSet, name string) (score float64, ok bool, passed int) {
	if f == nil || len(z.small) <= fewElements {
		return z.searchScore(name)
	}
	f.about(nil, z)
	if f.scores == nil && f.passed > searchesPerIndex*len(z.small) {
		f.scores = make(map[string]float64, len(z.small))
		for _, m := range z.small {
			f.scores[m.Member] = m.Score
		}
	}
	if f.scores == nil {
		score, ok, passed = z.searchScore(name)
		f.passed += passed
		return score, ok, passed
	}
	score, ok = f.scores[name]
	return score, ok, 0
}

// wrote counts bytes that a write to a small form has passed and shifted.
func (f *finder) wrote(bytes int64) {
	if f != nil {
		f.moved += bytes
	}
}

// addedField tells the finder that the last field of a hash is new.
func (f *finder) addedField(h *Hash) {
	if f != nil && f.hash == h && f.places != nil {
		last := len(h.small) - 1
		f.places[h.small[last].Name] = last
	}
}

// removedField tells the finder that a field was removed.
func (f *finder) removedField(h *Hash, name string) {
	if f != nil && f.hash == h {
		delete(f.places, name)
	}
}

// setScore tells the finder the new score of a member.
func (f *finder) setScore(z *SortedSet, m Scored) {
	if f != nil && f.set == z && f.scores != nil {
		f.scores[m.Member] = m.Score
	}
}

// removedScore tells the finder that a member was removed.
func (f *finder) removedScore(z *SortedSet, name string) {
	if f != nil && f.set == z {
		delete(f.scores, name)
	}
}

// fieldOf returns the value of a field for a command that may look up many fields. It counts the search as work.
func (c *Ctx) fieldOf(h *Hash, name string) (value string, ok bool) {
	c.work(stepsOf(name))
	if h.big != nil {
		return h.Get(name)
	}
	at, passed := c.find.field(h, name)
	c.work(passed / passedPerStep)
	if at < 0 {
		return "", false
	}
	return h.small[at].Value, true
}

// scoreOf returns the score of a member for a command that may look up many members. It counts the search as work.
func (c *Ctx) scoreOf(z *SortedSet, name string) (score float64, ok bool) {
	c.work(stepsOf(name))
	if z.byScore != nil {
		return z.Score(name)
	}
	score, ok, passed := c.find.score(z, name)
	c.work(passed / passedPerStep)
	return score, ok
}
