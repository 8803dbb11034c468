package store

import (
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-io/lockstep/store/redistext"
)

// MemberSet is the value of a set key: a slice of few integers, ascending as Redis replies, or a tree in hash order for SSCAN.
type MemberSet struct {
	ints []int64
	tree *tree[member] // nil in the integer form

	bytes int64 // the sum of member.size of the tree's members
}

type member struct {
	hash uint64
	name string
}

func memberLess(a, b member) bool {
	if a.hash != b.hash {
		return a.hash < b.hash
	}
	return a.name < b.name
}

// Len returns the number of members.
func (s *MemberSet) Len() int {
	if s.tree != nil {
		return s.tree.Len()
	}
	return len(s.ints)
}

// Compact reports whether the set has its integer form.
func (s *MemberSet) Compact() bool { return s.tree == nil }

func (s *MemberSet) clone() collection {
	if s.tree != nil {
		return &MemberSet{tree: s.tree.Copy(), bytes: s.bytes}
	}
	return &MemberSet{ints: append(make([]int64, 0, len(s.ints)+1), s.ints...)}
}

func (s *MemberSet) size() int64 {
	if s.tree != nil {
		return treeSize + s.bytes
	}
	return intSize * int64(len(s.ints))
}

func (m member) size() int64 { return treeMemberSize + allocated(len(m.name)) }

// Has reports whether name is a member.
func (s *MemberSet) Has(name string) bool {
	if s.tree != nil {
		_, ok := s.tree.Get(member{hashOf(name), name})
		return ok
	}
	n, ok := redistext.ParseInt(stringBytes(name))
	if ok {
		_, ok = slices.BinarySearch(s.ints, n)
	}
	return ok
}

// Each calls fn for every member until fn returns false.
func (s *MemberSet) Each(fn func(name string) bool) {
	if s.tree != nil {
		s.tree.Scan(func(m member) bool { return fn(m.name) })
		return
	}
	for _, n := range s.ints {
		if !fn(strconv.FormatInt(n, 10)) {
			return
		}
	}
}

// ascend calls fn for the members whose hashes are at least from, in order. The set must have its tree form.
func (s *MemberSet) ascend(from uint64, fn func(member) bool) {
	s.tree.Ascend(member{hash: from}, fn)
}

// at returns the member at an index in the order of Each.
func (s *MemberSet) at(i int) string {
	if s.tree != nil {
		m, _ := s.tree.GetAt(i)
		return m.name
	}
	return strconv.FormatInt(s.ints[i], 10)
}

// add adds a member, if it is new. It copies the name where necessary.
func (s *MemberSet) add(name string, form *forms) {
	if s.tree == nil {
		n, ok := redistext.ParseInt(stringBytes(name))
		if ok {
			i, had := slices.BinarySearch(s.ints, n)
			if had {
				return
			}
			s.ints = insertAt(s.ints, i, n)
			if len(s.ints) > form.setEntries {
				s.grow()
			}
			return
		}
		s.grow()
	}
	m := member{hashOf(name), name}
	if _, had := s.tree.Get(m); !had {
		m.name = strings.Clone(name)
		s.tree.Set(m)
		s.bytes += m.size()
	}
}

// grow converts the set to the tree form. As in Redis, a set never returns to the integer form.
func (s *MemberSet) grow() {
	s.tree = newTree(memberLess)
	for _, n := range s.ints {
		name := strconv.FormatInt(n, 10)
		m := member{hashOf(name), name}
		s.tree.Set(m)
		s.bytes += m.size()
	}
	s.ints = nil
}

func (s *MemberSet) remove(name string) {
	if s.tree != nil {
		if m, had := s.tree.Delete(member{hashOf(name), name}); had {
			s.bytes -= m.size()
		}
		return
	}
	if n, ok := redistext.ParseInt(stringBytes(name)); ok {
		if i, had := slices.BinarySearch(s.ints, n); had {
			s.ints, _ = removeAt(s.ints, i)
		}
	}
}
