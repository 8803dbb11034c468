package store

import (
	"sort"
	"strings"
)

// Scored is a member of a sorted set with its score.
type Scored struct {
	Member string
	Score  float64
}

// scoredLess is the order of a sorted set: by score, then by member.
func scoredLess(a, b Scored) bool {
	if a.Score != b.Score {
		return a.Score < b.Score
	}
	return a.Member < b.Member
}

// scoredName is a member with its score, in SortedSet.byName. That tree is in the order of member
// hashes, which ZSCAN needs.
type scoredName struct {
	member
	score float64
}

func scoredNameLess(a, b scoredName) bool { return memberLess(a.member, b.member) }

// SortedSet is the value of a sorted set key: a slice in its order or, if large, a tree in that order and one by member.
type SortedSet struct {
	small   []Scored
	byScore *tree[Scored] // nil in the small form
	byName  *tree[scoredName]
	bytes   int64 // estimated memory of the members and the trees
}

// Len returns the number of members.
func (z *SortedSet) Len() int {
	if z.byScore != nil {
		return z.byScore.Len()
	}
	return len(z.small)
}

// Compact reports whether the set has its small form.
func (z *SortedSet) Compact() bool { return z.byScore == nil }

func (z *SortedSet) clone() collection {
	if z.byScore != nil {
		return &SortedSet{byScore: z.byScore.Copy(), byName: z.byName.Copy(), bytes: z.bytes}
	}
	return &SortedSet{small: append(make([]Scored, 0, len(z.small)+1), z.small...), bytes: z.bytes}
}

func (z *SortedSet) size() int64 { return z.bytes }

// memberSize returns the estimated memory of a member.
func (z *SortedSet) memberSize(name string) int64 {
	if z.byScore != nil {
		return treeScoredSize + allocated(len(name))
	}
	return scoredSize + allocated(len(name))
}

// Score returns the score of a member.
func (z *SortedSet) Score(name string) (score float64, ok bool) {
	if z.byScore != nil {
		m, ok := z.byName.Get(scoredName{member: member{hashOf(name), name}})
		return m.score, ok
	}
	score, ok, _ = z.searchScore(name)
	return score, ok
}

// searchScore is Score for the small form; it also returns how many members it has passed.
func (z *SortedSet) searchScore(name string) (score float64, ok bool, passed int) {
	for i := range z.small {
		if z.small[i].Member == name {
			return z.small[i].Score, true, i
		}
	}
	return 0, false, len(z.small)
}

// scoreForWrite is Score for a write. The finder f, which may be nil, makes the search faster and counts its bytes.
func (z *SortedSet) scoreForWrite(name string, f *finder) (score float64, ok bool) {
	if z.byScore != nil {
		return z.Score(name)
	}
	score, ok, passed := f.score(z, name)
	f.wrote(int64(passed) * scoredBytes)
	return score, ok
}

// at returns the member with a rank. The rank must exist.
func (z *SortedSet) at(rank int) Scored {
	if z.byScore != nil {
		m, _ := z.byScore.GetAt(rank)
		return m
	}
	return z.small[rank]
}

// search returns the number of members for which before is true. They must be the first ones.
func (z *SortedSet) search(before func(Scored) bool) int {
	return sort.Search(z.Len(), func(i int) bool { return !before(z.at(i)) })
}

// Rank returns the rank of m, or the rank that m would get if it were added.
func (z *SortedSet) Rank(m Scored) int {
	return z.search(func(x Scored) bool { return scoredLess(x, m) })
}

// Each calls fn for the members from a rank on until fn returns false.
func (z *SortedSet) Each(from int, fn func(Scored) bool) {
	if z.byScore != nil {
		if first, ok := z.byScore.GetAt(from); ok {
			z.byScore.Ascend(first, fn)
		}
		return
	}
	for i := from; i < len(z.small) && fn(z.small[i]); i++ {
	}
}

// eachBack is Each in the direction of lower ranks.
func (z *SortedSet) eachBack(from int, fn func(Scored) bool) {
	if z.byScore != nil {
		if first, ok := z.byScore.GetAt(from); ok {
			z.byScore.Descend(first, fn)
		}
		return
	}
	for i := from; i >= 0 && fn(z.small[i]); i-- {
	}
}

// ascend calls fn for the members from a hash on, in hash order, until fn returns false. It requires the large form.
func (z *SortedSet) ascend(from uint64, fn func(scoredName) bool) {
	z.byName.Ascend(scoredName{member: member{hash: from}}, fn)
}

// set adds a member or changes its score, which must not be NaN. It copies a new name. f may be nil.
func (z *SortedSet) set(name string, score float64, form *forms, f *finder) {
	old, had := z.scoreForWrite(name, f)
	if had && old == score {
		return // as in Redis, 0 stays 0 when set to -0
	}
	if z.byScore == nil && !had && (len(z.small) >= form.scoreEntries || len(name) > form.scoreValue) {
		z.grow()
	}
	if !had {
		z.bytes += z.memberSize(name)
	}
	if z.byScore == nil {
		if score == 0 {
			score = 0 // Redis's small form has no -0
		}
		if had {
			name = z.removeSmall(Scored{name, old}, f)
		} else {
			name = strings.Clone(name)
		}
		m := Scored{name, score}
		at := z.Rank(m)
		f.wrote(int64(len(z.small)-at) * scoredBytes)
		z.small = insertAt(z.small, at, m)
		f.setScore(z, m)
		return
	}
	probe := scoredName{member: member{hashOf(name), name}}
	if had {
		known, _ := z.byName.Get(probe)
		z.byScore.Delete(Scored{name, old})
		probe.name = known.name
	} else {
		probe.name = strings.Clone(name)
	}
	probe.score = score
	z.byName.Set(probe)
	z.byScore.Set(Scored{probe.name, score})
}

// grow converts the set to the large form. As in Redis, a set never returns to the small form.
func (z *SortedSet) grow() {
	z.byScore = newTree(scoredLess)
	z.byName = newTree(scoredNameLess)
	z.bytes += 2*treeSize + int64(len(z.small))*(treeScoredSize-scoredSize)
	for _, m := range z.small {
		z.byScore.Load(m)
		z.byName.Set(scoredName{member{hashOf(m.Member), m.Member}, m.Score})
	}
	z.small = nil
}

// removeSmall removes an existing member from the small form and returns the stored copy of its
// name.
func (z *SortedSet) removeSmall(m Scored, f *finder) string {
	i := z.Rank(m)
	f.wrote(int64(len(z.small)-i) * scoredBytes)
	var kept Scored
	z.small, kept = removeAt(z.small, i)
	return kept.Member
}

// remove removes a member, if it exists. f may be nil.
func (z *SortedSet) remove(name string, f *finder) {
	score, ok := z.scoreForWrite(name, f)
	if ok {
		z.bytes -= z.memberSize(name)
	}
	switch {
	case !ok:
	case z.byScore == nil:
		f.removedScore(z, name)
		z.removeSmall(Scored{name, score}, f)
	default:
		z.byScore.Delete(Scored{name, score})
		z.byName.Delete(scoredName{member: member{hashOf(name), name}})
	}
}
