package server

import (
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

// TestStrangersWaitForTheCollector: while memory is scarce, newcomers are not accepted, and strangers are not read. Others are served.
func TestStrangersWaitForTheCollector(t *testing.T) {
	var scarce atomic.Bool
	ts := newTestServer(t, func(c *Config) { c.RequirePass, c.scarce = "secret", scarce.Load })
	other, stranger := ts.dial(t), ts.dial(t)
	other.do("AUTH secret", "+OK\r\n")
	stranger.do("PING", "-NOAUTH Authentication required.\r\n")
	scarce.Store(true)
	ts.garbage.bytes.Store(strangersGarbage)
	stranger.send("PING\r\n")
	const many = 20
	for range many { // one may be accepted before the server looks again
		conn, err := net.Dial("tcp", ts.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		other.do("PING", "+PONG\r\n")
	}
	for range 100 {
		other.do("PING", "+PONG\r\n")
	}
	if n := ts.clients(); n > 3 {
		t.Errorf("%d clients were accepted", n)
	}
	_ = stranger.conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if n, err := stranger.conn.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Error("a stranger was served")
	}
	_ = stranger.conn.SetReadDeadline(time.Time{})
	scarce.Store(false)
	stranger.expect("-NOAUTH Authentication required.\r\n")
	ts.await(func() bool { return ts.clients() == 2+many })
}

// TestYielding: strangers wait while memory is scarce, but not forever.
func TestYielding(t *testing.T) {
	scarce := true
	g := garbage{scarce: func() bool { return scarce }}
	now := time.Unix(1, 0)
	var y yielding
	waits := func() (rounds int) {
		for y.must(&g, now) {
			now = now.Add(yieldLook)
			rounds++
		}
		return rounds
	}
	for range 2 {
		g.bytes.Store(strangersGarbage)
		if n, want := waits(), int(yieldMost/yieldLook); n != want {
			t.Errorf("waits for %d rounds, want %d", n, want)
		}
	}
	g.bytes.Store(strangersGarbage)
	y.must(&g, now)
	scarce = false
	if n := waits(); n != 0 || !y.since.IsZero() {
		t.Errorf("goes on waiting for %d rounds", n)
	}
	scarce = true
	g.bytes.Add(strangersGarbage - 1)
	if n := waits(); n != 0 {
		t.Errorf("few strangers wait for %d rounds", n)
	}
}

// TestManySubscriptionsWaitForTheCollector: while memory is scarce, a command that begins many subscriptions waits. Other clients
// are served.
func TestManySubscriptionsWaitForTheCollector(t *testing.T) {
	var scarce atomic.Bool
	ts := newTestServer(t, func(c *Config) { c.scarce = scarce.Load })
	other, subscriber := ts.dial(t), ts.dial(t)
	scarce.Store(true)
	ts.largeGarbage.bytes.Store(strangersGarbage)
	command := []string{"SUBSCRIBE"}
	for i := range 2 * fewNames {
		command = append(command, strconv.Itoa(i))
	}
	subscriber.send(array(command...))
	ts.await(func() bool { return ts.hub.size(subChannel) > 0 })
	for range 100 {
		other.do("PING", "+PONG\r\n")
	}
	if n := ts.hub.size(subChannel); n >= growthStep {
		t.Errorf("%d subscriptions have begun", n)
	}
	scarce.Store(false)
	ts.await(func() bool { return ts.hub.size(subChannel) == 2*fewNames })
}
