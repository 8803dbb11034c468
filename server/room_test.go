package server

import (
	"net"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// join adds a session of a stranger that no loop serves.
func (ts *testServer) join(t *testing.T) (s *session, refusal store.Error) {
	return ts.joinFrom(t, netip.Addr{})
}

// joinFrom does what the method join does, for a client with a given address.
func (ts *testServer) joinFrom(t *testing.T, from netip.Addr) (s *session, refusal store.Error) {
	near, far := net.Pipe()
	t.Cleanup(func() { near.Close(); far.Close() })
	s = ts.newSession(newGuard(near))
	s.from = from
	refusal, _ = ts.register(s)
	return s, refusal
}

// TestNewcomersWaitForRoom: strangers come faster than the sessions of cut-off strangers end. A new client waits for the end of such
// a session, and is not refused.
func TestNewcomersWaitForRoom(t *testing.T) {
	ts := newTestServer(t, func(c *Config) { c.RequirePass, c.MaxClients = "secret", 16 })
	var strangers []*session
	for range 19 { // the last three come in because three others are cut off
		s, refusal := ts.join(t)
		if refusal != "" {
			t.Fatal(refusal)
		}
		strangers = append(strangers, s)
	}
	in := make(chan store.Error, 2)
	for range 2 {
		go func() {
			s, refusal := ts.join(t)
			in <- refusal
			ts.unregister(s)
		}()
	}
	until(t, "newcomers to wait", func() bool {
		ts.mu.Lock()
		defer ts.mu.Unlock()
		return ts.waiting == 2 || len(in) > 0
	})
	ts.unregister(strangers[0])
	ts.unregister(strangers[1])
	for range 2 {
		if refusal := <-in; refusal != "" {
			t.Errorf("a newcomer is refused: %s", refusal)
		}
	}
	for _, s := range strangers[2:] {
		ts.unregister(s)
	}
	if ts.cutOff != 0 {
		t.Errorf("%d count as cut off", ts.cutOff)
	}
}

// TestFewNewcomersWaitForRoom: if sessions that were cut off do not end, only some newcomers wait for room.
func TestFewNewcomersWaitForRoom(t *testing.T) {
	ts := newTestServer(t, func(c *Config) { c.RequirePass, c.MaxClients, c.MaxHandshakes = "secret", 16, 8 })
	for range 19 { // the last three come in because three others are cut off
		s, _ := ts.join(t)
		defer ts.unregister(s)
	}
	const newcomers = 50
	refused := make(chan store.Error, newcomers)
	for range newcomers {
		go func() {
			s, refusal := ts.join(t)
			refused <- refusal
			ts.unregister(s)
		}()
	}
	until(t, "newcomers to be refused at once", func() bool {
		ts.mu.Lock()
		defer ts.mu.Unlock()
		if ts.waiting > ts.hands.fromOne() {
			t.Fatalf("%d newcomers wait", ts.waiting)
		}
		return len(refused) >= newcomers-ts.hands.fromOne()
	})
	for range newcomers {
		if refusal := <-refused; refusal != errMaxClients {
			t.Errorf("a newcomer is told %q", refusal)
		}
	}
}

// fullOfStrangers returns a server that has room for four clients, and has four strangers.
func fullOfStrangers(t *testing.T) (ts *testServer, strangers []*session) {
	ts = newTestServer(t, func(c *Config) { c.RequirePass, c.MaxClients = "secret", 4 })
	for range 4 {
		s, _ := ts.join(t)
		t.Cleanup(func() { ts.unregister(s) })
		strangers = append(strangers, s)
	}
	return ts, strangers
}

// TestWhoHasHungUpGivesWayFirst: a client that has hung up is cut off before clients that may still send a password.
func TestWhoHasHungUpGivesWayFirst(t *testing.T) {
	ts, strangers := fullOfStrangers(t)
	ts.hungUp(strangers[2])
	s, refusal := ts.join(t)
	defer ts.unregister(s)
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for i, x := range strangers {
		if x.cutOff != (i == 2) {
			t.Errorf("stranger %d is cut off: %v", i, x.cutOff)
		}
	}
	if refusal != "" {
		t.Error(refusal)
	}
}

// TestWhoLeavesBeforeItsPasswordIsRead: a client that hangs up before its password is read gives its place to a new client.
func TestWhoLeavesBeforeItsPasswordIsRead(t *testing.T) {
	ts, clients := fullOfStrangers(t)
	ts.hungUp(clients[2])
	for _, s := range clients {
		s.authed.Store(true)
	}
	clients[2].out.abort()
	s, refusal := ts.join(t)
	defer ts.unregister(s)
	if refusal != "" {
		t.Fatal(refusal)
	}
	ts.await(func() bool { return clients[2].client.IsGone() })
	for i, s := range clients {
		if s.client.IsGone() != (i == 2) {
			t.Errorf("client %d has been cut off: %t", i, s.client.IsGone())
		}
	}
}

// TestClientsThatHaveLeftGiveRoom: new clients get the places of clients that have left while their scripts wait.
func TestClientsThatHaveLeftGiveRoom(t *testing.T) {
	ts := newTestServer(t, func(c *Config) { withLoops(1)(c); c.MaxClients = 16 })
	admin := ts.dial(t)
	admin.do("PING", "+PONG\r\n")
	release := ts.fake.holdBack()
	stays := ts.dial(t)
	stays.send("EVAL \"return 0\" 0\r\n")
	for i := range 14 {
		c := ts.dial(t)
		c.send("EVAL \"return " + strconv.Itoa(i) + "\" 0\r\n")
		_ = c.conn.Close()
	}
	ts.await(func() bool {
		ts.mu.Lock()
		defer ts.mu.Unlock()
		return ts.departed.Len() == 14 && len(ts.sessions) == 16
	})
	for range 3 {
		ts.dial(t).do("PING", "+PONG\r\n")
	}
	gone := func() (n int) {
		for _, s := range ts.each() {
			if s.client.IsGone() {
				n++
			}
		}
		return n
	}
	ts.await(func() bool { return gone() == 7 })
	ts.mu.Lock()
	if n := ts.departed.Len(); n != 7 {
		t.Errorf("half of 14 were cut off, and %d are left", n)
	}
	ts.mu.Unlock()
	admin.do("CLIENT KILL SKIPME yes", ":18\r\n")
	if n := gone(); n < 15 { // the clients with scripts; the sessions of the others may have ended
		t.Errorf("%d clients are known to be gone after CLIENT KILL", n)
	}
	release()
	ts.await(func() bool { return len(ts.each()) == 1 })
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.departed.Len() != 0 || ts.cutOff != 0 {
		t.Errorf("%d have left, %d count as cut off", ts.departed.Len(), ts.cutOff)
	}
}

// TestExpelledGetNoMessages: a client that loses its rights while its pipeline runs gets no more messages. It may have lost the
// right to the channel.
func TestExpelledGetNoMessages(t *testing.T) {
	ts := newTestServer(t, nil)
	s, _ := ts.join(t)
	s.running = true
	if s.expel() {
		t.Fatal("a connection with a running pipeline is closed at once")
	}
	s.out.hold() // because nobody reads the other end of the pipe
	s.out.push(message{frame: []byte("message")}, limit{}, time.Time{})
	if n := s.out.size(); n != 0 {
		t.Errorf("%d bytes wait for it", n)
	}
}
