package server

import "testing"

// A loop hears of a connection from when it is the loop's: one that is refused may have been cut off before by another goroutine.
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
