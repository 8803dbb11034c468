package fair

import "testing"

// Replies may take the place of larger ones that the client has in hand.
func TestSmallerRepliesInHand(t *testing.T) {
	g := &Gate{}
	c := &Client{node: &g.InHand}
	c.Holds(100_000)
	g.InHand.take(t.Context(), c, 50_000)
	if n := g.InHand.Bytes(); n != 50_000 {
		t.Errorf("%d bytes are in hand", n)
	}
}
