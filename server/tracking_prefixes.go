package server

import (
	"slices"
	"strings"
)

// prefix is a node of the radix tree of the prefixes that sessions listen to. Every node except the root has sessions or several children.
type prefix struct {
	edge     string    // what the node adds to its parent's text
	text     string    // the whole prefix, if sessions listen to it
	children []*prefix // sorted by the first bytes of their edges, which differ
	sessions roomy[*session, struct{}]

	// These fields are about the write set that is being applied. Between two write sets they are zero.
	keys   []int32 // the changed keys with this prefix, as indexes in changes.list
	marked bool    // changes.prefixes contains this node
	every  bool    // too much has changed: the sessions are told that all keys may have changed
}

// child returns the index of the child whose edge begins with a byte, or where such a child would belong.
func (p *prefix) child(first byte) (i int, is bool) {
	return slices.BinarySearchFunc(p.children, first, func(c *prefix, b byte) int { return int(c.edge[0]) - int(b) })
}

// add makes a session listen to a prefix, and reports whether no session listened to it before. p is the root of the tree.
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

// heard reports whether sessions listen to the prefix that p stands for.
func (p *prefix) heard() bool { return len(p.sessions.m) > 0 }

// common returns how many bytes two strings have in common at their beginning.
func common(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// split makes a new parent for p, whose edge is the first n bytes of p's edge, copied so that a long prefix does not stay in memory.
func (p *prefix) split(n int) *prefix {
	above := &prefix{edge: strings.Clone(p.edge[:n]), children: []*prefix{p}}
	p.edge = p.edge[n:]
	return above
}

// remove reverses add, and reports whether the session was the last one that listened to the prefix.
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
	// Replace a node that has neither sessions nor several children. After that, the same may be true of its parent.
	for n := len(path) - 1; n > 0 && !path[n].heard() && len(path[n].children) < 2; n-- {
		path[n-1].replace(path[n])
	}
	return true
}

// replace takes the child c out of the tree. If c has a child (it may have one at most), that child takes its place.
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

// of(key, do) calls the function do for each node that has sessions and whose text is a prefix of key. It must be called on the root.
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
