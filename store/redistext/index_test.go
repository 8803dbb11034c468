package redistext

import (
	"strings"
	"testing"
)

// killers returns pairs of a text and a string without it, of about n bytes, for which simple searches take quadratic time.
func killers(n int) map[string][2]string {
	unit := "b" + strings.Repeat("a", 15)
	units := strings.Repeat(unit, n/len(unit))
	a := strings.Repeat("a", n)
	return map[string][2]string{
		"a unit, then another byte":     {units[:n/2] + "c", units},
		"another byte, then a unit":     {"c" + units[:n/2], units},
		"another byte within":           {units[:n/4] + "c" + units[:n/4], units},
		"one byte, then another":        {a[:n/2] + "b", a},
		"another byte, then one":        {"b" + a[:n/2], a},
		"another byte between":          {a[:n/4] + "b" + a[:n/4], a},
		"another byte between, rarely":  {a[:n/4] + "b" + a[:n/4], strings.Repeat(a[:n/4-1]+"b", 4)},
		"a period that nearly ends":     {strings.Repeat("ab", n/4) + "b", strings.Repeat("ab", n/2)},
		"a period of half of it":        {a[:n/8] + "b" + a[:n/8] + "b" + a[:n/8] + "c", strings.Repeat(a[:n/8]+"b", 7)},
		"short, at every byte":          {a[:shortText-2] + "b", a},
		"the rare byte before the cut":  {"b" + strings.Repeat("ac", n/4), strings.Repeat("ac", n/2)},
		"one text, nearly as long as s": {a[:n-2] + "b", a},
	}
}

// TestIndexReadsBoundedly: Index reads in proportion to the lengths of both strings, and reports the bytes in small parts.
func TestIndexReadsBoundedly(t *testing.T) {
	const n = 1 << 20
	for what, pair := range killers(n) {
		read, most := 0, 0
		at := Index(pair[1], pair[0], func(n int) {
			read += n
			most = max(most, n)
		})
		if at >= 0 || read > 32*n || most > 3*indexPiece {
			t.Errorf("%s: at %d, read %d bytes for one of %d, %d at once", what, at, read, n, most)
		}
	}
}

// A match with a limit of steps ends soon after the limit, even during the search for a long text.
func TestMatchEndsWithinASearch(t *testing.T) {
	const n = 1 << 18
	for what, pair := range killers(n) {
		for _, limit := range []int{0, 256, 10_000} {
			for _, pattern := range []string{"*" + pair[0] + "*", "*" + pair[0] + "?", "?*" + pair[0] + "[x]*"} {
				if ok, steps := MatchWithin(pattern, pair[1], limit); ok || steps <= limit || steps > limit+2000 {
					t.Errorf("%s: %v after %d steps of %d", what, ok, steps, limit)
				}
			}
		}
		if ok, steps := MatchSteps("*"+pair[0]+"*", pair[1]); ok || steps > 2*n {
			t.Errorf("%s: %v after %d steps", what, ok, steps)
		}
	}
}

// twoWay searches for a short text as if it were long.
func twoWay(s, text string) int {
	f := finder{text: text, left: 1 << 20}
	if text == "" || !f.divide() {
		return 0
	}
	return f.long(s)
}

// TestIndexEqualsStrings compares the two-way search with strings.Index. The texts have two different letters, and periods of all
// kinds.
func TestIndexEqualsStrings(t *testing.T) {
	const longest = 7
	var texts []string
	for n := range longest + 1 {
		for bits := range 1 << n {
			b := make([]byte, n)
			for i := range b {
				b[i] = 'a' + byte(bits>>i&1)
			}
			texts = append(texts, string(b))
		}
	}
	for _, text := range texts {
		for _, s := range texts {
			for _, s := range []string{s, s + s, text + s[:len(s)/2] + text, s + text[min(1, len(text)):] + text} {
				if got, want := twoWay(s, text), strings.Index(s, text); got != want {
					t.Fatalf("%q in %q: %d, not %d", text, s, got, want)
				}
			}
		}
	}
}

func FuzzIndex(f *testing.F) {
	f.Add("ab", "b", "ba", uint8(40), uint8(40))
	f.Add("a", "", "b", uint8(70), uint8(200))
	f.Add("baaaaaaaaaaaaaaa", "c", "", uint8(7), uint8(17))
	f.Fuzz(func(t *testing.T, unit, mark, end string, n, more uint8) {
		if len(unit)+len(mark)+len(end) > 100 {
			return
		}
		text := strings.Repeat(unit, int(n)) + mark + strings.Repeat(unit, int(n/2)) + end
		s := end + strings.Repeat(strings.Repeat(unit, int(more))+mark, 3) + text[min(1, len(text)):] + mark + text + end
		for _, s := range []string{s, s[:len(s)-len(end)/2-1], strings.Repeat(unit, int(more))} {
			read := 0
			if got, want := Index(s, text, func(n int) { read += n }), strings.Index(s, text); got != want || read > 64*(len(s)+len(text)+1) {
				t.Fatalf("%q in %q: %d, not %d; %d bytes read", text, s, got, want, read)
			}
			if len(text) < shortText {
				if got, want := twoWay(s, text), strings.Index(s, text); got != want {
					t.Fatalf("%q in %q: %d, not %d", text, s, got, want)
				}
			}
		}
	})
}
