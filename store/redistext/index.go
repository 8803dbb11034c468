package redistext

import "strings"

// Index is strings.Index for strings of a client: its cost is linear, and it allocates nothing. Every indexPiece bytes or so, and at its
// end, it calls work with the bytes read since. work may panic to end the search.
func Index(s, text string, work func(read int)) int {
	f := finder{text: text, left: indexPiece, work: work}
	at := f.index(s)
	work(indexPiece - f.left)
	return at
}

const (
	indexPiece = 64 << 10

	// A text of shortText bytes or more is too long for strings.Index, which may compare the text at every byte.
	shortText = 64

	// The search for a single byte is faster than other reads, so bytesInRead bytes that it passes count as one byte read.
	bytesInRead = 32

	// finder.same compares strings in parts. The start of each part counts as attempt bytes read.
	attempt = 16
)

// finder searches for one text. For a long one it uses the two-way algorithm of Crochemore and Perrin, comparing behind a cut first.
type finder struct {
	text string
	left int            // bytes that may still be read; if work is nil, the search ends when left is negative
	work func(read int) // if not nil, spend calls it when left is negative, and sets left to indexPiece again

	cut    int
	period int // how far the text moves if only the part behind the cut is found; 0 until divide has run
	keep   int // how many bytes at the start of the text are known to match after that move
}

// within returns the index of the text in s, or -1. It ends early when made, in steps of globSearch bytes, exceeds steps.
func (f *finder) within(s string, steps int) (at, made int) {
	most := max(steps, 0) * globSearch
	f.left = most
	at = f.index(s)
	return at, (most - f.left + globSearch - 1) / globSearch
}

func (f *finder) index(s string) int {
	switch {
	case f.text == "":
		return 0
	case len(f.text) > len(s):
		return -1
	case len(f.text) < shortText:
		return f.short(s, f.text)
	case f.period == 0 && !f.divide():
		return -1
	}
	return f.long(s)
}

// spend subtracts bytes read from f.left, and calls f.work, if set, when none are left. It returns false if the search must end.
func (f *finder) spend(read int) bool {
	f.left -= read
	if f.left < 0 && f.work != nil {
		f.work(indexPiece - f.left)
		f.left = indexPiece
	}
	return f.left >= 0
}

// short searches for the first byte of a short text, then for the text in the next part of s, and so on.
func (f *finder) short(s, text string) int {
	const part = 1024
	for from := 0; ; {
		end := min(from+bytesInRead*(max(f.left, 0)+1), len(s))
		at := strings.IndexByte(s[from:end], text[0])
		switch {
		case at < 0 && (!f.spend((end-from)/bytesInRead) || end == len(s)):
			return -1
		case at < 0:
			from = end
			continue
		case len(text) == 1:
			f.spend(at / bytesInRead)
			return from + at
		}
		f.spend(at / bytesInRead)
		from += at
		end = min(from+part+len(text), len(s))
		if at = strings.Index(s[from:end], text); at >= 0 {
			f.spend(at + len(text))
			return from + at
		}
		if !f.spend(end-from) || end == len(s) {
			return -1
		}
		from = end - len(text) + 1
	}
}

func (f *finder) long(s string) int {
	text, known := f.text, 0
	for at := 0; at+len(text) <= len(s); {
		if known == 0 {
			skip := f.short(s[at+f.cut:len(s)-len(text)+f.cut+1], text[f.cut:f.cut+1])
			if skip < 0 {
				return -1
			}
			at += skip
		}
		from := max(f.cut, known)
		n, ok := f.same(s[at+from:at+len(text)], text[from:])
		if !ok {
			return -1
		}
		if from+n < len(text) {
			at += from + n - f.cut + 1
			known = 0
			continue
		}
		from = min(f.cut, known)
		n, ok = f.same(s[at+from:at+f.cut], text[from:f.cut])
		switch {
		case !ok:
			return -1
		case from+n == f.cut:
			return at
		}
		at += f.period
		known = f.keep
	}
	return -1
}

// same returns how many bytes two strings of equal length have in common at their start, and whether the search may go on.
func (f *finder) same(a, b string) (n int, ok bool) {
	const part, block = 4096, 32
	for end := 0; n == end && n < len(a); {
		from := n
		end = min(n+part, len(a))
		for n+block <= end && a[n:n+block] == b[n:n+block] {
			n += block
		}
		for n < end && a[n] == b[n] {
			n++
		}
		if !f.spend(attempt + n - from) {
			return n, false
		}
	}
	return n, true
}

// divide sets the fields cut, period and keep for the text. It returns false if the search must end.
func (f *finder) divide() bool {
	cut, period, ok := f.suffix(false)
	if !ok {
		return false
	}
	other, otherPeriod, ok := f.suffix(true)
	if !ok {
		return false
	}
	if other > cut {
		cut, period = other, otherPeriod
	}
	n, ok := f.same(f.text[:cut], f.text[period:period+cut])
	if !ok {
		return false
	}
	f.cut, f.period, f.keep = cut, period, len(f.text)-period
	if n < cut { // the period of the suffix is not that of the whole text
		f.period, f.keep = max(cut, len(f.text)-cut)+1, 0
	}
	return true
}

// suffix returns the place and the period of the greatest suffix of the text. ok is false if the search must end.
func (f *finder) suffix(reverse bool) (at, period int, ok bool) {
	const looks, part = 2, 256 // a comparison of two bytes counts as looks bytes read
	text := f.text
	i, j, k, period := -1, 0, 1, 1 // the greatest suffix so far begins behind i; the suffix behind j has k-1 bytes in common with it
	for n := 1; j+k < len(text); n++ {
		if n%part == 0 && !f.spend(looks*part) {
			return 0, 0, false
		}
		a, b := text[j+k], text[i+k]
		if reverse {
			a, b = b, a
		}
		switch {
		case a < b:
			j += k
			k, period = 1, j-i
		case a > b:
			i = j
			j++
			k, period = 1, 1
		case k < period:
			k++
		default:
			j += period
			k = 1
		}
	}
	return i + 1, period, true
}
