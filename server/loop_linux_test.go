package server

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// withoutUring configures a durable node with one loop, as withLoops(1) does. The node does without io_uring, as on a
// kernel that does not allow it.
func withoutUring(c *Config) { c.Loops, c.Durable, c.NoUring = 1, true, true }

// conversation makes n random commands, and returns the bytes to send and the expected reply bytes.
func conversation(r *rand.Rand, key string, n int) (send, want []byte) {
	counter, value := 0, ""
	for range n {
		var in, out string
		switch r.IntN(9) {
		case 0:
			counter++
			in, out = array("INCR", key), fmt.Sprintf(":%d\r\n", counter)
		case 1:
			in, out = array("PING"), "+PONG\r\n"
		case 2:
			value = strings.Repeat("v", r.IntN(40))
			in, out = array("SET", key+"v", value), "+OK\r\n"
		case 3:
			value = strings.Repeat("w", r.IntN(60_000))
			in, out = array("SET", key+"v", value), "+OK\r\n"
		case 4:
			in, out = array("SET", key+"v", value)+array("GET", key+"v"), "+OK\r\n"+bulk(value)
		case 5:
			in, out = "ECHO "+key+"\r\n", bulk(key)
		case 6:
			in, out = array("CLIENT", "GETREDIR"), ":-1\r\n" // a command that a loop gives to a goroutine
		case 7:
			in, out = array("NOSUCH"), "-ERR unknown command 'NOSUCH', with args beginning with: \r\n"
		case 8:
			in, out = array("GET"), "-ERR wrong number of arguments for 'get' command\r\n"
		}
		send, want = append(send, in...), append(want, out...)
	}
	return send, want
}

// TestLoopConversations: the input of many clients is cut at random places. Each client gets its own replies in order,
// whatever the number of loops.
func TestLoopConversations(t *testing.T) {
	for _, change := range []func(*Config){withLoops(-1), withLoops(1), withoutUring, withLoops(3)} {
		ts := newTestServer(t, change)
		loops := ts.cfg.Loops
		var wg sync.WaitGroup
		for i := range 40 {
			r := rand.New(rand.NewPCG(uint64(i), uint64(loops)))
			c := ts.dial(t)
			send, want := conversation(r, fmt.Sprintf("k%d", i), 60)
			wg.Go(func() {
				for _, piece := range chop(send, uint64(i)) {
					if _, err := c.conn.Write(piece); err != nil {
						t.Error(err)
						return
					}
				}
			})
			wg.Go(func() {
				got := make([]byte, len(want))
				if n, err := io.ReadFull(c.conn, got); err != nil || !bytes.Equal(got, want) {
					t.Errorf("%d loops, client %d: %d of %d bytes, %v", loops, i, n, len(want), err)
				}
			})
		}
		wg.Wait()
	}
}

// TestLoopHugePipeline: a client that sends a huge pipeline before it reads gets all its replies, and others do not notice.
func TestLoopHugePipeline(t *testing.T) {
	ts := newTestServer(t, withLoops(1))
	c, other := ts.dial(t), ts.dial(t)
	value := strings.Repeat("x", 10_000)
	other.send(array("SET", "big", value))
	other.expect("+OK\r\n")
	const n = 5000 // 50 MB of replies: more than any socket buffer
	sent := make(chan error, 1)
	go func() {
		_, err := c.conn.Write([]byte(strings.Repeat(array("GET", "big"), n)))
		sent <- err
	}()
	// The server must stop at some point, and still serve others.
	for range 50 {
		other.do("PING", "+PONG\r\n")
	}
	want := bulk(value)
	got := make([]byte, len(want))
	for i := range n {
		if _, err := io.ReadFull(c.conn, got); err != nil || string(got) != want {
			t.Fatalf("reply %d: %.40q, %v", i, got, err)
		}
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	c.do("PING", "+PONG\r\n")
}

// TestLoopSlowReaderKilled: CLIENT KILL closes even a connection whose client does not read its replies.
func TestLoopSlowReaderKilled(t *testing.T) {
	ts := newTestServer(t, withLoops(1))
	slow, other := ts.dial(t), ts.dial(t)
	other.send(array("SET", "big", strings.Repeat("x", 1<<20)))
	other.expect("+OK\r\n")
	slow.do("CLIENT ID", ":1\r\n")
	slow.send(strings.Repeat(array("GET", "big"), 50))
	ts.await(func() bool { return ts.each()[0].out.size() > 0 })
	other.do("CLIENT KILL ID 1", ":1\r\n")
	ts.await(func() bool { return ts.clients() == 1 })
	slow.expectGone()
	other.do("PING", "+PONG\r\n")
}

// TestLoopHalfClosed: a client half-closes its connection, and commands that it sent before are answered.
func TestLoopHalfClosed(t *testing.T) {
	ts := newTestServer(t, withLoops(1))
	for i := range 50 {
		c := ts.dial(t)
		c.send(strings.Repeat(array("INCR", fmt.Sprint("n", i)), 3) + array("ECHO", "x") + "*1\r\n$4\r\nPI")
		if err := closeWrite(c.conn); err != nil {
			t.Fatal(err)
		}
		c.expect(":1\r\n:2\r\n:3\r\n" + bulk("x"))
		c.expectClosed()
	}
	ts.await(func() bool { return ts.clients() == 0 })
}

// TestLoopKillWhileWaiting: CLIENT KILL closes a connection at once, although its command waits. The server forgets the connection after
// the backend's answer.
func TestLoopKillWhileWaiting(t *testing.T) {
	ts := newTestServer(t, withLoops(1))
	c, other := ts.dial(t), ts.dial(t)
	c.do("CLIENT ID", ":1\r\n")
	release := ts.fake.holdBack()
	c.send(array("SET", "k", "v"))
	ts.await(func() bool { return ts.fake.held.Load() == 1 })
	other.do("CLIENT KILL ID 1", ":1\r\n")
	c.expectClosed()
	if n := ts.clients(); n != 2 {
		t.Errorf("%d clients while one waits", n)
	}
	release()
	ts.await(func() bool { return ts.clients() == 1 })
	other.do("GET k", bulk("v"))
}

// TestLoopShutdownDrains: a server that shuts down first answers the clients that wait for a reply.
func TestLoopShutdownDrains(t *testing.T) {
	ts := newTestServer(t, withLoops(2))
	release := ts.fake.holdBack()
	var list []*client
	for i := range 50 {
		c := ts.dial(t)
		c.send(array("SET", fmt.Sprint("k", i), "v") + array("GET", fmt.Sprint("k", i)))
		list = append(list, c)
	}
	ts.await(func() bool { return ts.fake.held.Load() == 50 })
	done := make(chan error, 1)
	go func() { done <- ts.Shutdown(t.Context()) }()
	ts.await(func() bool {
		ts.mu.Lock()
		defer ts.mu.Unlock()
		return ts.closing
	})
	for _, s := range ts.each() {
		ts.await(func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.draining
		})
	}
	release()
	for _, c := range list {
		c.expect("+OK\r\n" + bulk("v"))
		c.expectClosed()
	}
	if err := <-done; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

// TestLoopManyIdle: idle connections have no goroutines. When they end, the server forgets them.
func TestLoopManyIdle(t *testing.T) {
	ts := newTestServer(t, withLoops(2))
	before := runtime.NumGoroutine()
	const n = 2000
	var list []*client
	for range n {
		list = append(list, ts.dial(t))
	}
	for _, c := range list {
		c.do("PING", "+PONG\r\n")
	}
	if more := runtime.NumGoroutine() - before; more > 100 {
		t.Errorf("%d connections have %d goroutines", n, more)
	}
	for _, c := range list {
		if err := c.conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
	ts.await(func() bool { return ts.clients() == 0 })
}

// TestLoopHeldUp: while the backend holds the loop's goroutine, another goroutine serves the other connections.
func TestLoopHeldUp(t *testing.T) {
	ts := newTestServer(t, withLoops(1))
	c, other := ts.dial(t), ts.dial(t)
	for range 5 {
		gate := make(chan struct{})
		ts.fake.stuck.Store(&gate)
		c.send(array("SET", "k", "v"))
		ts.await(func() bool { return ts.fake.held.Load() == 1 })
		for range 20 {
			other.do("PING", "+PONG\r\n")
			other.do("SET other v", "+OK\r\n")
		}
		third := ts.dial(t)
		third.do("ECHO x", bulk("x"))
		// The reply that was ready before the loop was held up is sent, too.
		c.expect("+OK\r\n")
		c.do("PING", "+PONG\r\n")
		close(gate)
		ts.await(func() bool { return ts.fake.held.Load() == 0 })
		c.do("GET k", bulk("v"))
	}
}

// TestLoopHeldUpAgain: the backend holds the goroutine of the loop again and again, for times shorter and longer than the
// watcher waits. Every client gets its replies.
func TestLoopHeldUpAgain(t *testing.T) {
	ts := newTestServer(t, withLoops(1))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		r := rand.New(rand.NewPCG(1, 2))
		for {
			gate := make(chan struct{})
			ts.fake.stuck.Store(&gate)
			select {
			case <-stop:
				close(gate)
				return
			case <-time.After(time.Duration(r.IntN(4)) * watchInterval / 2):
				close(gate)
			}
		}
	})
	var clients sync.WaitGroup
	for i := range 10 {
		c := ts.dial(t)
		clients.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 3))
			for j := range 20 {
				send, want := conversation(r, fmt.Sprintf("k%d.%d", i, j), 5)
				got := make([]byte, len(want))
				if _, err := c.conn.Write(send); err != nil {
					t.Error(err)
					return
				}
				if _, err := io.ReadFull(c.conn, got); err != nil || !bytes.Equal(got, want) {
					t.Errorf("client %d, turn %d: %v", i, j, err)
					return
				}
			}
		})
	}
	clients.Wait()
	close(stop)
	wg.Wait()
}

// TestLoopMessages: a subscriber gets messages through the loop, also when it
// reads slowly.
func TestLoopMessages(t *testing.T) {
	ts := newTestServer(t, withLoops(1))
	sub, pub := ts.dial(t), ts.dial(t)
	sub.do("SUBSCRIBE ch", "*3\r\n$9\r\nsubscribe\r\n$2\r\nch\r\n:1\r\n")
	text := strings.Repeat("m", 5000)
	const n = 2000 // 10 MB
	go func() {
		for range n {
			if _, err := pub.conn.Write([]byte(array("PUBLISH", "ch", text))); err != nil {
				t.Error(err)
			}
		}
	}()
	for range n {
		pub.expect(":1\r\n")
	}
	want := "*3\r\n$7\r\nmessage\r\n$2\r\nch\r\n" + bulk(text)
	for range n {
		sub.expect(want)
	}
	sub.do("PING", "*2\r\n$4\r\npong\r\n$0\r\n\r\n")
}

// TestLoopMessagesToMany: subscribers that read get all messages in order, although other
// subscribers of the same messages read late or leave.
func TestLoopMessagesToMany(t *testing.T) {
	const (
		n         = 600 // 6 MB for each: more than its sockets take
		listeners = 100 // more than one call can send to
	)
	text := func(i int) string { return fmt.Sprint(i, strings.Repeat("m", 10_000)) }
	for _, change := range []func(*Config){withLoops(1), withoutUring} {
		ts := newTestServer(t, change)
		pub := ts.dial(t)
		published := make(chan struct{})
		var wg sync.WaitGroup
		for k := range listeners {
			sub := ts.dial(t)
			late, leaves := k%5 == 1, k%5 == 2
			if late {
				readLittle(t, sub.conn, 256<<10)
			}
			sub.do("SUBSCRIBE ch", "*3\r\n$9\r\nsubscribe\r\n$2\r\nch\r\n:1\r\n")
			wg.Go(func() {
				if late {
					<-published
				}
				for i := range n {
					if leaves && i == n/2 {
						_ = sub.conn.Close()
						return
					}
					want := "*3\r\n$7\r\nmessage\r\n$2\r\nch\r\n" + bulk(text(i))
					got := make([]byte, len(want))
					err := sub.conn.SetReadDeadline(time.Now().Add(time.Minute)) // a missing message would make the test hang
					if _, err2 := io.ReadFull(sub.conn, got); err != nil || err2 != nil || string(got) != want {
						t.Errorf("listener %d, message %d: %.60q, %v, %v", k, i, got, err, err2)
						return
					}
				}
			})
		}
		for i := range n {
			pub.send(array("PUBLISH", "ch", text(i)))
			reached := make([]byte, len(":100\r\n"))
			k, err := pub.conn.Read(reached)
			if err != nil || reached[0] != ':' {
				t.Errorf("message %d: %q, %v", i, reached[:k], err)
				break
			}
		}
		close(published)
		wg.Wait()
	}
}
