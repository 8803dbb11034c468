package store

import "strings"

// Match reports whether s matches a glob pattern as Redis understands it. A
// star stands for any run of bytes, a question mark for one byte, [a-z] for a
// byte of the class, [^a-z] for one outside it; a backslash, also in a class,
// takes away the special meaning of the byte after it. A class that is not
// closed ends with the pattern. An empty s is matched by an empty pattern
// only, not even by a star.
func Match(pattern, s string) bool {
	ok, _ := MatchSteps(pattern, s)
	return ok
}

// MatchSteps is Match that tells how many steps it took, some nanoseconds each.
func MatchSteps(pattern, s string) (ok bool, steps int) { return globMatch(pattern, s, false) }

// MatchFold is Match without regard to the case of ASCII letters.
func MatchFold(pattern, s string) bool {
	ok, _ := globMatch(pattern, s, true)
	return ok
}

// globSteps is how many steps a match may take for each byte of s. Only patterns with long
// runs of question marks or classes take more, those that nobody writes but to keep others waiting.
const globSteps = 64

// globMatch goes back to the last star only: what an earlier star could make
// of a longer run, the last one can as well. It looks for the text behind a star as a whole.
// What takes more than globSteps is no match.
func globMatch(pattern, s string, fold bool) (ok bool, steps int) {
	p, i := 0, 0
	star, from, text := -1, 0, "" // the pattern after the last star, where its run ends, the text that it begins with
	most := globSteps * (len(s) + globSteps)
	for ; i < len(s); steps++ {
		if p < len(pattern) && pattern[p] == '*' {
			for p < len(pattern) && pattern[p] == '*' {
				p++
			}
			star, from = p, i
			if text = ""; !fold {
				text = globText(pattern[p:])
			}
			if p+len(text) == len(pattern) {
				return strings.HasSuffix(s[i:], text), steps
			}
		} else {
			if p < len(pattern) {
				next, ok := globByte(pattern, p, s[i], fold)
				steps += (next - p) / 8 // a long class
				if ok {
					p = next
					i++
					continue
				}
			}
			from++
		}
		at := strings.Index(s[min(from, len(s)):], text)
		steps += len(text) / globSteps
		if star < 0 || at < 0 || steps > most {
			return false, steps
		}
		from += at
		p, i = star+len(text), from+len(text)
	}
	if len(s) == 0 {
		return len(pattern) == 0, steps
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern), steps
}

// globText is the text that a pattern begins with.
func globText(pattern string) string {
	if i := strings.IndexAny(pattern, `*?[\`); i >= 0 {
		return pattern[:i]
	}
	return pattern
}

// globByte matches the element of the pattern at p with one byte and returns
// where the next element begins.
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
	return p + 1, lower(pattern[p], fold) == lower(c, fold)
}

// globClass matches a class whose opening bracket stands before p.
func globClass(pattern string, p int, c byte, fold bool) (next int, ok bool) {
	negated := p < len(pattern) && pattern[p] == '^'
	if negated {
		p++
	}
	for ; p < len(pattern) && pattern[p] != ']'; p++ {
		switch {
		case pattern[p] == '\\' && p+1 < len(pattern):
			p++
			ok = ok || pattern[p] == c // the case counts here, in Redis too
		case p+2 < len(pattern) && pattern[p+1] == '-':
			ok = ok || globRange(pattern[p], pattern[p+2], c, fold)
			p += 2
		default:
			ok = ok || lower(pattern[p], fold) == lower(c, fold)
		}
	}
	return min(p+1, len(pattern)), ok != negated
}

// globRange compares bytes as C's signed char, so that a range from ASCII
// upwards to 0x80 and beyond holds what Redis has in it.
func globRange(a, b, c byte, fold bool) bool {
	if int8(a) > int8(b) {
		a, b = b, a
	}
	a, b, c = lower(a, fold), lower(b, fold), lower(c, fold)
	return int8(a) <= int8(c) && int8(c) <= int8(b)
}

func lower(c byte, fold bool) byte {
	if fold && 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}
