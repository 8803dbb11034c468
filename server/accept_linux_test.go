package server

import "testing"

// A loop is told once of the end of a connection that has joined it, and of no other.
func TestLoopHearsOnlyOfItsConnections(t *testing.T) {
	for _, joins := range []bool{false, true} {
		told := 0
		c := &loopConn{}
		c.fd, c.room = -1, make(chan struct{}, 1)
		c.onClose = func() { told++ }
		if joins {
			c.onLoop.Store(true)
		}
		_ = c.Close() // fails: there is no socket
		_ = c.Close()
		if want := map[bool]int{true: 1}[joins]; told != want {
			t.Errorf("joins %v: told %d times, want %d", joins, told, want)
		}
	}
}
