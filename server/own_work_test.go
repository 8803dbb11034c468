package server

import (
	"fmt"
	"strings"
	"testing"
)

// What a node answers itself counts: who has had much of it gives way before the next such command, also within EXEC.
// Notifications and transactions, of which locks are made, never wait.
func TestOwnWorkRests(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		value := strings.Repeat("x", 200_000)
		lock := ts.dial(t)
		for i := range 300 {
			channel := fmt.Sprintf("redisson_lock__channel:{%d}", i)
			lock.send(array("SUBSCRIBE", channel))
			lock.expect("*3\r\n" + bulk("subscribe") + bulk(channel) + fmt.Sprintf(":%d\r\n", i+1))
		}
		txn := ts.dial(t)
		for range 300 {
			txn.send("MULTI\r\nGET k\r\nEXEC\r\n")
			txn.expect("+OK\r\n+QUEUED\r\n*1\r\n$-1\r\n")
		}
		if n := ts.fake.rested.Load(); n != 0 {
			t.Errorf("clients with notifications and transactions have given way for %d ns", n)
		}
		c := ts.dial(t)
		c.send(array("ECHO", value) + array("ECHO", value) + "PING\r\n")
		c.expect(bulk(value) + bulk(value) + "+PONG\r\n")
		if n := ts.fake.rested.Load(); n < 4_000_000 {
			t.Errorf("a client with 400 KB of replies has given way for %d ns", n)
		}
		c = ts.dial(t)
		before := ts.fake.rested.Load()
		for range 2 {
			c.send("MULTI\r\n" + array("ECHO", value) + "EXEC\r\n")
			c.expect("+OK\r\n+QUEUED\r\n*1\r\n" + bulk(value))
		}
		if n := ts.fake.rested.Load() - before; n < 2_000_000 {
			t.Errorf("a client whose transactions have 400 KB of replies has given way for %d ns", n)
		}
	})
}
