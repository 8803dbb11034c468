package server

import (
	"strings"
	"testing"
)

// ticketServer is a server on which an owner holds a lock, with a client that has a ticket for it and one that hears of the grant.
func ticketServer(t *testing.T, loops int) (ts *testServer, c, hears *client) {
	ts, _ = lockServer(t, loops)
	ts.elsewhere("LOCK.ACQUIRE k a PX 60000")
	hears, c = ts.dial(t), ts.dial(t)
	hears.send("SUBSCRIBE __lock@0__:granted:b\r\n")
	hears.expect("*3\r\n$9\r\nsubscribe\r\n$20\r\n__lock@0__:granted:b\r\n:1\r\n")
	c.do("LOCK.ACQUIRE k b PX 60000 WAIT 50000 QUEUE", "*3\r\n:0\r\n:50000\r\n:0\r\n")
	return ts, c, hears
}

// tickets returns how many tickets the sessions have.
func (ts *testServer) ticketCount() (n int) {
	ts.tickets.mu.Lock()
	defer ts.tickets.mu.Unlock()
	for _, list := range ts.tickets.of {
		n += len(list)
	}
	return n
}

// TestTicket: a client with a ticket goes on at once, and gets the lock and a message when it is free.
func TestTicket(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		ts, c, hears := ticketServer(t, loops)
		c.do("LOCK.RENEW k b PX 60000", ":0\r\n")
		c.do("SET x y", "+OK\r\n")
		ts.elsewhere("LOCK.RELEASE k a")
		hears.expect("*3\r\n$7\r\nmessage\r\n$20\r\n__lock@0__:granted:b\r\n$33\r\n" + `{"key":"k","token":5,"ttl":60000}` + "\r\n")
		c.do("LOCK.RENEW k b PX 60000", ":1\r\n")
		if n := ts.ticketCount(); n != 0 {
			t.Errorf("%d tickets", n)
		}
		c.do("LOCK.RELEASE k b", ":0\r\n")
		c.do("LOCK.ACQUIRE k b PX 60000 WAIT 50000 QUEUE", "*3\r\n:6\r\n:60000\r\n:1\r\n") // free: there is no ticket
	})
}

// TestTicketEnds: a ticket ends with its connection, with its time, and with a release.
func TestTicketEnds(t *testing.T) {
	for name, ends := range map[string]func(c *client){
		"the connection ends": func(c *client) { c.conn.Close() },
		"a release":           func(c *client) { c.do("LOCK.RELEASE k b", "$-1\r\n") },
		"its time is over": func(c *client) {
			c.do("LOCK.RELEASE k b", "$-1\r\n")
			c.do("LOCK.ACQUIRE k b PX 60000 WAIT 1 QUEUE", "*3\r\n:0\r\n:1\r\n:0\r\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachPath(t, func(t *testing.T, loops int) {
				ts, c, _ := ticketServer(t, loops)
				ends(c)
				until(t, "the end of the ticket", func() bool { return ts.ticketCount() == 0 && ts.fake.blockedClients() == 0 })
				ts.elsewhere("LOCK.RELEASE k a")
				if r := ts.elsewhere("EXISTS k"); r.Int != 0 {
					t.Error("a client without a ticket has the lock")
				}
			})
		})
	}
}

// TestTicketsTakeMemory: tickets count as memory of their client, and no more when they have ended.
func TestTicketsTakeMemory(t *testing.T) {
	ts, c, _ := ticketServer(t, 0)
	var s *session
	ts.tickets.mu.Lock()
	for s = range ts.tickets.of {
	}
	ts.tickets.mu.Unlock()
	before := s.held.bytes.Load()
	owner := strings.Repeat("o", 1000)
	for range 100 {
		c.do("LOCK.ACQUIRE k "+owner+" PX 60000 WAIT 50000 QUEUE", "*3\r\n:0\r\n:50000\r\n:0\r\n")
	}
	if more := s.held.bytes.Load() - before; more < 100*1000 {
		t.Errorf("100 tickets take %d bytes", more)
	}
	c.do("LOCK.RELEASE k "+owner, "$-1\r\n")
	until(t, "the end of the tickets", func() bool { return ts.ticketCount() == 1 })
	if more := s.held.bytes.Load() - before; more > 10_000 {
		t.Errorf("without tickets: %d bytes", more)
	}
	c.do("LOCK.ACQUIRE k "+owner+"oooooooooooooooooooooooooo PX 60000 WAIT 50000 QUEUE",
		"-ERR the name and the owner of a lock with WAIT, SHARED, LIMIT, MAXHOLD or DELAY have at most 1024 bytes each\r\n")
	c.do("LOCK.ACQUIRE k z PX 60000 QUEUE", "-ERR QUEUE needs WAIT, which says for how long the ticket is valid\r\n")
	c.do("LOCK.ACQUIRE k z PX 60000 QUEUE WAIT 5 SESSION", "-ERR QUEUE and SESSION exclude each other: after the message, renew the lock yourself (LOCK.RENEW)\r\n")
}
