package clib

import (
	"math"
	"strconv"
	"strings"
	"testing"

	lua "github.com/yuin/gopher-lua"
)

// FuzzNumber: ParseNumber accepts what strtod would read whole, NumberPrefix finds a number, and 17 digits preserve a number.
func FuzzNumber(f *testing.F) {
	for _, s := range []string{
		"", " 1 ", "-010", "1e3", "1e", "1e+", ".5", "5.", ".", "-", "+-1", "1_000", "0x10", "0x", "0x.8", "0x.p1", "0X1p-2", "0x1P", "1e400", "1e-400",
		"inf", "-Infinity", "infinit", "nan", "-nan", "nan(1_a)", "nan(", "nan()x", "1\x002", "12345678901234567890", "0b1", "1 2", "\v1\f",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, ok := ParseNumber(s)
		text, _, _ := strings.Cut(s, "\x00")
		text = strings.Trim(text, cSpaces)
		prefix := NumberPrefix(text)
		if whole := text != "" && prefix == len(text); ok != whole {
			t.Errorf("%q is a number: %v, and strtod reads %d of %d bytes", s, ok, prefix, len(text))
		}
		if _, ok := ParseNumber(text[:prefix]); !ok && prefix > 0 {
			t.Errorf("%q begins with %q, which is no number", s, text[:prefix])
		}
		printed := FormatG(float64(n), 17)
		if back, known := ParseNumber(printed); !known || math.Float64bits(float64(back)) != math.Float64bits(float64(n)) {
			t.Errorf("%q is printed as %q, which is %v", s, printed, back)
		}
	})
}

// A cast removes the fraction of a number. A number that does not fit into a signed type becomes the least integer.
func TestCasts(t *testing.T) {
	for _, x := range []float64{0, 1, -1, 1.9, -1.9, math.MaxInt32, math.MinInt32, 1 << 53, -1 << 63} {
		n := lua.LNumber(x)
		want, err := strconv.ParseInt(strconv.FormatFloat(math.Trunc(x), 'f', 0, 64), 10, 64)
		if err != nil || ToInt64(n) != want || ToInt(n) != int(want) || ToUint64(n) != uint64(want) {
			t.Errorf("%v: %d %d %d, want %d (%v)", x, ToInt64(n), ToInt(n), ToUint64(n), want, err)
		}
		if inside := want == int64(int32(want)); inside != (ToCInt(n) == int(want)) {
			t.Errorf("%v as an int of 32 bits: %d", x, ToCInt(n))
		}
	}
	for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), 1 << 63, 1e300} {
		if n := lua.LNumber(x); ToInt64(n) != math.MinInt64 || ToCInt(n) != math.MinInt32 {
			t.Errorf("%v: %d %d", x, ToInt64(n), ToCInt(n))
		}
	}
}
