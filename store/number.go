package store

import (
	"math"
	"strconv"
	"strings"
)

// numberSyntax is the result of scanNumber, which splits the numbers that C's strtod and strtold
// accept: a sign, then inf or infinity, or decimal or hexadecimal digits with an optional point and
// exponent.
type numberSyntax struct {
	neg, inf, hex bool
	digits        string // without the point and leading zeros
	exp           int    // exponent of 10 or 2; digits is read as an integer
}

// maxExponent is the value at which an exponent saturates, far beyond the range of any type.
const maxExponent = 1 << 20

func scanNumber(s string) (n numberSyntax, ok bool) {
	if s != "" && (s[0] == '-' || s[0] == '+') {
		n.neg = s[0] == '-'
		s = s[1:]
	}
	if strings.EqualFold(s, "inf") || strings.EqualFold(s, "infinity") {
		n.inf = true
		return n, true
	}
	isDigit, marker, perDigit := decimalDigit, byte('e'), 1
	if len(s) > 2 && s[0] == '0' && s[1]|0x20 == 'x' {
		n.hex = true
		isDigit, marker, perDigit = hexDigit, 'p', 4
		s = s[2:]
	}
	whole := digitsOf(s, isDigit)
	frac := ""
	rest := s[len(whole):]
	if rest != "" && rest[0] == '.' {
		frac = digitsOf(rest[1:], isDigit)
		rest = rest[1+len(frac):]
	}
	if whole == "" && frac == "" {
		return n, false
	}
	n.digits = strings.TrimLeft(whole+frac, "0")
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

func digitsOf(s string, isDigit func(byte) bool) string {
	for i := 0; i < len(s); i++ {
		if !isDigit(s[i]) {
			return s[:i]
		}
	}
	return s
}

func decimalDigit(c byte) bool { return c-'0' <= 9 }
func hexDigit(c byte) bool     { return c-'0' <= 9 || (c|0x20)-'a' <= 5 }

func scanExponent(s string) (exp int, ok bool) {
	neg := false
	if s != "" && (s[0] == '-' || s[0] == '+') {
		neg = s[0] == '-'
		s = s[1:]
	}
	if s == "" || digitsOf(s, decimalDigit) != s {
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
	s := bytesToString(b)
	n, ok := scanNumber(s)
	if !ok {
		return 0, false
	}
	if n.inf {
		return math.Inf(1 - 2*int(Flag(n.neg).Int)), true
	}
	if n.hex && !strings.ContainsAny(s, "pP") {
		s += "p0" // Go requires the exponent that C makes optional
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || f == 0 && n.digits != "" {
		return 0, false
	}
	return f, true
}
