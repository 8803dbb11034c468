package frame

import "testing"

// TestLengthNeverWraps: a frame of more than 4 GiB must not look like a short one, whose rest would be read as frames.
func TestLengthNeverWraps(t *testing.T) {
	for _, n := range []int{MaxLength + 1, 1<<32 - 1, 1 << 32, 1<<32 + 5} {
		if got := lengthField(n); got <= MaxLength {
			t.Errorf("%d bytes are announced as %d, which readers take", n, got)
		}
	}
	if got := lengthField(MaxLength); got != MaxLength {
		t.Errorf("the longest frame has the length %d", got)
	}
}
