package server

import (
	"crypto/tls"
	"io"
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNoDescriptorForTLSFillsNoLog: if no descriptor is free when a TLS handshake ends, the server closes the connection. Many such
// connections cause one log line.
func TestNoDescriptorForTLSFillsNoLog(t *testing.T) {
	ts, log, _, good := secretServer(t, 1)
	var conns []net.Conn
	for range 5 {
		c, err := net.Dial("tcp", ts.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
	}
	until(t, "the handshakes to begin", func() bool {
		ts.hands.mu.Lock()
		defer ts.hands.mu.Unlock()
		return ts.hands.count == len(conns)
	})
	withoutDescriptors(t, func() {
		for _, c := range conns {
			secret := tls.Client(c, good)
			_ = secret.Handshake() // may fail: the server closes the connection when the handshake ends
			if got, _ := io.ReadAll(secret); len(got) > 0 {
				t.Errorf("%q", got)
			}
		}
	})
	until(t, "the failures to be counted", func() bool {
		l := &ts.seldom.takeIn
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.events == len(conns)-1
	})
	if n := log.count("cannot take a TLS connection in"); n != 1 {
		t.Errorf("%d log lines", n)
	}
	ts.fake.advance(seldomSilence)
	ts.seldom.takeIn.sayRest(ts.fake.clock())
	if n := log.count("count=4"); n != 1 {
		t.Errorf("the number of the other failures is in %d lines", n)
	}
}

// withoutDescriptors calls fn while this process cannot open a further descriptor.
func withoutDescriptors(t *testing.T, fn func()) {
	t.Helper()
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
			t.Fatal(err)
		}
	}()
	fn()
}
