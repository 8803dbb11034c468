package lock

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

// TestGuardsOrders: the last line counts, lines that make no sense do not, and group 0 dismisses the guard.
func TestGuardsOrders(t *testing.T) {
	w := &watch{d: deadlines{never, never}}
	for _, c := range []struct {
		lines  string
		group  int
		kill   time.Duration
		needed bool
	}{
		{"42 10 20\n", 42, 20, true},
		{"42 11 21\n42 12 22\n", 42, 22, true},
		{"nonsense\n", 42, 22, true},
		{"-1 0 0\n", 42, 22, true},
		{fmt.Sprintf("42 %d 30\n", never), 42, 30, true},
		{"42 1 31\n0 0 0\n", 0, 0, false},
	} {
		if needed := w.told([]byte(c.lines)); needed != c.needed || w.group != c.group || w.d.kill != c.kill {
			t.Errorf("%q: %v, %v", c.lines, needed, w)
		}
	}
}

// TestGuardsDeadlines: the guard sends each signal once, at its time, and none before it knows a group.
func TestGuardsDeadlines(t *testing.T) {
	var sent []string
	w := &watch{d: deadlines{never, never}, send: func(group int, sig syscall.Signal) { sent = append(sent, fmt.Sprint(group, " ", sig)) }}
	w.look(1 << 60)
	w.orphaned()
	want(t, sent)
	w.told([]byte("42 10 20\n"))
	for at := range time.Duration(30) {
		if w.look(at); at < 10 && w.next() != 10 || at >= 10 && at < 20 && w.next() != 20 || at >= 20 && w.next() != never {
			t.Errorf("at %d it looks again at %d", at, w.next())
		}
	}
	want(t, sent, "42 terminated", "42 continued", "42 killed")
	sent = nil
	w = &watch{group: 42, d: deadlines{10, 20}, send: w.send}
	w.look(25) // the guard was stopped, too
	want(t, sent, "42 killed")
	sent = nil
	w.orphaned()
	want(t, sent, "42 killed")
}
