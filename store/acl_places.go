package store

import (
	"strings"

	"github.com/lockstep-io/lockstep/store/redistext"
)

// places maps the names in a list to their indices: one ACL SETUSER may give very many names.
type places map[string]int

// find returns the index of a name in a list of n names; the function nth returns the name at an index.
func (p *places) find(name string, n int, nth func(i int) string) (at int, known bool) {
	if *p == nil {
		*p = make(places, n)
		for i := range n {
			(*p)[nth(i)] = i
		}
	}
	at, known = (*p)[name]
	return at, known
}

// lowerASCII lowers a name as strcasecmp compares it: ASCII letters only.
func lowerASCII(s string) string {
	b := []byte(s)
	for i, c := range b {
		b[i] = redistext.Lower(c, true)
	}
	return string(b)
}

// sameWord reports whether two names of the same length are equal for strcasecmp, which ignores the case of ASCII letters.
func sameWord(a, b string) bool {
	for i := range len(a) {
		if redistext.Lower(a[i], true) != redistext.Lower(b[i], true) {
			return false
		}
	}
	return true
}

// SizeOfRules estimates the memory that rules of ACL SETUSER will take once they are applied.
func SizeOfRules(rules []string) int64 {
	n := int64(0)
	for _, rule := range rules {
		n += ruleSize + copiesOfRules*int64(len(rule))
		if strings.HasPrefix(rule, "(") {
			n += selectorSize + selectorRules*ruleSize
		}
	}
	return n
}

// selectorRules is the number of rules that describe the smallest selector.
const selectorRules = 3
