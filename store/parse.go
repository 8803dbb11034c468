package store

import (
	"unsafe"
)

// bytesToString views b as a string without copying. The result is valid until b changes.
func bytesToString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// stringBytes views s as bytes without copying. The caller must not change them.
func stringBytes(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// equalFold reports whether an argument is the given word, in any case. The word must be in lower case. equalFold does not allocate.
func equalFold(arg []byte, word string) bool {
	if len(arg) != len(word) {
		return false
	}
	for i := 0; i < len(word); i++ {
		c := arg[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != word[i] {
			return false
		}
	}
	return true
}
