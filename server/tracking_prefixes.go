package server

import (
	"slices"
	"strings"
)

// prefix is a node of the tree of the prefixes that sessions listen to (CLIENT TRACKING … BCAST PREFIX). A
// path through the tree spells a prefix, and a node without sessions, except for the root, has several
// children. So finding the prefixes of a key takes at most one step for each byte of the key.
type prefix struct {
	edge     string    // what the node adds to its parent's text
	text     string    // the whole prefix, if sessions listen to it
	children []*prefix // sorted by the first bytes of their edges, which differ
	sessions roomy[*session, struct{}]

	// These are about the present write set, and empty between two write sets.
	keys   []int32 // changed keys: indexes of changes.list
	marked bool    // changes.prefixes has the node
	every  bool    // too much has changed: the sessions get one message for all keys
}

// child returns the index of the child whose edge begins with a byte, and whether there is one.
func (p *prefix) child(first byte) (i int, is bool) {
	return slices.BinarySearchFunc(p.children, first, func(c *prefix, b byte) int { return int(c.edge[0]) - int(b) })
}

// add makes a session listen to a prefix below p, and reports whether no session listened to it before.
func (p *prefix) add(text string, s *session) (first bool) {
	for rest := text; rest != ""; rest = rest[len(p.edge):] {
		i, is := p.child(rest[0])
		if !is {
			p.children = slices.Insert(p.children, i, &prefix{edge: rest})
		} else if n := common(p.children[i].edge, rest); n < len(p.children[i].edge) {
			p.children[i] = p.children[i].split(n)
		}
		p = p.children[i]
	}
	if first = !p.heard(); first {
		p.text = text
	}
	p.sessions.put(s, struct{}{})
	return first
}

// heard reports whether sessions listen to the prefix.
func (p *prefix) heard() bool { return len(p.sessions.m) > 0 }

// common returns how many bytes two strings have in common at their beginning.
func common(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// split puts a node for the first n bytes of the edge above p. It copies them, because the other bytes of a
// long prefix must not stay in memory when nobody listens to it any more.
func (p *prefix) split(n int) *prefix {
	above := &prefix{edge: strings.Clone(p.edge[:n]), children: []*prefix{p}}
	p.edge = p.edge[n:]
	return above
}

// remove reverses add, and reports whether nobody listens to the prefix any more.
func (p *prefix) remove(text string, s *session) (last bool) {
	path := []*prefix{p}
	for text != "" {
		i, is := p.child(text[0])
		if !is || !strings.HasPrefix(text, p.children[i].edge) {
			return false
		}
		p = p.children[i]
		path, text = append(path, p), text[len(p.edge):]
	}
	if !p.heard() {
		return false
	}
	if p.sessions.drop(s); p.heard() {
		return false
	}
	p.text, p.sessions = "", roomy[*session, struct{}]{}
	// Remove a node that is needed no more; then its parent may be needed no more, either.
	for n := len(path) - 1; n > 0 && !path[n].heard() && len(path[n].children) < 2; n-- {
		path[n-1].replace(path[n])
	}
	return true
}

// replace puts the only child of a child in the child's place, or removes a child that has none.
func (p *prefix) replace(c *prefix) {
	i, _ := p.child(c.edge[0])
	if len(c.children) == 0 {
		p.children = slices.Delete(p.children, i, i+1)
		return
	}
	only := c.children[0]
	only.edge = c.edge + only.edge
	p.children[i] = only
}

// of calls do for p and for the nodes below it, for each one that has sessions and whose text is a prefix of key.
func (p *prefix) of(key string, do func(*prefix)) {
	for {
		if p.heard() {
			do(p)
		}
		if key == "" {
			return
		}
		i, is := p.child(key[0])
		if !is || !strings.HasPrefix(key, p.children[i].edge) {
			return
		}
		p = p.children[i]
		key = key[len(p.edge):]
	}
}
