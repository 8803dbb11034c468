package server

import (
	"fmt"
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
		"a release":           func(c *client) { c.do("LOCK.RELEASE k b", "$-1\r\n"); c.do("SET x y", "+OK\r\n") },
		"a release by EXEC": func(c *client) {
			c.do("MULTI", "+OK\r\n")
			c.do("LOCK.RELEASE k b", "+QUEUED\r\n")
			c.do("EXEC", "*1\r\n$-1\r\n")
		},
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

// TestTicketsOfOneOwner: a release ends all tickets of its owner first, so it never gives the lock to who has just released it. A release
// that names the token of a former hold ends none.
func TestTicketsOfOneOwner(t *testing.T) {
	ts, c, _ := ticketServer(t, 0)
	c.do("LOCK.ACQUIRE k b PX 60000 WAIT 50000 QUEUE", "*3\r\n:0\r\n:50000\r\n:0\r\n")
	c.do("LOCK.RELEASE k b TOKEN 3", "$-1\r\n")
	if n := ts.ticketCount(); n != 2 {
		t.Errorf("%d tickets", n)
	}
	ts.elsewhere("LOCK.RELEASE k a")
	c.do("LOCK.RENEW k b PX 60000", ":1\r\n")
	c.do("LOCK.RELEASE k b", ":0\r\n")
	if r := ts.elsewhere("EXISTS k"); r.Int != 0 {
		t.Error("the owner has released the lock, and holds it")
	}
}

// TestTicketIsGivenUpInOrder: a release that comes before the lock is free ends the ticket, although both are run together.
func TestTicketIsGivenUpInOrder(t *testing.T) {
	ts, c, _ := ticketServer(t, 0)
	c.send("LOCK.RELEASE k b\r\nLOCK.RELEASE k a\r\n")
	c.expect("$-1\r\n:0\r\n")
	if r := ts.elsewhere("EXISTS k"); r.Int != 0 {
		t.Error("the owner has given up, and holds the lock")
	}
}

// TestTicketEndsWithAnError: the owner hears that its ticket has ended, and why.
func TestTicketEndsWithAnError(t *testing.T) {
	ts, c, hears := ticketServer(t, 0)
	c.do("LOCK.ACQUIRE k z PX 60000 WAIT 50000 QUEUE SHARED", "*3\r\n:0\r\n:50000\r\n:0\r\n")
	ts.elsewhere("DEL k")
	hears.expect("*3\r\n$7\r\nmessage\r\n$20\r\n__lock@0__:granted:b\r\n$33\r\n" + `{"key":"k","token":4,"ttl":60000}` + "\r\n")
	hears.send("SUBSCRIBE __lock@0__:granted:z\r\n")
	hears.expect("*3\r\n$9\r\nsubscribe\r\n$20\r\n__lock@0__:granted:z\r\n:2\r\n")
	ts.elsewhere("DEL k")
	ts.elsewhere("LOCK.ACQUIRE k y PX 60000 LIMIT 2") // z has got the lock by the DEL: it is SHARED now
	hears.expect("*3\r\n$7\r\nmessage\r\n$20\r\n__lock@0__:granted:z\r\n$33\r\n" + `{"key":"k","token":5,"ttl":60000}` + "\r\n")
	c.do("LOCK.ACQUIRE k w PX 60000 WAIT 50000 QUEUE", "*3\r\n:0\r\n:50000\r\n:0\r\n")
	hears.send("SUBSCRIBE __lock@0__:granted:w\r\n")
	hears.expect("*3\r\n$9\r\nsubscribe\r\n$20\r\n__lock@0__:granted:w\r\n:3\r\n")
	ts.fake.mu.Lock()
	b := ts.fake.waiting[len(ts.fake.waiting)-1]
	ts.fake.mu.Unlock()
	ts.fake.Unblock(b, ts.elsewhere("LOCK.ACQUIRE k w PX 5 LIMIT 2"), nil)
	text := `{"key":"k","error":"LOCKMODE this lock has been taken with SHARED"}`
	hears.expect(fmt.Sprintf("*3\r\n$7\r\nmessage\r\n$20\r\n__lock@0__:granted:w\r\n$%d\r\n%s\r\n", len(text), text))
	until(t, "the end of the ticket", func() bool { return ts.ticketCount() == 0 })
}

// TestTicketsAreFew: a connection has a thousand tickets at most.
func TestTicketsAreFew(t *testing.T) {
	ts, c, _ := ticketServer(t, 0)
	for range mostTickets - 1 {
		c.do("LOCK.ACQUIRE k b PX 60000 WAIT 50000 QUEUE", "*3\r\n:0\r\n:50000\r\n:0\r\n")
	}
	c.do("LOCK.ACQUIRE k b PX 60000 WAIT 50000 QUEUE", "-"+string(errTickets)+"\r\n")
	c.do("LOCK.RELEASE k b", "$-1\r\n")
	until(t, "the end of the tickets", func() bool { return ts.ticketCount() == 0 })
	c.do("LOCK.ACQUIRE k b PX 60000 WAIT 50000 QUEUE", "*3\r\n:0\r\n:50000\r\n:0\r\n")
}

// TestTicketKeepsItsUser: the ticket is that of the user who has taken it, although the connection logs in as another one.
func TestTicketKeepsItsUser(t *testing.T) {
	ts, c, _ := ticketServer(t, 0)
	ts.fake.mu.Lock()
	b := ts.fake.waiting[len(ts.fake.waiting)-1]
	ts.fake.mu.Unlock()
	before, _ := b.Caller()
	c.do("ACL SETUSER other on nopass ~* +@all", "+OK\r\n")
	c.do("AUTH other x", "+OK\r\n")
	if after, _ := b.Caller(); after != before {
		t.Errorf("the ticket is that of %q, and was that of %q", after, before)
	}
}

// TestTicketThatTheLeaderDoesNotKnow: a release by the connection of a ticket ends it, although the leader does not know it at the moment. If
// it is granted nevertheless, the node releases the lock.
func TestTicketThatTheLeaderDoesNotKnow(t *testing.T) {
	ts, c, _ := ticketServer(t, 0)
	ts.fake.forgets.Store(true)
	c.do("LOCK.RELEASE k b", "$-1\r\n")
	until(t, "the end of the ticket", func() bool { return ts.ticketCount() == 0 && ts.fake.blockedClients() == 0 })
	c.do("LOCK.ACQUIRE k b PX 60000 WAIT 50000 QUEUE", "*3\r\n:0\r\n:50000\r\n:0\r\n")
	ts.fake.mu.Lock()
	b := ts.fake.waiting[len(ts.fake.waiting)-1]
	ts.fake.waiting = nil // it is being served
	ts.fake.mu.Unlock()
	c.do("LOCK.RELEASE k b", "$-1\r\n")
	ts.elsewhere("DEL k")
	b.Done(ts.elsewhere("LOCK.ACQUIRE k b PX 60000"))
	until(t, "the release of the lock", func() bool { return ts.elsewhere("EXISTS k").Int == 0 })
}
