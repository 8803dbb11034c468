package server

import (
	"fmt"
	"testing"
	"time"
)

// waiter connects a client of the user bob, and sends a command that waits. It returns the client and the client's id.
func (ts *testServer) waiter(t *testing.T, line string) (c *client, id int64) {
	c = ts.dial(t)
	c.do("AUTH bob pw", "+OK\r\n")
	for _, s := range ts.each() {
		if s.account.Load().name == "bob" {
			id = s.id
		}
	}
	c.send(line + "\r\n")
	until(t, "the client to wait", func() bool { return ts.session(id).waits() })
	return c, id
}

// TestWaitIsBlocked: as in Redis, a client in WAIT or WAITAOF counts as blocked, and CLIENT UNBLOCK ends its wait.
func TestWaitIsBlocked(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		ts := newTestServer(t, withLoops(loops))
		other := ts.dial(t)
		other.do("ACL SETUSER bob on >pw +@all ~*", "+OK\r\n")
		for _, test := range []struct{ line, how, want string }{
			{"WAIT 9 0", "", ":0\r\n"},
			{"WAIT 9 0", " TIMEOUT", ":0\r\n"},
			{"WAIT 9 0", " ERROR", "-" + string(errUnblocked) + "\r\n"},
			{"WAITAOF 0 9 0", "", "*2\r\n:1\r\n:0\r\n"},
			{"WAITAOF 0 9 0", " ERROR", "-" + string(errUnblocked) + "\r\n"},
		} {
			c, id := ts.waiter(t, test.line)
			if n := ts.stats.blocked.Load(); n != 1 {
				t.Errorf("%d blocked clients", n)
			}
			other.do(fmt.Sprint("CLIENT UNBLOCK ", id, test.how), ":1\r\n")
			c.expect(test.want)
			c.do("PING", "+PONG\r\n")
			if n := ts.stats.blocked.Load(); n != 0 || ts.session(id).waits() {
				t.Errorf("%d blocked clients after the wait", n)
			}
			other.do(fmt.Sprint("CLIENT UNBLOCK ", id, test.how), ":0\r\n")
			c.conn.Close()
			until(t, "the client to be gone", func() bool { return ts.clients() == 1 })
		}
	})
}

// TestWaitOfADeletedUser: the connection of a deleted user ends, even while its command waits for replicas or for the end of CLIENT
// PAUSE.
func TestWaitOfADeletedUser(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		ts := newTestServer(t, withLoops(loops))
		other := ts.dial(t)
		for _, line := range []string{"WAIT 9 0", "SET k v"} {
			other.do("ACL SETUSER bob on >pw +@all ~*", "+OK\r\n")
			if line[0] == 'S' {
				ts.pause.begin(pauseWrite, time.Hour.Milliseconds())
			}
			ts.waiter(t, line)
			other.do("ACL DELUSER bob", ":1\r\n")
			until(t, "the client to be gone: "+line, func() bool { return ts.clients() == 1 })
		}
	})
}
