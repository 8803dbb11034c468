package luavm

import "testing"

// TestLargeArgumentsAreLetGo: the engine keeps no large argument of a call that has ended.
func TestLargeArgumentsAreLetGo(t *testing.T) {
	w := newWorld(t, Options{})
	w.do(2, "EVAL", "return redis.call('SET', KEYS[1], string.rep('x', 100) .. string.rep('y', 1000000)) and 1", "1", "k")
	for _, a := range w.e.args[:cap(w.e.args)] {
		if len(a) > keepBuffer {
			t.Errorf("%d bytes are kept", len(a))
		}
	}
}
