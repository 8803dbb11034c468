package clib

import (
	"math"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/store"
)

// FormatNumber formats a number as tostring and .. do in Lua 5.1: with %.14g.
func FormatNumber(n lua.LNumber) string {
	f := float64(n)
	if f > -1e14 && f < 1e14 && f == math.Trunc(f) && (f != 0 || !math.Signbit(f)) {
		return strconv.FormatInt(int64(f), 10)
	}
	return FormatG(f, 14)
}

// FormatArgument appends n to dst, formatted as Redis formats the arguments of redis.call: with %.17g.
func FormatArgument(dst []byte, n lua.LNumber) []byte {
	f := float64(n)
	if f > -1e15 && f < 1e15 && f == math.Trunc(f) && (f != 0 || !math.Signbit(f)) {
		return strconv.AppendInt(dst, int64(f), 10)
	}
	return append(dst, FormatG(f, 17)...)
}

// FormatG formats a number as glibc's printf does with %.<prec>g, a NaN with its sign.
func FormatG(f float64, prec int) string {
	if math.IsNaN(f) {
		if math.Signbit(f) {
			return "-nan"
		}
		return "nan"
	}
	return store.FormatG(f, prec)
}

const cSpaces = " \t\n\v\f\r"

// ParseNumber parses a number as Lua 5.1 on glibc does: by strtod, up to a zero byte, between nothing but white space.
func ParseNumber(s string) (lua.LNumber, bool) {
	if i := strings.IndexByte(s, 0); i >= 0 {
		s = s[:i]
	}
	s = strings.Trim(s, cSpaces)
	if n, ok := smallInteger(s); ok {
		return n, true
	}
	t := s
	if t != "" && (t[0] == '-' || t[0] == '+') {
		t = t[1:]
	}
	if t != "" && t[0]|0x20 == 'n' && NumberPrefix(t) == len(t) {
		if s[0] == '-' {
			return lua.LNumber(-NaN), true
		}
		return lua.LNumber(NaN), true
	}
	// strtod accepts neither underscores nor a second sign, but ParseFloat would accept them in t.
	if t == "" || strings.ContainsAny(t, "_") || t[0] == '-' || t[0] == '+' {
		return 0, false
	}
	if len(t) > 1 && t[0] == '0' && t[1]|0x20 == 'x' && !strings.ContainsAny(t, "pP") {
		t += "p0"
	}
	f, err := strconv.ParseFloat(t, 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, false
	}
	if s[0] == '-' {
		f = -f
	}
	return lua.LNumber(f), true
}

// NumberPrefix returns how many bytes strtod would read as a number at the start of s. Unlike strtod, it skips no white space.
func NumberPrefix(s string) int {
	i := 0
	if i < len(s) && (s[i] == '-' || s[i] == '+') {
		i++
	}
	for _, word := range [...]string{"infinity", "inf", "nan"} {
		if len(s)-i >= len(word) && strings.EqualFold(s[i:i+len(word)], word) {
			i += len(word)
			if word == "nan" {
				i += nanPayload(s[i:])
			}
			return i
		}
	}
	isIn, exponent := IsDigit, byte('e')
	if i+1 < len(s) && s[i] == '0' && s[i+1]|0x20 == 'x' && hasDigit(s[i+2:], isHexDigit) {
		isIn, exponent = isHexDigit, 'p'
		i += 2
	}
	if !hasDigit(s[i:], isIn) {
		return 0
	}
	i += digitRun(s[i:], isIn)
	if i < len(s) && s[i] == '.' {
		i++
		i += digitRun(s[i:], isIn)
	}
	if i < len(s) && s[i]|0x20 == exponent {
		e := i + 1
		if e < len(s) && (s[e] == '-' || s[e] == '+') {
			e++
		}
		if n := digitRun(s[e:], IsDigit); n > 0 {
			i = e + n
		}
	}
	return i
}

// nanPayload returns the length of the suffix that may follow nan: letters, digits and underscores in parentheses.
func nanPayload(s string) int {
	if s == "" || s[0] != '(' {
		return 0
	}
	end := 1 + digitRun(s[1:], func(c byte) bool { return IsAlpha(c) || IsDigit(c) || c == '_' })
	if end == len(s) || s[end] != ')' {
		return 0
	}
	return end + 1
}

// hasDigit reports whether s begins with a mantissa: with a digit, or with a point and a digit.
func hasDigit(s string, isIn func(byte) bool) bool {
	return s != "" && (isIn(s[0]) || s[0] == '.' && len(s) > 1 && isIn(s[1]))
}

// digitRun returns the number of bytes at the start of s for which isIn holds.
func digitRun(s string, isIn func(byte) bool) int {
	n := 0
	for n < len(s) && isIn(s[n]) {
		n++
	}
	return n
}

func isHexDigit(c byte) bool { return IsDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' }

func smallInteger(s string) (lua.LNumber, bool) {
	if len(s) == 0 || len(s) > 15 {
		return 0, false
	}
	n := int64(0)
	for i := range len(s) {
		d := s[i] - '0'
		if d > 9 {
			return 0, false
		}
		n = n*10 + int64(d)
	}
	return lua.LNumber(n), true
}

// ParseBase implements tonumber with a base other than ten, by the rules of C's strtoul for signs and large numbers.
func ParseBase(s string, base int) (lua.LNumber, bool) {
	if i := strings.IndexByte(s, 0); i >= 0 {
		s = s[:i]
	}
	s = strings.Trim(s, cSpaces)
	neg := false
	if s != "" && (s[0] == '-' || s[0] == '+') {
		neg = s[0] == '-'
		s = s[1:]
	}
	if base == 16 && len(s) > 2 && s[0] == '0' && s[1]|0x20 == 'x' {
		s = s[2:]
	}
	if s == "" {
		return 0, false
	}
	n, saturated := uint64(0), false
	for i := range len(s) {
		d := DigitValue(s[i])
		if d >= base {
			return 0, false
		}
		if n > (math.MaxUint64-uint64(d))/uint64(base) {
			saturated = true
		}
		n = n*uint64(base) + uint64(d)
	}
	if saturated {
		n, neg = math.MaxUint64, false
	}
	if neg {
		n = -n
	}
	return lua.LNumber(n), true
}

func DigitValue(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'z':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'Z':
		return int(c-'A') + 10
	}
	return 99
}

// ToInt64 is a C cast on amd64: NaN, and a number that does not fit, become the smallest integer.
func ToInt64(n lua.LNumber) int64 {
	f := float64(n)
	if f >= -9223372036854775808 && f < 9223372036854775808 {
		return int64(f)
	}
	return math.MinInt64
}

// ToCInt converts as a C cast to a 32-bit int on amd64 does.
func ToCInt(n lua.LNumber) int {
	if n > math.MinInt32-1 && n < math.MaxInt32+1 {
		return int(n)
	}
	return math.MinInt32
}

// ToUint64 converts as gcc's cast to an unsigned 64-bit integer on amd64 does.
func ToUint64(n lua.LNumber) uint64 {
	switch {
	case n >= 1<<64:
		return 0
	case n >= 1<<63:
		return uint64(n)
	}
	return uint64(ToInt64(n))
}

// ToInt does what ToInt64 does, for a Go int, which has 64 bits, too.
func ToInt(n lua.LNumber) int { return int(ToInt64(n)) }
