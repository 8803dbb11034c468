package store

// Match reports whether s matches a glob pattern as Redis understands it. A
// star stands for any run of bytes, a question mark for one byte, [a-z] for a
// byte of the class, [^a-z] for one outside it; a backslash, also in a class,
// takes away the special meaning of the byte after it. A class that is not
// closed ends with the pattern. An empty s is matched by an empty pattern
// only, not even by a star.
func Match(pattern, s string) bool { return globMatch(pattern, s, false) }

// MatchFold is Match without regard to the case of ASCII letters.
func MatchFold(pattern, s string) bool { return globMatch(pattern, s, true) }

// globMatch goes back to the last star only: what an earlier star could make
// of a longer run, the last one can as well. So it takes no more than
// len(pattern)*len(s) steps.
func globMatch(pattern, s string, fold bool) bool {
	p, i := 0, 0
	star, from := -1, 0 // the pattern after the last star; where its run ends
	for i < len(s) {
		if p < len(pattern) && pattern[p] == '*' {
			for p < len(pattern) && pattern[p] == '*' {
				p++
			}
			if p == len(pattern) {
				return true
			}
			star, from = p, i
			continue
		}
		if p < len(pattern) {
			if next, ok := globByte(pattern, p, s[i], fold); ok {
				p = next
				i++
				continue
			}
		}
		if star < 0 {
			return false
		}
		from++
		p, i = star, from
	}
	if len(s) == 0 {
		return len(pattern) == 0
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
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
