package server

import (
	"net/netip"
	"testing"
	"time"
)

// crowd connects n clients, one after the other. Each client sends the text in the argument says. crowd waits until the server has
// accepted each connection.
func (ts *testServer) crowd(t *testing.T, n int, says string) (list []*client) {
	for range n {
		before := ts.stats.connections.Load()
		c := ts.dial(t)
		c.send(says)
		ts.await(func() bool { return ts.stats.connections.Load() > before })
		list = append(list, c)
	}
	return list
}

// newSmallServer starts a server with the password "secret" and with room for 16 clients.
func newSmallServer(t *testing.T, loops int) *testServer {
	ts := newTestServer(t, func(c *Config) {
		c.Loops, c.RequirePass, c.MaxClients, c.patience = loops, "secret", 16, time.Minute
	})
	<-ts.learned
	return ts
}

// TestLoginsKeepTheirPlaces: a client with a right password keeps its place beside strangers while the node asks the leader.
func TestLoginsKeepTheirPlaces(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		ts := newSmallServer(t, loops)
		release := ts.fake.holdBack()
		var right []*client
		for _, login := range []string{"AUTH secret\r\n", "AUTH default secret\r\n", "HELLO 2 AUTH default secret\r\n"} {
			right = append(right, ts.crowd(t, 1, login)...)
		}
		wrong := ts.crowd(t, 1, "AUTH wrong\r\n")[0]
		ts.await(func() bool { return ts.looks.waiting.Load() == 4 })
		ts.crowd(t, 30, "")
		release()
		for i, c := range right {
			if i < 2 {
				c.expect("+OK\r\n")
			} else {
				c.until("modules\r\n*0\r\n")
			}
			c.do("PING", "+PONG\r\n")
		}
		wrong.expectClosed()
	})
}

// TestWhoHadATurnGoesFirst: new clients get the places of strangers that have had a turn, not of those of which nothing has been read.
func TestWhoHadATurnGoesFirst(t *testing.T) {
	for name, says := range map[string]string{"part": "*2\r\n$4\r\nAUTH\r\n$100\r\nx", "wrong": "AUTH wrong\r\n", "other": "PING\r\n"} {
		t.Run(name, func(t *testing.T) {
			eachPath(t, func(t *testing.T, loops int) {
				data := newSmallServer(t, loops)
				srv := NewSentinel(data.cfg, data.fake, "mymaster", false)
				sentinel := &testServer{Server: srv, t: t, addr: data.face(t, srv, FacePlain)}
				for _, ts := range []*testServer{data, sentinel} {
					late := ts.crowd(t, 1, "")[0]
					for range 4 {
						ts.crowd(t, 10, says)
						ts.await(func() bool {
							ts.mu.Lock()
							defer ts.mu.Unlock()
							return ts.cutOff == 0 && len(ts.sessions)-ts.strangers.heard.Len() <= 1
						})
					}
					late.do("AUTH secret", "+OK\r\n")
				}
			})
		})
	}
}

// TestWithdrawnPasswordsLoseTheirPlaces: once the leader has answered, a client with a withdrawn password is a stranger like the others.
func TestWithdrawnPasswordsLoseTheirPlaces(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		ts := newTestServer(t, func(c *Config) { c.Loops, c.RequirePass = loops, "secret" })
		<-ts.learned
		ts.elsewhere("ACL SETUSER op on >p")
		ts.fake.lags.Store(true)
		ts.elsewhere("ACL SETUSER op off")
		c := ts.dial(t)
		c.do("AUTH op p", "-"+string(errWrongPass)+"\r\n")
		ts.await(func() bool {
			ts.mu.Lock()
			defer ts.mu.Unlock()
			return ts.strangers.heard.Len() == 1
		})
	})
}

// TestFamiliarAddressesGoLast: strangers at addresses of earlier logins are cut off after the others, unless they have more than half of
// the places.
func TestFamiliarAddressesGoLast(t *testing.T) {
	ts := newTestServer(t, func(c *Config) { c.RequirePass, c.MaxClients = "secret", 16 })
	<-ts.learned
	ts.dial(t).do("AUTH secret", "+OK\r\n")
	ts.mu.Lock()
	_, met := ts.strangers.met[netip.MustParseAddr("127.0.0.1")]
	ts.mu.Unlock()
	if !met {
		t.Error("the address of a login is not familiar")
	}
	join := func(from string) *session {
		s, _ := ts.joinFrom(t, netip.MustParseAddr(from))
		t.Cleanup(func() { ts.unregister(s) })
		return s
	}
	cut := func(s *session) bool {
		ts.mu.Lock()
		defer ts.mu.Unlock()
		return s.cutOff
	}
	var near, far []*session
	for range 7 {
		near = append(near, join("127.0.0.1"))
		far = append(far, join("192.0.2.1"))
	}
	join("127.0.0.1") // now all places are taken; one is that of the client that has logged in
	if join("192.0.2.1"); !cut(far[0]) || cut(near[0]) {
		t.Error("an older client at a familiar address is cut off first")
	}
	far[0].waitsIn(nil)
	ts.unregister(far[0])
	if join("127.0.0.1"); !cut(far[1]) {
		t.Error("half of the places are too many for familiar addresses")
	}
	ts.unregister(far[1])
	if join("192.0.2.1"); !cut(near[0]) || cut(far[2]) {
		t.Error("clients at familiar addresses keep more than half of the places")
	}
}

// TestFamiliarAddressesAreBounded: the node remembers a limited number of addresses, even if somebody logs in from more.
func TestFamiliarAddressesAreBounded(t *testing.T) {
	ts := newTestServer(t, nil)
	at := netip.MustParseAddr("10.0.0.0")
	for range maxMet + 10 {
		at = at.Next()
		ts.meets(at)
	}
	ts.meets(netip.Addr{})
	if _, last := ts.strangers.met[at]; !last || len(ts.strangers.met) != maxMet {
		t.Errorf("%d addresses, the last one among them: %t", len(ts.strangers.met), last)
	}
}
