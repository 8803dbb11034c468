package server

import (
	"sync"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// TestGrantsAreSentBeforeAWait: the reply that grants a lease leaves before the session waits for anything else.
func TestGrantsAreSentBeforeAWait(t *testing.T) {
	const lock = "SET lock me NX PX 300\r\n"
	eachPath(t, func(t *testing.T, loops int) {
		for _, next := range []string{"WAIT 1 0\r\n", "WAITAOF 0 1 0\r\n", "MULTI\r\nWAIT 1 0\r\nSET k v\r\nEXEC\r\n"} {
			ts := newTestServer(t, func(c *Config) { c.Loops, c.Durable = loops, true })
			c := ts.dial(t)
			if next[0] == 'M' {
				ts.holdAfterFirst()
			}
			c.send(lock + next)
			c.expect("+OK\r\n")
			c.conn.Close()
		}
		ts := newTestServer(t, withLoops(loops))
		ts.fake.whole.Store(true)
		c := ts.dial(t)
		release := ts.holdAfterFirst()
		c.send(lock + "CLIENT GETNAME\r\nSET other x\r\n")
		c.expect("+OK\r\n")
		release()
		c.expect("$-1\r\n+OK\r\n")
	})
}

// TestGrantsOfExecAreSentBeforeAWait: before a command of an EXEC waits for the leader, the replies of that EXEC's earlier commands
// leave.
func TestGrantsOfExecAreSentBeforeAWait(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		for _, test := range []struct {
			next, want string
			asks       int // how often the node asks the leader before the wait
		}{
			{"AUTH pw", "+OK\r\n", 2}, // first for the rights of the commands after AUTH, then for the transaction
			{"CONFIG GET maxmemory", "*2\r\n" + bulk("maxmemory") + bulk("0"), 1},
		} {
			ts := newTestServer(t, func(c *Config) { c.Loops, c.Durable, c.RequirePass, c.patience = loops, true, "pw", time.Hour })
			c := ts.dial(t)
			c.do("AUTH pw", "+OK\r\n")
			release := ts.holdAfter(test.asks)
			c.send("MULTI\r\nSET lock me NX PX 300\r\n" + test.next + "\r\nEXEC\r\n")
			c.expect("+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n")
			release()
			c.expect(test.want)
			c.conn.Close()
		}
	})
}

// TestRepliesDoNotWaitForReplicas: the replies of earlier commands leave before WAIT and WAITAOF wait, as at Redis.
func TestRepliesDoNotWaitForReplicas(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		for _, next := range []string{"WAIT 1 0\r\n", "WAITAOF 0 1 0\r\n"} {
			ts := newTestServer(t, withLoops(loops))
			c := ts.dial(t)
			c.send("DEL k\r\nPING\r\n" + next)
			c.expect(":0\r\n+PONG\r\n")
			c.conn.Close()
		}
	})
}

// holdAfterFirst makes every Submit after the next one wait until the test calls the function release, or until the
// test ends.
func (ts *testServer) holdAfterFirst() (release func()) { return ts.holdAfter(1) }

// holdAfter makes every Submit after the next n replies wait until the test calls the function release, or until the
// test ends.
func (ts *testServer) holdAfter(n int) (release func()) {
	gate := make(chan struct{})
	ts.fake.mu.Lock()
	defer ts.fake.mu.Unlock()
	ts.fake.watch = func(store.Reply) {
		if n--; n == 0 {
			ts.fake.hold.Store(&gate)
		}
	}
	release = sync.OnceFunc(func() {
		ts.fake.hold.Store(nil)
		close(gate)
	})
	ts.t.Cleanup(release)
	return release
}
