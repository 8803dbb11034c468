package store

import (
	"slices"
	"strings"

	"github.com/lockstep-io/lockstep/store/redistext"
)

// namePattern is a pattern of keys or channels that a selector allows.
type namePattern struct {
	pattern string
	access  keyAccess // which uses of keys the pattern allows; all bits are set in a pattern of channels
}

// patternSet finds out whether one of many patterns matches a name. A binary search covers patterns whose only special character is a final
// star.
type patternSet struct {
	list   []namePattern
	sorted []int32    // the indices of all patterns, sorted by text
	heads  [4][]int32 // for each needed access: the patterns whose only special character is a star at the end, sorted by head (shortest)
	globs  []int32    // the indices of the patterns that must be tried one by one
}

// newPatternSet returns the set of some patterns, or nil for none.
func newPatternSet(list []namePattern) *patternSet {
	if len(list) == 0 {
		return nil
	}
	s := &patternSet{list: list, sorted: make([]int32, 0, len(list))}
	var heads []int32
	for i := range list {
		s.sorted = append(s.sorted, int32(i))
		switch at := strings.IndexAny(list[i].pattern, `*?[\`); {
		case at < 0:
		case at == len(list[i].pattern)-1 && list[i].pattern[at] == '*':
			heads = append(heads, int32(i))
		default:
			s.globs = append(s.globs, int32(i))
		}
	}
	slices.SortFunc(s.sorted, func(a, b int32) int { return strings.Compare(list[a].pattern, list[b].pattern) })
	slices.SortFunc(heads, func(a, b int32) int { return strings.Compare(s.head(a), s.head(b)) })
	for need := range s.heads {
		s.heads[need] = s.shortest(heads, keyAccess(need))
	}
	return s
}

// head returns the text before the star of a pattern that has one star, at its end.
func (s *patternSet) head(i int32) string { return s.list[i].pattern[:len(s.list[i].pattern)-1] }

// shortest returns the patterns that give the needed access and whose head begins with no other head. heads must be sorted.
func (s *patternSet) shortest(heads []int32, need keyAccess) (list []int32) {
	if all := s.heads[0]; need > 0 && !slices.ContainsFunc(heads, func(i int32) bool { return s.list[i].access&need != need }) {
		return all
	}
	for _, i := range heads {
		if s.list[i].access&need == need && (len(list) == 0 || !strings.HasPrefix(s.head(i), s.head(list[len(list)-1]))) {
			list = append(list, i)
		}
	}
	return list
}

// matches reports whether a pattern that gives the needed access matches a name. It subtracts its steps from *left, and returns
// false when no steps remain.
func (s *patternSet) matches(name string, need keyAccess, left *int) bool {
	*left--
	if s == nil {
		return false
	}
	if s.begins(name, need) {
		return true
	}
	if p := s.find(name); p != nil && p.access&need == need && !strings.ContainsAny(p.pattern, `*?[\`) {
		return true
	}
	for _, i := range s.globs {
		if *left--; *left <= 0 {
			return false
		}
		if p := &s.list[i]; p.access&need == need {
			ok, steps := redistext.MatchWithin(p.pattern, name, *left)
			if *left -= steps; ok {
				return true
			}
		}
	}
	return false
}

// begins reports whether a name begins with a head in s.heads[need]. Only the greatest head up to the name can be its prefix: if a smaller
// one were, the greatest would begin with it. But no head begins with another.
func (s *patternSet) begins(name string, need keyAccess) bool {
	heads := s.heads[need]
	at, same := slices.BinarySearchFunc(heads, name, func(i int32, name string) int { return strings.Compare(s.head(i), name) })
	if !same {
		at--
	}
	return name != "" && at >= 0 && strings.HasPrefix(name, s.head(heads[at])) // an empty name matches no pattern, not even a star
}

// find returns the pattern whose text equals text, or nil.
func (s *patternSet) find(text string) *namePattern {
	if s == nil {
		return nil
	}
	at, known := slices.BinarySearchFunc(s.sorted, text, func(i int32, text string) int { return strings.Compare(s.list[i].pattern, text) })
	if !known {
		return nil
	}
	return &s.list[s.sorted[at]]
}
