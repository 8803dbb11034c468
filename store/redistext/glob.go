// Package redistext reads and writes text as Redis does: patterns, numbers, and lines of arguments.
package redistext

import (
	"math"
	"strings"
)

// Match reports whether s matches a glob pattern, by Redis's rules. A match that needs too many steps fails (globSteps, globMost).
func Match(pattern, s string) bool {
	ok, _ := MatchSteps(pattern, s)
	return ok
}

// MatchWithin is MatchSteps, but gives up after limit steps. It then returns false and a number of steps that is greater than limit.
func MatchWithin(pattern, s string, limit int) (ok bool, steps int) {
	return globMatch(pattern, s, false, limit)
}

// MatchSteps is Match, but also returns the number of steps. A step takes a few nanoseconds.
func MatchSteps(pattern, s string) (ok bool, steps int) {
	return MatchWithin(pattern, s, math.MaxInt)
}

// MatchFold is Match, but ignores the case of ASCII letters.
func MatchFold(pattern, s string) bool {
	ok, _ := MatchFoldWithin(pattern, s, math.MaxInt)
	return ok
}

// MatchFoldWithin is MatchWithin, but ignores the case of ASCII letters.
func MatchFoldWithin(pattern, s string, limit int) (ok bool, steps int) {
	return globMatch(pattern, s, true, limit)
}

// globSteps limits a match to globSteps steps for each byte of s, plus globSteps*globSteps. Only an attacker's patterns need more.
const globSteps = 64

// globMost also limits a match: to a step for each byte of s plus globMost, some 20 ms.
const globMost = 4 << 20

// A step reads globLook bytes of a pattern, or searches globSearch bytes for a literal text.
const (
	globLook   = 4
	globSearch = 16
)

// globMatch backtracks to the last star only: a longer run of an earlier star can never match more.
func globMatch(pattern, s string, fold bool, limit int) (ok bool, steps int) {
	p, i := 0, 0
	star, from := -1, 0 // where the pattern continues after the last star, and where the run of that star ends in s
	var after finder    // the literal text after the star
	most := min(globSteps*(len(s)+globSteps), len(s)+globMost, limit)
	for ; i < len(s); steps++ {
		near := globNear(pattern, p, most-steps)
		if p < len(pattern) && pattern[p] == '*' {
			star, from = globStars(near, p), i
			text := ""
			if !fold {
				text = globText(near[star:], len(s)-i)
			}
			after = finder{text: text}
			read := star + len(text)
			steps += (read - p) / globLook
			p = star
			switch {
			case len(text) > len(s)-i, read == len(near) && read < len(pattern):
				return false, steps
			case read == len(pattern):
				return strings.HasSuffix(s[i:], text), steps
			}
		} else {
			if p < len(pattern) {
				next, ok := globByte(near, p, s[i], fold)
				steps += (next - p) / globLook // a long class takes several steps
				if next == len(near) && next < len(pattern) {
					return false, steps
				}
				if ok {
					p = next
					i++
					continue
				}
			}
			from++
		}
		if star < 0 {
			return false, steps
		}
		at, made := after.within(s[min(from, len(s)):], most-steps)
		steps += made
		if at < 0 || steps > most {
			return false, steps
		}
		from += at
		p, i = star+len(after.text), from+len(after.text)
	}
	if len(s) == 0 {
		return len(pattern) == 0, steps
	}
	end := globStars(globNear(pattern, p, most-steps), p)
	return end == len(pattern), steps + (end-p)/globLook
}

// globNear cuts off what a match cannot read behind index p in left+1 steps.
func globNear(pattern string, p, left int) string {
	return pattern[:p+min(len(pattern)-p, globLook*(min(max(left, 0), len(pattern))+1))]
}

// globStars returns the index of the first byte from p on that is not a star.
func globStars(pattern string, p int) int {
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p
}

// globText returns the literal text at the start of a pattern, cut off behind most+1 bytes.
func globText(pattern string, most int) string {
	pattern = pattern[:min(len(pattern), most+1)]
	if i := strings.IndexAny(pattern, `*?[\`); i >= 0 {
		return pattern[:i]
	}
	return pattern
}

// globByte matches the pattern element at p with one byte. It returns the index of the next
// element.
func globByte(pattern string, p int, c byte, fold bool) (next int, ok bool) {
	switch pattern[p] {
	case '?':
		return p + 1, true
	case '[':
		return globClass(pattern, p+1, c, fold)
	case '\\':
		if p+1 < len(pattern) {
			p++
		}
	}
	return p + 1, Lower(pattern[p], fold) == Lower(c, fold)
}

// globClass matches one byte with a class whose opening bracket is just before index p. It returns the index behind the class.
func globClass(pattern string, p int, c byte, fold bool) (next int, ok bool) {
	negated := p < len(pattern) && pattern[p] == '^'
	if negated {
		p++
	}
	for ; p < len(pattern) && pattern[p] != ']'; p++ {
		switch {
		case pattern[p] == '\\' && p+1 < len(pattern):
			p++
			ok = ok || pattern[p] == c // as in Redis, case matters even if fold is true
		case p+2 < len(pattern) && pattern[p+1] == '-':
			ok = ok || globRange(pattern[p], pattern[p+2], c, fold)
			p += 2
		default:
			ok = ok || Lower(pattern[p], fold) == Lower(c, fold)
		}
	}
	return min(p+1, len(pattern)), ok != negated
}

// globRange reports whether c is in the range from a to b. Bytes compare as C's signed char, as in Redis.
func globRange(a, b, c byte, fold bool) bool {
	if int8(a) > int8(b) {
		a, b = b, a
	}
	a, b, c = Lower(a, fold), Lower(b, fold), Lower(c, fold)
	return int8(a) <= int8(c) && int8(c) <= int8(b)
}

// Lower returns c, in lower case if fold is true and c is an ASCII letter.
func Lower(c byte, fold bool) byte {
	if fold && 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}
