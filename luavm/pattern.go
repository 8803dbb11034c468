package luavm

import (
	"strings"

	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/clib"
)

// This file matches Lua patterns as lstrlib.c does: gopher-lua's matcher has
// other error texts, and no bound on its backtracking.

const (
	maxCaptures     = 32
	captureOpen     = -1    // as the length of a capture: its end is not matched yet
	capturePosition = -2    // as the length of a capture: it is a position capture, ()
	matchDepth      = 10000 // limit on nested calls of match, which bounds Go's stack
)

// matcher is one match of a pattern against a subject.
type matcher struct {
	e        *Engine
	L        *lua.LState
	s, p     string                              // the subject and the pattern
	level    int                                 // number of captures that have begun
	depth    int                                 // nested calls of match
	captures [maxCaptures]struct{ start, n int } // n is a length, captureOpen or capturePosition
}

func (m *matcher) fail(msg string) { m.e.throw(m.L, msg) }

// classEnd returns the index in the pattern after the single-character class at index p.
func (m *matcher) classEnd(p int) int {
	from, c := p, m.p[p]
	p++
	switch c {
	case '%':
		if p >= len(m.p) {
			m.fail("malformed pattern (ends with '%')")
		}
		return p + 1
	case '[':
		if p < len(m.p) && m.p[p] == '^' {
			p++
		}
		for first := true; first || p >= len(m.p) || m.p[p] != ']'; first = false {
			if p >= len(m.p) {
				m.fail("malformed pattern (missing ']')")
			}
			c := m.p[p]
			p++
			if c == '%' && p < len(m.p) {
				p++ // skips escapes such as %]
			}
		}
		m.read(p - from)
		return p + 1
	}
	return p
}

// inStep is how many bytes of a set, or of a text that is searched, are read in the time of an instruction.
const inStep = 16

// read counts the work of reading n bytes of a set. Most sets are so short that reading them costs nothing.
func (m *matcher) read(n int) {
	if n >= inStep {
		m.e.work(n / inStep)
	}
}

// single reports whether one character matches the class at p, which ends at ep.
func (m *matcher) single(c byte, p, ep int) bool {
	switch m.p[p] {
	case '.':
		return true
	case '%':
		return matchClass(c, m.p[p+1])
	case '[':
		return m.matchSet(c, p, ep-1)
	}
	return m.p[p] == c
}

// matchSet reports whether a character matches the set that begins at p; end is the
// index of its closing bracket.
func (m *matcher) matchSet(c byte, p, end int) bool {
	found := true
	m.read(end - p)
	if m.p[p+1] == '^' {
		found = false
		p++
	}
	for p++; p < end; p++ {
		switch {
		case m.p[p] == '%':
			p++
			if matchClass(c, m.p[p]) {
				return found
			}
		case p+2 < end && m.p[p+1] == '-':
			p += 2
			if m.p[p-2] <= c && c <= m.p[p] {
				return found
			}
		case m.p[p] == c:
			return found
		}
	}
	return !found
}

// matchClass reports whether a character matches the class that is written as % and the byte in the argument class, for example %a.
func matchClass(c, class byte) bool {
	var is bool
	switch class | 0x20 {
	case 'a':
		is = clib.IsAlpha(c)
	case 'c':
		is = c < 32 || c == 127
	case 'd':
		is = clib.IsDigit(c)
	case 'l':
		is = 'a' <= c && c <= 'z'
	case 'p':
		is = clib.IsPunct(c)
	case 's':
		is = clib.IsSpace(c)
	case 'u':
		is = 'A' <= c && c <= 'Z'
	case 'w':
		is = clib.IsAlpha(c) || clib.IsDigit(c)
	case 'x':
		is = clib.IsDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f'
	case 'z':
		is = c == 0
	default:
		return class == c
	}
	if !clib.IsAlpha(class) {
		return class == c
	}
	return is == (class&0x20 != 0)
}

// match matches the pattern from p on with the subject from s on. It returns the match's end, or -1.
func (m *matcher) match(s, p int) int {
	m.depth++
	if m.depth > matchDepth {
		m.fail("pattern too complex")
	}
	defer func() { m.depth-- }()
	for p < len(m.p) {
		m.e.work(1)
		switch m.p[p] {
		case '(':
			if p+1 < len(m.p) && m.p[p+1] == ')' {
				return m.startCapture(s, p+2, capturePosition)
			}
			return m.startCapture(s, p+1, captureOpen)
		case ')':
			return m.endCapture(s, p+1)
		case '%':
			if p+1 >= len(m.p) {
				break
			}
			switch next := m.p[p+1]; {
			case next == 'b':
				if s = m.matchBalance(s, p+2); s < 0 {
					return -1
				}
				p += 4
				continue
			case next == 'f':
				end, ok := m.frontier(s, p+2)
				if !ok {
					return -1
				}
				p = end
				continue
			case clib.IsDigit(next):
				if s = m.matchCapture(s, next); s < 0 {
					return -1
				}
				p += 2
				continue
			}
		case '$':
			if p+1 == len(m.p) {
				if s == len(m.s) {
					return s
				}
				return -1
			}
		}
		next, end, done := m.item(s, p)
		if done {
			return end
		}
		s, p = end, next
	}
	return s
}

// item matches the pattern item at p. If done, end is the end of the whole match, or -1. Otherwise matching goes on at next and end.
func (m *matcher) item(s, p int) (next, end int, done bool) {
	ep := m.classEnd(p)
	hit := s < len(m.s) && m.single(m.s[s], p, ep)
	suffix := byte(0)
	if ep < len(m.p) {
		suffix = m.p[ep]
	}
	switch suffix {
	case '?':
		if hit {
			if r := m.match(s+1, ep+1); r >= 0 {
				return 0, r, true
			}
		}
		return ep + 1, s, false
	case '*':
		return 0, m.maxExpand(s, p, ep), true
	case '+':
		if !hit {
			return 0, -1, true
		}
		return 0, m.maxExpand(s+1, p, ep), true
	case '-':
		return 0, m.minExpand(s, p, ep), true
	}
	if !hit {
		return 0, -1, true
	}
	return ep, s + 1, false
}

func (m *matcher) maxExpand(s, p, ep int) int {
	i := 0
	for s+i < len(m.s) && m.single(m.s[s+i], p, ep) {
		i++
		m.e.work(1)
	}
	for ; i >= 0; i-- {
		if r := m.match(s+i, ep+1); r >= 0 {
			return r
		}
	}
	return -1
}

func (m *matcher) minExpand(s, p, ep int) int {
	for {
		if r := m.match(s, ep+1); r >= 0 {
			return r
		}
		if s >= len(m.s) || !m.single(m.s[s], p, ep) {
			return -1
		}
		s++
		m.e.work(1)
	}
}

func (m *matcher) startCapture(s, p, what int) int {
	if m.level >= maxCaptures {
		m.fail("too many captures")
	}
	m.captures[m.level].start, m.captures[m.level].n = s, what
	m.level++
	r := m.match(s, p)
	if r < 0 {
		m.level--
	}
	return r
}

func (m *matcher) endCapture(s, p int) int {
	l := -1
	for i := m.level - 1; i >= 0; i-- {
		if m.captures[i].n == captureOpen {
			l = i
			break
		}
	}
	if l < 0 {
		m.fail("invalid pattern capture")
	}
	m.captures[l].n = s - m.captures[l].start
	r := m.match(s, p)
	if r < 0 {
		m.captures[l].n = captureOpen
	}
	return r
}

func (m *matcher) matchBalance(s, p int) int {
	if p+1 >= len(m.p) {
		m.fail("unbalanced pattern")
	}
	if s >= len(m.s) || m.s[s] != m.p[p] {
		return -1
	}
	open, closing := m.p[p], m.p[p+1]
	depth := 1
	for i := s + 1; i < len(m.s); i++ {
		m.e.work(1)
		switch m.s[i] {
		case closing:
			if depth--; depth == 0 {
				return i + 1
			}
		case open:
			depth++
		}
	}
	return -1
}

func (m *matcher) frontier(s, p int) (next int, ok bool) {
	if p >= len(m.p) || m.p[p] != '[' {
		m.fail("missing '[' after '%f' in pattern")
	}
	ep := m.classEnd(p)
	before, at := byte(0), byte(0)
	if s > 0 {
		before = m.s[s-1]
	}
	if s < len(m.s) {
		at = m.s[s]
	}
	return ep, !m.matchSet(before, p, ep-1) && m.matchSet(at, p, ep-1)
}

func (m *matcher) matchCapture(s int, digit byte) int {
	l := int(digit) - '1'
	if l < 0 || l >= m.level || m.captures[l].n == captureOpen {
		m.fail("invalid capture index")
	}
	c := m.captures[l]
	if c.n == capturePosition {
		return -1 // C takes capturePosition for a length, a huge one, so nothing matches
	}
	n := c.n
	m.e.work(n / inStep)
	if len(m.s)-s >= n && m.s[c.start:c.start+n] == m.s[s:s+n] {
		return s + n
	}
	return -1
}

// capture returns capture i of the match m.s[s:e]. If the pattern has no captures, capture 0 is the whole match.
func (m *matcher) capture(i, s, e int) lua.LValue {
	if i >= m.level {
		if i != 0 {
			m.fail("invalid capture index")
		}
		return m.e.own(m.s[s:e])
	}
	c := m.captures[i]
	switch c.n {
	case captureOpen:
		m.fail("unfinished capture")
	case capturePosition:
		return lua.LNumber(c.start + 1)
	}
	return m.e.own(m.s[c.start : c.start+c.n])
}

// push pushes the captures of the match m.s[s:e] and returns their number. Without captures, whole makes it push the whole match.
func (m *matcher) push(s, e int, whole bool) int {
	n := m.level
	if n == 0 && whole {
		n = 1
	}
	for i := range n {
		m.L.Push(m.capture(i, s, e))
	}
	return n
}

// workPattern counts the work of searching a whole pattern for its end and for special characters, before it is matched.
func (e *Engine) workPattern(p string) {
	if len(p) > inStep {
		e.work(len(p) / inStep)
	}
}

// hasSpecials reports whether a pattern is more than plain text.
func hasSpecials(p string) bool { return strings.ContainsAny(p, "^$*+?.([%-") }
