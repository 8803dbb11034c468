package server

import "testing"

// If a connection ends after it has joined its loop, the loop is told once. If a connection ends before it has joined
// the loop, for example because the server refuses the client, the loop is not told.
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
