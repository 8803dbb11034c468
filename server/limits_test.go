package server

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// eachPath runs a test with event loops, where there are any, and without.
func eachPath(t *testing.T, test func(t *testing.T, loops int)) {
	for name, loops := range map[string]int{"loops": 1, "goroutines": -1} {
		t.Run(name, func(t *testing.T) { test(t, loops) })
	}
}

// TestMaxClientsChanges: a new maxclients applies at once to clients that connect later. Clients that are connected stay.
func TestMaxClientsChanges(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		ts := newTestServer(t, withLoops(loops))
		a := ts.dial(t)
		a.do("CONFIG SET maxclients 2", "+OK\r\n")
		b := ts.dial(t)
		b.do("PING", "+PONG\r\n")
		refused := ts.dial(t)
		refused.expect("-ERR max number of clients reached\r\n")
		refused.expectClosed()
		a.do("CONFIG SET maxclients 1", "+OK\r\n")
		b.do("PING", "+PONG\r\n")
		a.do("CONFIG SET maxclients 3", "+OK\r\n")
		ts.dial(t).do("PING", "+PONG\r\n")
		if text := a.ask("INFO", "stats").Text; !strings.Contains(text, "rejected_connections:1\r\n") {
			t.Error("INFO does not count the refused connection")
		}
	})
}

// TestIdleTimeout: the server disconnects idle clients after the timeout. Subscribers, monitors and clients that wait for a
// reply stay.
func TestIdleTimeout(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		ts := newTestServer(t, withLoops(loops))
		idle, sub, mon, busy, op := ts.dial(t), ts.dial(t), ts.dial(t), ts.dial(t), ts.dial(t)
		idle.do("PING", "+PONG\r\n")
		sub.do("SUBSCRIBE c", "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n")
		mon.do("MONITOR", "+OK\r\n")
		op.do("CONFIG SET timeout 10", "+OK\r\n")
		release := ts.fake.holdBack()
		busy.send("GET k\r\n")
		for ts.fake.held.Load() == 0 {
			runtime.Gosched()
		}
		ts.fake.advance(11 * time.Second)
		op.do("PING", "+PONG\r\n")
		ts.checkClients(ts.fake.clock())
		idle.expectClosed()
		release()
		busy.expect("$-1\r\n")
		sub.do("PING", "*2\r\n$4\r\npong\r\n$0\r\n\r\n")
	})
}

// TestNormalOutputLimit: a client whose reply is larger than the hard limit is cut off. Without a limit, a client gets that
// reply.
func TestNormalOutputLimit(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		ts := newTestServer(t, withLoops(loops))
		op := ts.dial(t)
		op.ask("SET", "k", strings.Repeat("v", 4<<20))
		op.do(`CONFIG SET client-output-buffer-limit "normal 3mb 0 0"`, "+OK\r\n")
		hard := ts.dial(t)
		hard.send("GET k\r\n")
		if n, err := io.Copy(io.Discard, hard.conn); n > 3<<20 || err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("got %d bytes, %v", n, err)
		}
		op.do(`CONFIG SET client-output-buffer-limit "normal 0 0 0"`, "+OK\r\n")
		if v := ts.dial(t).ask("GET", "k"); len(v.Text) != 4<<20 {
			t.Errorf("without a limit: %d bytes", len(v.Text))
		}
		if text := op.ask("INFO", "stats").Text; !strings.Contains(text, "client_output_buffer_limit_disconnections:1\r\n") {
			t.Error("INFO does not count the disconnection")
		}
	})
}

// TestFlood: the server stops reading from a client that sends without end and never reads, and serves another client as usual.
func TestFlood(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		ts := newTestServer(t, withLoops(loops))
		other := ts.dial(t)
		other.ask("SET", "k", strings.Repeat("v", 1<<20))
		flood := ts.dial(t)
		readLittle(t, flood.conn, 16<<10)
		sent := make(chan int64, 1)
		go func() {
			line := strings.Repeat("GET k\r\n", 1000)
			total := int64(0)
			for total < 64<<20 {
				n, err := io.WriteString(flood.conn, line)
				total += int64(n)
				if err != nil {
					break
				}
			}
			sent <- total
		}()
		for range 200 {
			other.do("PING", "+PONG\r\n")
			other.do("EXISTS k", ":1\r\n")
		}
		waiting := 0
		for _, s := range ts.each() {
			waiting = max(waiting, s.out.size())
		}
		if waiting > 8<<20 {
			t.Errorf("%d bytes wait for a client that reads nothing", waiting)
		}
		_ = flood.conn.Close()
		if n := <-sent; n >= 64<<20 {
			t.Error("the server took everything that the client sent")
		}
		other.do("PING", "+PONG\r\n")
	})
}

// TestHalfOpen: the server cuts off a vanished client when waiting output has exceeded the soft limit for that limit's time.
func TestHalfOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer near.Close()
		defer far.Close()
		out := newOutbox(near, new(atomic.Int64), new(atomic.Int64))
		now := epoch
		soft := limit{soft: 1000, softFor: time.Minute}
		for range 20 {
			out.push(message{frame: make([]byte, 100)}, soft, now)
		}
		synctest.Wait()
		if !out.checkLimit(soft, now.Add(time.Minute)) {
			t.Error("cut off within the time")
		}
		if out.checkLimit(soft, now.Add(time.Minute+time.Second)) {
			t.Error("not cut off after the time")
		}
		if _, err := far.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the connection is still there: %v", err)
		}
	})
}

// TestQueryLimits: a change of the limits of input applies at once to all clients.
func TestQueryLimits(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		ts := newTestServer(t, withLoops(loops))
		op := ts.dial(t)
		op.do("CONFIG SET proto-max-bulk-len 1mb", "+OK\r\n")
		c := ts.dial(t)
		c.send("*2\r\n$4\r\nECHO\r\n$1048577\r\n")
		c.expect("-ERR Protocol error: invalid bulk length\r\n")
		c.expectClosed()
		op.do("CONFIG SET proto-max-bulk-len 512mb client-query-buffer-limit 1mb", "+OK\r\n")
		c = ts.dial(t)
		c.send("*2\r\n$4\r\nECHO\r\n$2000000\r\n" + strings.Repeat("x", 1<<20+1))
		if _, err := io.Copy(io.Discard, c.conn); err != nil && !strings.Contains(err.Error(), "reset") {
			t.Error(err)
		}
		op.do("CONFIG SET client-query-buffer-limit 1gb", "+OK\r\n")
		if v := ts.dial(t).ask("ECHO", strings.Repeat("x", 2<<20)); len(v.Text) != 2<<20 {
			t.Errorf("got %d bytes", len(v.Text))
		}
	})
}

// TestLineLimits: a line may have 64 KiB. This also holds for a line with the count of arguments or the length of one.
func TestLineLimits(t *testing.T) {
	const most = 64 << 10
	eachPath(t, func(t *testing.T, loops int) {
		ts := newTestServer(t, withLoops(loops))
		for begin, text := range map[string]string{"": "too big inline request", "*": "too big mbulk count string", "*1\r\n$": "too big bulk count string"} {
			c := ts.dial(t)
			c.send(begin + strings.Repeat("1", most+1))
			c.expect("-ERR Protocol error: " + text + "\r\n")
			c.expectClosed()
		}
		c := ts.dial(t)
		word := strings.Repeat("x", most-len("ECHO \r\n"))
		c.do("ECHO "+word, fmt.Sprintf("$%d\r\n%s\r\n", len(word), word))
	})
}

// TestPubSubLimit: the server cuts off a subscriber that does not read, at its hard limit at once, at its soft limit after a while.
func TestPubSubLimit(t *testing.T) {
	for name, c := range map[string]struct {
		limit string
		wait  time.Duration
	}{"hard": {"pubsub 8mb 0 0", 0}, "soft": {"pubsub 0 1mb 60", 61 * time.Second}} {
		t.Run(name, func(t *testing.T) {
			eachPath(t, func(t *testing.T, loops int) {
				ts := newTestServer(t, withLoops(loops))
				slow, other := ts.dial(t), ts.dial(t)
				readLittle(t, slow.conn, 16<<10)
				slow.do("SUBSCRIBE ch", "*3\r\n$9\r\nsubscribe\r\n$2\r\nch\r\n:1\r\n")
				other.do(`CONFIG SET client-output-buffer-limit "`+c.limit+`"`, "+OK\r\n")
				// These messages together are larger than the limits and the socket's buffers.
				for range 200 {
					other.ask("PUBLISH", "ch", strings.Repeat("x", 100_000))
				}
				if c.wait > 0 {
					if n := ts.hub.count(subChannel, "ch"); n != 1 {
						t.Fatalf("%d subscribers before the time", n)
					}
					ts.checkClients(ts.fake.clock())
					ts.fake.advance(c.wait)
					other.do("PING", "+PONG\r\n")
					ts.checkClients(ts.fake.clock())
				}
				slow.expectGone()
				ts.await(func() bool { return ts.hub.count(subChannel, "ch") == 0 })
				if n := ts.stats.outputLimit.Load(); n != 1 {
					t.Errorf("%d clients were cut off", n)
				}
				other.do("PUBLISH ch x", ":0\r\n")
			})
		})
	}
}

// TestManyConnections: connections beyond maxclients get an error and leave nothing behind; those within the limit go on.
func TestManyConnections(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		ts := newTestServer(t, withLoops(loops))
		first := ts.dial(t)
		first.do("CONFIG SET maxclients 10", "+OK\r\n")
		for i := range 300 {
			c := ts.dial(t)
			if i < 9 {
				c.do("PING", "+PONG\r\n")
				continue
			}
			c.expect("-ERR max number of clients reached\r\n")
			c.expectClosed()
		}
		first.do("PING", "+PONG\r\n")
		if n := len(ts.each()); n != 10 {
			t.Errorf("%d sessions", n)
		}
		if n := ts.stats.refused.Load(); n != 291 {
			t.Errorf("%d connections were refused", n)
		}
	})
}
