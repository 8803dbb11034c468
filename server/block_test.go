package server

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// bothPaths runs a test on event loops and on goroutines.
func bothPaths(t *testing.T, fn func(t *testing.T, ts *testServer)) {
	for name, loops := range map[string]int{"loops": 0, "goroutines": -1} {
		t.Run(name, func(t *testing.T) {
			fn(t, newTestServer(t, func(c *Config) { c.Loops = loops }))
		})
	}
}

// until waits until the condition ok holds. Tests use it for events that no reply shows.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func (ts *testServer) untilBlocked(t *testing.T, n int) {
	t.Helper()
	until(t, fmt.Sprintf("%d blocked clients", n), func() bool { return ts.fake.blockedClients() == n && ts.stats.blocked.Load() == int64(n) })
}

// A client that leaves during a blocking command is not served, however it leaves, and whatever it has sent after that
// command.
func TestBlockedClientLeaves(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		for name, leave := range map[string]func(c *client, other *client){
			"closes": func(c, _ *client) { _ = c.conn.Close() },
			"resets": func(c, _ *client) {
				_ = reset(c.conn)
				_ = c.conn.Close()
			},
			"half-closes": func(c, _ *client) { _ = closeWrite(c.conn) },
			"has sent more": func(c, _ *client) {
				c.send("SET never 1\r\n")
				_ = c.conn.Close()
			},
			"is killed": func(c, other *client) { other.do("CLIENT KILL "+c.conn.LocalAddr().String(), "+OK\r\n") },
		} {
			c, other := ts.dial(t), ts.dial(t)
			c.do("PING\r\nBLPOP list 0", "+PONG\r\n")
			ts.untilBlocked(t, 1)
			leave(c, other)
			until(t, name+" to be noticed", func() bool { return ts.fake.blockedClients() == 0 && ts.stats.blocked.Load() == 0 && ts.clients() <= 1 })
			other.do("RPUSH list x\r\nLPOP list\r\nEXISTS never", ":1\r\n$1\r\nx\r\n:0\r\n")
			_ = other.conn.Close()
			until(t, "nobody", func() bool { return ts.clients() == 0 })
		}
	})
}

// The commands that follow a blocking command are run after it, also if they arrive in pieces.
func TestPipelineBehindBlockingCommand(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		c, other := ts.dial(t), ts.dial(t)
		c.send("CLIENT GETNAME\r\nINCR n\r\nBLPOP list 0\r\nINCR n\r\nCLIENT GETNAME\r\nBLPOP list 0\r\nINC")
		c.expect("$-1\r\n:1\r\n")
		ts.untilBlocked(t, 1)
		c.send("R n\r\n")
		other.do("RPUSH list a", ":1\r\n")
		c.expect("*2\r\n$4\r\nlist\r\n$1\r\na\r\n:2\r\n$-1\r\n")
		ts.untilBlocked(t, 1)
		other.do("RPUSH list b", ":1\r\n")
		c.expect("*2\r\n$4\r\nlist\r\n$1\r\nb\r\n:3\r\n")
	})
}

// A client sends a blocking command and half-closes the connection at once. The command does not wait.
func TestBlockingCommandFromHalfClosed(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		c := ts.dial(t)
		c.send("BLPOP list 0\r\nSET never 1\r\n")
		if err := closeWrite(c.conn); err != nil {
			t.Fatal(err)
		}
		until(t, "the connection to end", func() bool { return ts.clients() == 0 && ts.fake.blockedClients() == 0 })
		ts.dial(t).do("EXISTS never", ":0\r\n")
	})
}

// TestHalfClosedClientHasItsElement: as with Redis, a client that half-closes the connection while the leader looks for an element
// still gets the element.
func TestHalfClosedClientHasItsElement(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		for _, there := range []bool{true, false} {
			c, other := ts.dial(t), ts.dial(t)
			evaluate := ts.fake.lookLater()
			c.send("BLPOP list 0\r\n")
			until(t, "BLPOP", func() bool { return ts.stats.blocked.Load() == 1 })
			if err := closeWrite(c.conn); err != nil {
				t.Fatal(err)
			}
			until(t, "the end of input to be noticed", func() bool { return ts.fake.unreadEnds() == 1 })
			if there {
				other.do("RPUSH list x", ":1\r\n")
			}
			evaluate()
			if there {
				c.expect("*2\r\n$4\r\nlist\r\n$1\r\nx\r\n")
			}
			until(t, "the connection to end", func() bool { return ts.clients() == 1 && ts.stats.blocked.Load() == 0 })
			other.do("EXISTS list", ":0\r\n")
			_ = other.conn.Close()
			until(t, "nobody", func() bool { return ts.clients() == 0 })
		}
	})
}

// A server that shuts down does not wait for clients in a blocking command or in CLIENT PAUSE.
func TestShutdownEndsWaiting(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		c, held, other := ts.dial(t), ts.dial(t), ts.dial(t)
		c.send("BLPOP list 0\r\n")
		ts.untilBlocked(t, 1)
		other.do("CLIENT PAUSE 100000 WRITE", "+OK\r\n")
		held.send("SET never 1\r\n")
		until(t, "the pause to hold", func() bool { return ts.pause.count() == 1 })
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := ts.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		c.expectClosed()
		held.expectClosed()
		if n := ts.fake.blockedClients(); n != 0 {
			t.Errorf("%d clients still wait", n)
		}
	})
}

// Config.Clock decides when CLIENT PAUSE ends.
func TestPauseByTheClock(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		c, other := ts.dial(t), ts.dial(t)
		other.do("CLIENT PAUSE 3600000 WRITE", "+OK\r\n")
		c.send("SET k v\r\nGET k\r\n")
		until(t, "the pause to hold", func() bool { return ts.pause.count() == 1 })
		ts.fake.advance(time.Hour - time.Millisecond)
		other.do("GET k", "$-1\r\n")
		ts.fake.advance(2 * time.Millisecond)
		c.expect("+OK\r\n$1\r\nv\r\n")
		// The command of a client that leaves during the pause is not run later.
		other.do("CLIENT PAUSE 3600000 WRITE", "+OK\r\n")
		c.send("SET k never\r\n")
		until(t, "the pause to hold", func() bool { return ts.pause.count() == 1 })
		_ = c.conn.Close()
		until(t, "the client to be gone", func() bool { return ts.pause.count() == 0 && ts.clients() == 1 })
		other.do("CLIENT UNPAUSE\r\nGET k", "+OK\r\n$1\r\nv\r\n")
	})
}

// A client counts as blocked until its reply is in the output, so that invalidations by its own command follow the reply.
func TestBlockedUntilTheReplyIsThere(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		c, other := ts.dial(t), ts.dial(t)
		c.do("PING\r\nBLPOP list 0", "+PONG\r\n")
		ts.untilBlocked(t, 1)
		var s *session
		for _, x := range ts.each() {
			if x.blocked.Load() != nil {
				s = x
			}
		}
		s.out.mu.Lock() // no reply can be added
		other.send("RPUSH list x\r\n")
		until(t, "the client to be served", func() bool { return ts.stats.blocked.Load() == 0 })
		if s.blocked.Load() == nil {
			t.Error("the client does not count as blocked, and has no reply")
		}
		s.out.mu.Unlock()
		c.expect("*2\r\n" + bulk("list") + bulk("x"))
		until(t, "the end", func() bool { return s.blocked.Load() == nil })
	})
}
