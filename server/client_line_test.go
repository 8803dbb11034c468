package server

import "testing"

// TestLineOfAClientHoldsItsLockShortly: the names that a client has chosen may have megabytes. CLIENT LIST copies them
// without holding the lock that the client's own commands need.
func TestLineOfAClientHoldsItsLockShortly(t *testing.T) {
	ts := newTestServer(t, nil)
	c := ts.dial(t)
	c.do("CLIENT SETNAME name", "+OK\r\n")
	for _, s := range ts.Server.each() {
		names := 0
		s.describeWith(s.srv.cfg.Clock(), 0, func(name string) string {
			if names++; !s.mu.TryLock() {
				t.Errorf("%q is copied with the lock held", name)
				return name
			}
			s.mu.Unlock()
			return name
		})
		if names != 4 {
			t.Errorf("%d names", names)
		}
	}
}
