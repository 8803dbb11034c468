package redistext

import (
	"math"
	"strconv"
	"strings"
	"unsafe"
)

// Number holds the parts of a number from ScanNumber, which accepts what C's strtold accepts, except leading blanks and NaN.
type Number struct {
	Neg, Inf, Hex bool
	Digits        string // the digits without the point and without leading zeros
	exp           int    // the value is the integer Digits times 10^exp, or 2^exp if Hex is true
}

// maxExponent is far beyond the range of any type: once an exponent has reached it, scanExponent ignores further digits.
const maxExponent = 1 << 20

// ScanNumber splits a number; ok is false if s is not a number.
func ScanNumber(s string) (n Number, ok bool) {
	if s != "" && (s[0] == '-' || s[0] == '+') {
		n.Neg = s[0] == '-'
		s = s[1:]
	}
	if strings.EqualFold(s, "inf") || strings.EqualFold(s, "infinity") {
		n.Inf = true
		return n, true
	}
	isDigit, marker, perDigit := IsDecimal, byte('e'), 1
	if len(s) > 2 && s[0] == '0' && s[1]|0x20 == 'x' {
		n.Hex = true
		isDigit, marker, perDigit = hexDigit, 'p', 4
		s = s[2:]
	}
	whole := Digits(s, isDigit)
	frac := ""
	rest := s[len(whole):]
	if rest != "" && rest[0] == '.' {
		frac = Digits(rest[1:], isDigit)
		rest = rest[1+len(frac):]
	}
	if whole == "" && frac == "" {
		return n, false
	}
	n.Digits = strings.TrimLeft(whole+frac, "0")
	if rest != "" {
		if rest[0]|0x20 != marker {
			return n, false
		}
		if n.exp, ok = scanExponent(rest[1:]); !ok {
			return n, false
		}
	}
	n.exp -= perDigit * len(frac)
	return n, true
}

// Digits returns the digits at the beginning of s.
func Digits(s string, isDigit func(byte) bool) string {
	for i := 0; i < len(s); i++ {
		if !isDigit(s[i]) {
			return s[:i]
		}
	}
	return s
}

// IsDecimal reports whether c is a decimal digit.
func IsDecimal(c byte) bool { return c-'0' <= 9 }
func hexDigit(c byte) bool  { return c-'0' <= 9 || (c|0x20)-'a' <= 5 }

func scanExponent(s string) (exp int, ok bool) {
	neg := false
	if s != "" && (s[0] == '-' || s[0] == '+') {
		neg = s[0] == '-'
		s = s[1:]
	}
	if s == "" || Digits(s, IsDecimal) != s {
		return 0, false
	}
	for i := 0; i < len(s) && exp < maxExponent; i++ {
		exp = exp*10 + int(s[i]-'0')
	}
	if neg {
		exp = -exp
	}
	return exp, true
}

// ParseFloat parses a float as C's strtod does. It rejects spaces, NaN and numbers out of range; it
// accepts hexadecimal numbers and infinity.
func ParseFloat(b []byte) (float64, bool) {
	s := unsafe.String(unsafe.SliceData(b), len(b)) // valid while b does not change
	n, ok := ScanNumber(s)
	if !ok {
		return 0, false
	}
	if n.Inf {
		if n.Neg {
			return math.Inf(-1), true
		}
		return math.Inf(1), true
	}
	if n.Hex && !strings.ContainsAny(s, "pP") {
		s += "p0" // Go requires the exponent that C makes optional
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || f == 0 && n.Digits != "" {
		return 0, false
	}
	return f, true
}

// ParseInt parses an integer as strictly as Redis's string2ll: no spaces, no plus sign, no leading
// zeros, no "-0".
func ParseInt(b []byte) (int64, bool) {
	if len(b) == 0 || len(b) > 20 {
		return 0, false
	}
	if len(b) == 1 && b[0] == '0' {
		return 0, true
	}
	i, neg := 0, false
	if b[0] == '-' {
		neg = true
		i++
	}
	if i == len(b) || b[i] < '1' || b[i] > '9' {
		return 0, false
	}
	var n uint64
	for ; i < len(b); i++ {
		d := b[i] - '0'
		if d > 9 {
			return 0, false
		}
		if n > (math.MaxUint64-uint64(d))/10 {
			return 0, false
		}
		n = n*10 + uint64(d)
	}
	if neg {
		if n > 1<<63 {
			return 0, false
		}
		return -int64(n), true
	}
	if n > math.MaxInt64 {
		return 0, false
	}
	return int64(n), true
}

// TrimZeros cuts the zeros at the end of decimals, and a point without decimals.
func TrimZeros(s string) string {
	dot := -1
	for i := 0; i < len(s); i++ {
		if s[i] == '.' {
			dot = i
			break
		}
	}
	if dot < 0 {
		return s
	}
	end := len(s)
	for end > dot+1 && s[end-1] == '0' {
		end--
	}
	if end == dot+1 {
		end = dot
	}
	return s[:end]
}
