package store

import (
	"strings"
	"testing"
)

func TestHashCache(t *testing.T) {
	var c hashCache
	names := []string{"", "a", "b", "\x00", "\x00\x00", strings.Repeat("x", maxCachedName), strings.Repeat("x", maxCachedName+1), strings.Repeat("x", 300)}
	for i := range 3000 {
		names = append(names, "lock:"+strings.Repeat("k", i%60)+string(rune('a'+i%26)))
	}
	buffer := make([]byte, 400)
	for range 3 {
		for _, name := range names {
			n := copy(buffer, name) // as a connection does, which reads its next request into the same memory
			if got, want := c.of(bytesToString(buffer[:n])), hashOf(name); got != want {
				t.Fatalf("the hash of %q is %x, want %x", name, got, want)
			}
			if got, want := c.of(bytesToString(buffer[:n])), hashOf(name); got != want {
				t.Fatalf("the remembered hash of %q is %x, want %x", name, got, want)
			}
		}
	}
}
