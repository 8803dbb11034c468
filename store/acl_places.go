package store

import "strings"

// places tells where names stand in a list that rules make longer. A user may have as many of
// them as a command holds, so that no rule looks through them. It is made when the list is
// first asked for a name, and dropped when the user is complete.
type places map[string]int

// find returns where a name stands in a list of n, of which nth returns one.
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

// lowerASCII is what strcasecmp makes of a name.
func lowerASCII(s string) string {
	b := []byte(s)
	for i, c := range b {
		b[i] = lower(c, true)
	}
	return string(b)
}

// SizeOfRules is about what rules of ACL SETUSER make: to be asked before they are applied.
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

// selectorRules is how many rules say the least of a selector.
const selectorRules = 3
