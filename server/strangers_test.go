package server

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestStrangersHoldLittle: clients that have not authenticated hold, all together, never more than a small share of the memory for
// clients.
func TestStrangersHoldLittle(t *testing.T) {
	arg := "$16384\r\n" + strings.Repeat("x", 16384) + "\r\n"
	for name, half := range map[string]string{
		"large commands": "*10\r\n" + strings.Repeat(arg, 9) + "$16384\r\nxxx",
		"one argument":   "*2\r\n$16000\r\n" + strings.Repeat("x", 15000),
		"inline":         strings.Repeat("x", 60000),
	} {
		t.Run(name, func(t *testing.T) {
			for _, loops := range []int{0, -1} {
				const limit, share = 2 << 20, 2 << 20 / strangersShare
				ts := newTestServer(t, func(c *Config) { c.Loops, c.RequirePass, c.MaxMemoryClients = loops, "secret", limit })
				set := ts.dial(t)
				set.do("AUTH secret", "+OK\r\n")
				for range 100 {
					// A stranger may be cut off while it still writes.
					_, _ = io.WriteString(ts.dial(t).conn, half)
					total, _, _ := ts.holders()
					if held := ts.clientMemory.strangers.Load(); held > share+200_000 || total > share+200_000 {
						t.Fatalf("%d bytes are held by strangers, %d of them large", held, total)
					}
				}
				until(t, "strangers to be cut off", func() bool { return ts.clientMemory.cut.Load() >= 60 })
				c := ts.dial(t)
				c.do("AUTH secret", "+OK\r\n")
				c.do("SET k "+strings.Repeat("x", 50_000), "+OK\r\n")
				set.do(fmt.Sprintf("SET lock %s NX", strings.Repeat("x", 20_000)), "+OK\r\n")
			}
		})
	}
}

// TestStrangersWhoGoOn: a client that has not authenticated is cut off after strangeCommands commands in a second, whatever they are.
func TestStrangersWhoGoOn(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		ts := newTestServer(t, func(c *Config) { withLoops(loops)(c); c.RequirePass = "secret" })
		for _, line := range []string{"PING", "RESET", "GET k", "HELLO 9", "NOSUCH"} {
			c := ts.dial(t)
			go c.conn.Write([]byte(strings.Repeat(line+"\r\n", 3*strangeCommands)))
			if n := len(c.lines()); n > strangeCommands {
				t.Errorf("%d replies to %s", n, line)
			}
		}
		if n := ts.stats.refused.Load(); n != 5 {
			t.Errorf("5 clients are cut off, and %d are counted as rejected", n)
		}
		if _, cut := ts.ClientMemory(); cut != 0 {
			t.Errorf("%d count as cut off for their memory", cut)
		}
		c := ts.dial(t)
		for range 5 {
			for range strangeCommands / 2 {
				c.do("PING", "-NOAUTH Authentication required.\r\n")
			}
			ts.fake.advance(time.Second)
		}
		c.do("AUTH secret", "+OK\r\n")
		c.do(strings.Repeat("PING\r\n", 2*strangeCommands)+"PING", strings.Repeat("+PONG\r\n", 2*strangeCommands+1))
	})
}

// lines reads until the server closes the connection.
func (c *client) lines() (list []string) {
	for r := bufio.NewScanner(c.conn); r.Scan(); {
		list = append(list, r.Text())
	}
	return list
}

// TestStrangersReadTheirReplies: the server runs few commands of an unauthenticated client at a time. It runs the next ones when the
// client has taken the replies.
func TestStrangersReadTheirReplies(t *testing.T) {
	for _, in := range []string{"PING\r\n", array("PING")} {
		r := usualRules()
		r.auth = true
		g := newGuard(&pieces{in: whole(strings.Repeat(in, 100))})
		g.policy, g.direct = r, true
		ran := 0
		for g.end == nil {
			g.parse()
			if ran += len(g.ends); len(g.ends) > unauthBatch {
				t.Fatalf("%d commands at once", len(g.ends))
			}
			if len(g.ends) > 0 {
				g.recycle()
			} else {
				g.fill()
			}
		}
		if ran != 100 {
			t.Errorf("%d of 100 commands were run", ran)
		}
	}
	ts := newTestServer(t, func(c *Config) { c.RequirePass = "secret" })
	c := ts.dial(t)
	c.send(strings.Repeat("PING\r\n", 1000))
	for range 1000 {
		c.expect("-NOAUTH Authentication required.\r\n")
	}
}

// TestLargeCommandsFindNoRoom: while large commands take too much memory, the server reads no further large command, but runs small ones.
func TestLargeCommandsFindNoRoom(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		set := ts.dial(t)
		set.do("CONFIG SET maxmemory-clients 1mb", "+OK\r\n")
		kept := ts.dial(t)
		kept.do("CLIENT NO-EVICT on", "+OK\r\n")
		ts.clientMemory.arriving.Add(2 << 20) // as if by other clients that are about to be cut off
		half := "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$20000\r\n" + strings.Repeat("x", 10_000)
		c := ts.dial(t)
		c.send("PING\r\n" + half)
		c.expect("+PONG\r\n")
		c.expectClosed()
		set.do("SET k v", "+OK\r\n")
		kept.send(half + strings.Repeat("x", 10_000) + "\r\n")
		kept.expect("+OK\r\n")
		ts.clientMemory.arriving.Add(-2 << 20)
		set.send(half + strings.Repeat("x", 10_000) + "\r\n")
		set.expect("+OK\r\n")
	})
}

// TestStrangersGiveWay: clients that have not authenticated keep nobody out. The oldest of them is cut
// off first, and no client that has authenticated.
func TestStrangersGiveWay(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		ts := newTestServer(t, func(c *Config) { c.Loops, c.RequirePass, c.MaxClients = loops, "secret", 4 })
		enter := func() *client {
			c := ts.dial(t)
			c.do("PING", "-NOAUTH Authentication required.\r\n")
			return c
		}
		var friends []*client
		first := enter()
		for range 3 {
			c := enter()
			c.do("AUTH secret", "+OK\r\n")
			friends = append(friends, c)
		}
		for range 3 {
			next := enter()
			first.expectClosed()
			first = next
			ts.await(func() bool { return ts.clients() == 4 })
		}
		first.do("AUTH secret", "+OK\r\n")
		friends = append(friends, first)
		last := ts.dial(t)
		last.expect("-ERR max number of clients reached\r\n")
		last.expectClosed()
		for _, c := range friends {
			c.do("PING", "+PONG\r\n")
		}
		if text := friends[0].ask("INFO", "stats").Text; !strings.Contains(text, "rejected_connections:4\r\n") {
			t.Error("INFO does not count those who gave way")
		}
	})
}

// TestHopelessArguments: the server cuts off a client that announces a command larger than all clients may hold, before the whole command
// has arrived.
func TestHopelessArguments(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		ts := newTestServer(t, withLoops(loops))
		admin := ts.dial(t)
		admin.do("CONFIG SET maxmemory-clients 1mb", "+OK\r\n")
		c := ts.dial(t)
		c.send("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2000000\r\n" + strings.Repeat("x", 100_000))
		c.expectClosed()
		c = ts.dial(t)
		c.send("*1000000\r\n" + strings.Repeat("$0\r\n\r\n", 10_000))
		c.expectClosed()
		ts.dial(t).do("SET k "+strings.Repeat("x", 60_000), "+OK\r\n")
		if held := ts.clientMemory.arriving.Load(); held > 100_000 {
			t.Errorf("%d bytes are held", held)
		}
	})
}

// TestStrangersTakeAShare: beside strangers that send as fast as they can, authenticated clients are served, and new clients with the
// password get in.
func TestStrangersTakeAShare(t *testing.T) {
	var ticks atomic.Int64
	ts := newTestServer(t, func(c *Config) {
		c.RequirePass = "secret"
		start := c.Clock()
		// The clock runs so fast that no stranger sends strangeCommands within a second, so none is cut off.
		c.Clock = func() time.Time { return start.Add(time.Duration(ticks.Add(1)) * 2 * time.Millisecond) }
	})
	c := ts.dial(t)
	c.do("AUTH secret", "+OK\r\n")
	const many = 20
	for range many {
		s := ts.dial(t)
		go func() {
			for { // until it is cut off
				if _, err := s.conn.Write([]byte(strings.Repeat("PING\r\n", unauthBatch))); err != nil {
					return
				}
			}
		}()
		go io.Copy(io.Discard, s.conn)
	}
	refused := func() int64 {
		ts.stats.mu.Lock()
		defer ts.stats.mu.Unlock()
		return ts.stats.errors["NOAUTH"]
	}
	until(t, "the strangers to be there", func() bool { return refused() > 0 })
	before := refused()
	const pings = 200
	for range pings {
		c.do("PING", "+PONG\r\n")
	}
	n := refused() - before
	t.Logf("%d commands of strangers, %d of a client", n, pings)
	if n > pings*many*unauthBatch/10 {
		t.Errorf("%d commands of strangers were run between %d of a client", n, pings)
	}
	ts.dial(t).do("AUTH secret", "+OK\r\n")
}

// TestEmptyLinesTakeAShare: clients that send lines without a command have only the share of strangers.
func TestEmptyLinesTakeAShare(t *testing.T) {
	for name, line := range map[string]string{"empty": "\r\n", "spaces": strings.Repeat(" ", 40) + "\r\n", "array of none": "*0\r\n"} {
		t.Run(name, func(t *testing.T) {
			var ticks atomic.Int64
			ts := newTestServer(t, func(c *Config) {
				c.Loops = 1
				start := c.Clock()
				c.Clock = func() time.Time { return start.Add(time.Duration(ticks.Add(1)) * 100 * time.Microsecond) }
			})
			c := ts.dial(t)
			const many = 20
			flood := []byte(strings.Repeat(line, 1<<20/len(line)))
			for range many {
				s := ts.dial(t)
				go func() {
					for { // until the server ends
						if _, err := s.conn.Write(flood); err != nil {
							return
						}
					}
				}()
			}
			until(t, "the flood to be there", func() bool { return ts.stats.netIn.Load() > 1<<20 })
			before := ts.stats.netIn.Load()
			const pings = 100
			for range pings {
				c.do("PING", "+PONG\r\n")
			}
			n := ts.stats.netIn.Load() - before
			t.Logf("%d bytes of lines, %d commands of a client", n, pings)
			if n > pings*many*inputBuffer {
				t.Errorf("%d bytes of lines were read between %d commands of a client", n, pings)
			}
		})
	}
}
