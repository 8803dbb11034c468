package server

import (
	"errors"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// TestHTTPFillsNoLog: the first of many connections that speak HTTP causes a log line. A minute later, a second line has the number
// of the others.
func TestHTTPFillsNoLog(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		log := new(lines)
		ts := newTestServer(t, func(c *Config) { withLoops(loops)(c); c.Log = slog.New(slog.NewTextHandler(log, nil)) })
		speak := func(n int) {
			for range n {
				c := ts.dial(t)
				c.send("POST / HTTP/1.1\r\n")
				c.expectClosed()
			}
		}
		speak(20)
		ts.seldom.http.sayRest(ts.fake.clock())
		if n := log.count("speaks HTTP"); n != 1 {
			t.Errorf("%d log lines about 20 connections", n)
		}
		ts.fake.advance(seldomSilence)
		ts.seldom.http.sayRest(ts.fake.clock())
		if n := log.count("count=19"); n != 1 {
			t.Errorf("the number of the other connections is in %d lines", n)
		}
		speak(20)
		if n := log.count("speaks HTTP"); n != 2 {
			t.Errorf("%d log lines about 40 connections", n)
		}
	})
}

// noDescriptors is a listener whose Accept fails, as if no descriptor were free. At a given time, the listener counts as closed.
type noDescriptors struct {
	net.Listener
	until time.Time
}

func (l noDescriptors) Accept() (net.Conn, error) {
	if time.Now().After(l.until) {
		return nil, net.ErrClosed
	}
	return nil, errors.New("too many open files")
}

// TestFailedAcceptsFillNoLog: while the server cannot accept connections, it logs that once a minute.
func TestFailedAcceptsFillNoLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(lines)
		cfg := Default()
		cfg.Clock, cfg.Log = time.Now, slog.New(slog.NewTextHandler(log, nil))
		srv := &Server{cfg: cfg, seldom: newSeldomLines(cfg.Log), drained: make(chan struct{})}
		ended := time.AfterFunc(3*time.Minute, func() { close(srv.drained) })
		defer ended.Stop()
		l := &listener{Listener: noDescriptors{until: time.Now().Add(150 * time.Second)}, srv: srv}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		if n := log.count("cannot accept"); n != 3 {
			t.Errorf("%d log lines in two and a half minutes", n)
		}
	})
}
