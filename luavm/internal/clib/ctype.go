package clib

import "strings"

// IsAlpha, IsDigit, IsSpace and IsPunct are isalpha, isdigit, isspace and ispunct in the locale "C".
func IsAlpha(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
func IsDigit(c byte) bool { return '0' <= c && c <= '9' }
func IsSpace(c byte) bool { return c == ' ' || 9 <= c && c <= 13 }
func IsPunct(c byte) bool { return c > 32 && c < 127 && !IsAlpha(c) && !IsDigit(c) }

// Text returns the part of a string that C prints: C ends a string at a zero byte.
func Text(s string) string {
	if end := strings.IndexByte(s, 0); end >= 0 {
		return s[:end]
	}
	return s
}
