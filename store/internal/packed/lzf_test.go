package packed

import (
	"bytes"
	"testing"
)

func FuzzLZF(f *testing.F) {
	f.Add([]byte("aaaaaaaaaaaaaaaaaaaaaaaaaaaabcabcabcabcabcabc"))
	f.Add(bytes.Repeat([]byte("0123456789"), 900))
	f.Fuzz(func(t *testing.T, b []byte) {
		Expand(b, 3*len(b))
		if len(b) <= 4 {
			return
		}
		small, ok := Compress(b, new(Table), len(b))
		if !ok {
			return
		}
		if out, ok := Expand(small, len(b)); !ok || !bytes.Equal(out, b) || len(small) > len(b)-4 {
			t.Fatalf("%d bytes became %d and %v", len(b), len(small), ok)
		}
	})
}
