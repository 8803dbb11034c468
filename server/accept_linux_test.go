package server

import "testing"

// A loop is told of the end of a connection only if the connection has joined the loop: another goroutine may cut off a refused
// connection before that.
func TestLoopHearsOnlyOfItsConnections(t *testing.T) {
	for _, joins := range []bool{false, true} {
		told := 0
		c := &loopConn{}
		c.fd, c.room = -1, make(chan struct{}, 1)
		c.onClose = func() { told++ }
		if joins {
			c.onLoop.Store(true)
		}
		_ = c.Close() // the socket is none
		_ = c.Close()
		if want := map[bool]int{true: 1}[joins]; told != want {
			t.Errorf("joins %v: told %d times, want %d", joins, told, want)
		}
	}
}
