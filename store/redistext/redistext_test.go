package redistext

import (
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestGlobEqualsRedis compares with what redis-server 7.0.15 found.
func TestGlobEqualsRedis(t *testing.T) {
	text, err := os.ReadFile("testdata/glob.tsv")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		for i := range f {
			if text, err := strconv.Unquote(f[i]); err == nil {
				f[i] = text
			}
		}
		if got := Match(f[0], f[1]); got != (f[2] == "1") {
			t.Errorf("pattern %q, text %q: got %v", f[0], f[1], got)
		}
		n++
	}
	if n == 0 {
		t.Error("nothing is recorded")
	}
}

func TestMatchFold(t *testing.T) {
	for _, tc := range []struct {
		pattern, text string
		want          bool
	}{
		{"MAX*", "maxmemory", true},
		{"max*", "MAXMEMORY", true},
		{"[M-N]ax", "max", true},
		{"[^M]ax", "max", false},
		{"[\\M]ax", "max", false}, // an escaped byte in a class keeps its case
		{"min*", "maxmemory", false},
	} {
		if got := MatchFold(tc.pattern, tc.text); got != tc.want {
			t.Errorf("pattern %q, text %q: got %v", tc.pattern, tc.text, got)
		}
	}
}

// No match takes long, because a match ends after too many steps. But if the pattern is plain text between stars, a match never ends
// early.
func TestMatchIsBounded(t *testing.T) {
	long := strings.Repeat("a", 1<<20)
	half := long[:1<<19]
	for pattern, want := range map[string]bool{
		"*" + half + "b":                           false,
		"*" + half + "*b":                          false,
		"*" + half + "?b":                          false,
		"*" + strings.Repeat("?a", 1<<18) + "b":    false,
		"*" + strings.Repeat("[a-z]", 1<<18) + "b": false,
		"*[" + half[:1<<15] + "]c":                 false,
		"*" + strings.Repeat(`\a`, 1<<18) + "b":    false,
		strings.Repeat("*a", 1<<18) + "b":          false,
		"*" + half:                                 true,
		"*" + half + "*":                           true,
		strings.Repeat("*a", 1<<18):                true,
		strings.Repeat("?", 1<<20):                 true,
	} {
		if got := Match(pattern, long); got != want {
			t.Errorf("%.20q… : %v", pattern, got)
		}
	}
}

// A match makes at most globMost steps and one for each byte of the name. Reading the pattern counts as steps, too.
func TestMatchIsBoundedAbsolutely(t *testing.T) {
	name := strings.Repeat("a", 8<<20)
	if ok, steps := MatchSteps("*"+strings.Repeat("[a-cf-hi-kx]", 60)+"y", name); ok || steps > len(name)+globMost+globSteps {
		t.Errorf("%d steps in a long name", steps)
	}
	for _, end := range []string{"", "b", "*", "?"} {
		if Match(strings.Repeat("?", len(name)-len(end))+end, name) == (end == "b") {
			t.Errorf("a pattern as long as the name, with %q at the end", end)
		}
	}
}

// TestLongPatternIsReadInPart: a match with a short name reads only a part of a long pattern.
func TestLongPatternIsReadInPart(t *testing.T) {
	long := 8 << 20
	for _, pattern := range []string{
		"[" + strings.Repeat("n", long), "[" + strings.Repeat("n", long) + "]ame", "*[" + strings.Repeat("n", long) + "]ame",
		strings.Repeat("*", long), "name" + strings.Repeat("*", long), "*" + strings.Repeat("n", long), "n*" + strings.Repeat("n", long) + "*",
	} {
		for range 1000 {
			if ok, steps := MatchSteps(pattern, "name"); ok || steps > globSteps*(4+globSteps)+globSteps {
				t.Fatalf("%.9q…: %v after %d steps", pattern, ok, steps)
			}
			MatchFold(pattern, "name")
		}
	}
	for _, pattern := range []string{"[" + strings.Repeat("n", 10000) + "]ame", "na" + strings.Repeat("*", 10000) + "e", "name" + strings.Repeat("*", 10000)} {
		if !Match(pattern, "name") || !MatchFold(pattern, "NAME") {
			t.Errorf("%.9q… does not match", pattern)
		}
	}
}

// TestMatchIsFast: a match goes back to the last star only.
func TestMatchIsFast(t *testing.T) {
	if Match(strings.Repeat("a*", 1000)+"b", strings.Repeat("a", 10000)) {
		t.Error("matched")
	}
}

// slowMatch is a plain matcher: for every star it tries every run of bytes.
func slowMatch(p, s string) bool {
	if p == "" || s == "" {
		return strings.Trim(p, "*") == "" && s == ""
	}
	if p[0] == '*' {
		for i := 0; i <= len(s); i++ {
			if slowMatch(p[1:], s[i:]) {
				return true
			}
		}
		return false
	}
	next, ok := globByte(p, 0, s[0], false)
	return ok && slowMatch(p[next:], s[1:])
}

func FuzzMatch(f *testing.F) {
	f.Add("a*b?[c-d]", "axxbyc")
	f.Add("[^", "x")
	f.Add("*a*a*a*b", "aaaaaaaa")
	f.Fuzz(func(t *testing.T, pattern, text string) {
		if len(pattern) > 12 || len(text) > 12 {
			Match(pattern, text)
			MatchFold(pattern, text)
			return
		}
		want := slowMatch(pattern, text) && (text != "" || pattern == "")
		if got := Match(pattern, text); got != want {
			t.Fatalf("pattern %q, text %q: got %v", pattern, text, got)
		}
		if Match(pattern, text) && pattern == strings.ToLower(pattern) && text == strings.ToLower(text) &&
			!MatchFold(pattern, text) {
			t.Fatalf("pattern %q, text %q: only without folding", pattern, text)
		}
	})
}

func FuzzParseInt(f *testing.F) {
	for _, s := range []string{"0", "-1", "01", "-0", "+1", " 1", "9223372036854775807", "-9223372036854775808", "9223372036854775808"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		n, ok := ParseInt(b)
		want, err := strconv.ParseInt(string(b), 10, 64)
		// ParseInt accepts a text only if formatting the number gives the same text.
		if legal := err == nil && strconv.FormatInt(want, 10) == string(b); ok != legal || ok && n != want {
			t.Fatalf("%q: got %d %v, want %d %v", b, n, ok, want, legal)
		}
	})
}

func FuzzParseFloat(f *testing.F) {
	for _, s := range []string{"1", "-.5", "5.", "1e5", "0x1p-3", "0x.8", "inf", "1e400", "1e-400", "1_0", "0b1", "nan"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		n, ok := ParseFloat(b)
		if ok {
			if math.IsNaN(n) {
				t.Fatalf("%q is not a number", b)
			}
			again, ok := ParseFloat([]byte(strconv.FormatFloat(n, 'g', -1, 64)))
			if !ok || again != n {
				t.Fatalf("%q: %v became %v", b, n, again)
			}
			if want, err := strconv.ParseFloat(string(b), 64); err == nil && want != n {
				t.Fatalf("%q: got %v, want %v", b, n, want)
			}
		}
		// A long double can hold every double, and its syntax contains that of a double.
		if long, okLong := ParseLongDouble(string(b)); ok && len(b) <= longDoubleMaxLen {
			if !okLong {
				t.Fatalf("%q is a float but not a long double", b)
			}
			if f, _ := long.Float64(); math.Abs(f-n) > math.Abs(n)*1e-15 {
				t.Fatalf("%q: %v as a long double, %v as a double", b, f, n)
			}
		}
	})
}

func TestSplitArgs(t *testing.T) {
	for line, want := range map[string][]string{
		"":                        {},
		" \t\v":                   {},
		" get\tk\r\n":             {"get", "k"},
		"a\vb \fc":                {"a\vb", "c"},
		`a"b c"`:                  {"ab c"},
		`"\n\x41\x4g\"\\" '\n\''`: {"\nAx4g\"\\", `\n'`},
		"\"a\"\v'' \"\"":          {"a", "", ""},
		`\" "`:                    {`\ `},
		`"a"b`:                    nil,
		`'a`:                      nil,
		`"a\`:                     nil,
		`'a\'`:                    nil,
	} {
		words, ok := SplitArgs([]byte(line))
		if ok != (want != nil) || CheckArgs([]byte(line)) != ok {
			t.Errorf("%q: SplitArgs accepts it: %t, and should: %t; CheckArgs must say the same", line, ok, want != nil)
		}
		got := []string{}
		for _, w := range words {
			got = append(got, string(w))
		}
		if ok && !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}
