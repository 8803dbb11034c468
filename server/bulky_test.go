package server

import (
	"bytes"
	"strings"
	"testing"
)

// TestBulkyReply: the pieces of a large reply make the reply.
func TestBulkyReply(t *testing.T) {
	ts := newTestServer(t, func(*Config) {})
	for _, n := range []int{1, bulkyPiece, bulkyPiece + 1, 5 * bulkyPiece, 5*bulkyPiece - 1} {
		value := strings.Repeat("0123456", n/7+1)[:n]
		pieces := ts.bulkyReply(value, func() bool { return false })
		if got := bytes.Join(pieces, nil); !bytes.Equal(got, appendBulk(nil, '$', value)) {
			t.Errorf("the reply of %d bytes came as %d bytes", n, len(got))
		}
		if want := (n + bulkyPiece - 1) / bulkyPiece; len(pieces) != want {
			t.Errorf("%d bytes came in %d pieces, want %d", n, len(pieces), want)
		}
	}
	if pieces := ts.bulkyReply("value", func() bool { return true }); len(pieces) > 0 {
		t.Errorf("%d pieces for a client that is gone", len(pieces))
	}
}
