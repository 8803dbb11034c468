package tally

import "testing"

func TestHeld(t *testing.T) {
	h := NewHeld()
	h.Begin(0, 7, "me", 1000, 42)
	h.Begin(3, 8, "me", 1500, 43)
	if at, client, ok := h.Of(0, 7, "me"); at != 1000 || client != 42 || !ok {
		t.Errorf("%d, %d, %v", at, client, ok)
	}
	for _, other := range []struct {
		db    int
		token uint64
		owner string
	}{{1, 7, "me"}, {0, 8, "me"}, {0, 7, "you"}} {
		if _, _, ok := h.Of(other.db, other.token, other.owner); ok {
			t.Errorf("it knows %v", other)
		}
	}
	if ms := h.End(0, 7, "me", 1234); ms != 234 {
		t.Errorf("held for %d ms", ms)
	}
	if ms := h.End(0, 7, "me", 1234); ms != -1 {
		t.Errorf("a lock that has ended was held for %d ms", ms)
	}
	h.Begin(0, 11, "reader", 100, 1) // readers share a token
	h.Begin(0, 11, "other", 200, 2)
	if a, b := h.End(0, 11, "reader", 1000), h.End(0, 11, "other", 50); a != 900 || b != 0 {
		t.Errorf("two owners of one token: %d, and by a clock that runs back %d", a, b)
	}
	h.Forget(3)
	if ms := h.End(3, 8, "me", 2000); ms != -1 {
		t.Errorf("a forgotten lock was held for %d ms", ms)
	}
	h.Begin(0, 9, "me", 1, 1)
	h.ForgetAll()
	if _, _, ok := h.Of(0, 9, "me"); ok || h.n != 0 {
		t.Errorf("ForgetAll leaves %d locks", h.n)
	}
}

// TestHeldIsBounded: more locks are not remembered, until others end.
func TestHeldIsBounded(t *testing.T) {
	h := NewHeld()
	for i := range uint64(mostHeld + 10) {
		h.Begin(0, i, "", 0, 0)
	}
	if h.n != mostHeld || len(h.locks[0]) != mostHeld {
		t.Errorf("%d and %d locks", h.n, len(h.locks[0]))
	}
	h.End(0, 5, "", 0)
	h.Begin(1, 5, "", 0, 0)
	if _, _, ok := h.Of(1, 5, ""); !ok || h.n != mostHeld {
		t.Errorf("after one has ended: %v, %d", ok, h.n)
	}
}
