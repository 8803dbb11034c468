package server

import (
	"net"
	"testing"

	"lockstep/store"
)

// join adds a session of a stranger that no loop serves.
func (ts *testServer) join(t *testing.T) (s *session, refusal store.Error) {
	near, far := net.Pipe()
	t.Cleanup(func() { near.Close(); far.Close() })
	s = ts.newSession(newGuard(near))
	refusal, _ = ts.register(s)
	return s, refusal
}

// Strangers come and go faster than the node lets those go that it has cut off. A new client waits for one of them, and is not
// refused.
func TestNewcomersWaitForRoom(t *testing.T) {
	ts := newTestServer(t, func(c *Config) { c.RequirePass, c.MaxClients = "secret", 16 })
	var strangers []*session
	for range 19 { // three have been cut off
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

// Who has hung up is cut off before those who may still send a password.
func TestWhoHasHungUpGivesWayFirst(t *testing.T) {
	ts := newTestServer(t, func(c *Config) { c.RequirePass, c.MaxClients = "secret", 4 })
	var strangers []*session
	for range 4 {
		s, _ := ts.join(t)
		defer ts.unregister(s)
		strangers = append(strangers, s)
	}
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
