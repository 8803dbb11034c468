package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/conformance/transcript"
	"github.com/lockstep-io/lockstep/store"
)

// pipe connects a client over a pipe without a buffer. wrap may replace the server's end.
func (ts *testServer) pipe(t *testing.T, wrap func(net.Conn) net.Conn) *client {
	t.Helper()
	here, there := net.Pipe()
	if wrap != nil {
		there = wrap(there)
	}
	done := make(chan error, 1)
	go func() { done <- ts.ServeConn(there) }()
	t.Cleanup(func() {
		_ = here.Close()
		if err := <-done; err != nil {
			t.Errorf("ServeConn: %v", err)
		}
	})
	return &client{t: t, conn: here}
}

// countedConn counts writes.
type countedConn struct {
	net.Conn
	writes *atomic.Int32
}

func (c countedConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

func TestPipelineIsOneUnit(t *testing.T) {
	ts := newTestServer(t, nil)
	ts.fake.whole.Store(true)
	var writes atomic.Int32
	c := ts.pipe(t, func(n net.Conn) net.Conn { return countedConn{n, &writes} })
	c.send(array("SET", "a", "1") + array("INCR", "a") + array("GET", "a"))
	c.expect("+OK\r\n:2\r\n$1\r\n2\r\n")
	c.send(array("INCR", "a") + array("PING") + array("NOSUCH") + array("INCR", "a") + array("INCR", "a"))
	c.expect(":3\r\n+PONG\r\n-ERR unknown command 'NOSUCH', with args beginning with: \r\n:4\r\n:5\r\n")
	if got, want := ts.fake.batch, []int{3, 1, 2}; !slices.Equal(got, want) {
		t.Errorf("submissions of %v commands, want %v", got, want)
	}
	if n := writes.Load(); n != 2 {
		t.Errorf("%d writes for 2 pipelines", n)
	}
}

func TestLargeArguments(t *testing.T) {
	ts := newTestServer(t, nil)
	c := ts.dial(t)
	for _, size := range []int{16 << 10, 16<<10 + 1, 1 << 20, 5 << 20} {
		v := strings.Repeat("x", size)
		c.send(array("SET", "k", v) + array("GET", "k") + array("PING"))
		c.expect("+OK\r\n" + bulk(v) + "+PONG\r\n")
	}
}

// TestFramesStayWhole: a client gets messages and replies at the same time. Each of them arrives as a whole.
func TestFramesStayWhole(t *testing.T) {
	ts := newTestServer(t, nil)
	c := ts.dial(t)
	const messages = 2000
	c.send("HELLO 3\r\nSUBSCRIBE ch\r\n")
	r := bufio.NewReader(c.conn)
	for range 2 {
		if _, err := transcript.ReadValue(r); err != nil {
			t.Fatal(err)
		}
	}
	go func() {
		for i := range messages {
			ts.hub.Publish(store.Channel, "ch", fmt.Sprintf("%d %s", i, strings.Repeat("m", i%300)))
		}
	}()
	go func() {
		for range messages / 10 {
			if _, err := c.conn.Write([]byte(strings.Repeat(array("ECHO", "reply"), 10))); err != nil {
				return
			}
		}
	}()
	next, replies := 0, 0
	for next < messages || replies < messages {
		v, err := transcript.ReadValue(r)
		if err != nil {
			t.Fatalf("after %d messages and %d replies: %v", next, replies, err)
		}
		switch {
		case v.Type == '$' && v.Text == "reply":
			replies++
		case v.Type == '>' && strings.HasPrefix(v.Elems[2].Text, fmt.Sprintf("%d ", next)):
			next++
		default:
			t.Fatalf("after %d messages and %d replies: %q", next, replies, v.Lines())
		}
	}
}

// TestSlowSubscriber: a subscriber that does not read is cut off at the hard
// limit, and nobody waits for it.
func TestSlowSubscriber(t *testing.T) {
	ts := newTestServer(t, nil)
	slow, other := ts.pipe(t, nil), ts.dial(t)
	slow.send("SUBSCRIBE ch\r\n")
	slow.expect("*3\r\n$9\r\nsubscribe\r\n$2\r\nch\r\n:1\r\n")
	other.do("CONFIG SET client-output-buffer-limit \"pubsub 1mb 0 0\"", "+OK\r\n")
	for ts.hub.count(subChannel, "ch") == 1 && ts.stats.outputLimit.Load() == 0 {
		other.send(array("PUBLISH", "ch", strings.Repeat("x", 100_000)))
		buf := make([]byte, 4)
		if _, err := other.conn.Read(buf); err != nil {
			t.Fatal(err)
		}
	}
	slow.expectGone()
	ts.await(func() bool { return ts.hub.count(subChannel, "ch") == 0 })
	other.do("PUBLISH ch x", ":0\r\n")
}

// TestSoftLimit: a client may exceed the soft limit for the configured time, but not longer.
func TestSoftLimit(t *testing.T) {
	ts := newTestServer(t, nil)
	slow, other := ts.pipe(t, nil), ts.dial(t)
	slow.send("SUBSCRIBE ch\r\n")
	slow.expect("*3\r\n$9\r\nsubscribe\r\n$2\r\nch\r\n:1\r\n")
	other.do("CONFIG SET client-output-buffer-limit \"pubsub 10mb 1kb 60\"", "+OK\r\n")
	ts.hub.Publish(store.Channel, "ch", strings.Repeat("x", 5000))
	ts.fake.advance(59 * time.Second)
	ts.checkClients(ts.fake.clock())
	if n := ts.stats.outputLimit.Load(); n != 0 {
		t.Fatalf("%d clients cut off after 59 seconds", n)
	}
	ts.fake.advance(2 * time.Second)
	ts.checkClients(ts.fake.clock())
	if n := ts.stats.outputLimit.Load(); n != 1 {
		t.Fatalf("%d clients cut off after 61 seconds, want 1", n)
	}
	slow.expectGone()
}

// TestSubscriberThatMissesMessages: a node that has missed messages ends its subscribers' connections. A removed node accepts no
// subscribers.
func TestSubscriberThatMissesMessages(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		var listening []*client
		for word, name := range map[string]string{"SUBSCRIBE": "ch", "PSUBSCRIBE": "c*", "SSUBSCRIBE": "sh"} {
			c := ts.dial(t)
			c.do(word+" "+name, "*3\r\n"+bulk(strings.ToLower(word))+bulk(name)+":1\r\n")
			listening = append(listening, c)
		}
		other := ts.dial(t)
		other.do("PING", "+PONG\r\n")
		ts.hub.Missed()
		for _, c := range listening {
			c.expectClosed()
		}
		other.do("PING", "+PONG\r\n")
		ts.await(func() bool { return ts.clients() == 1 })
		other.do("PUBLISH ch x", ":0\r\n")
		again := ts.dial(t)
		again.do("SUBSCRIBE ch", "*3\r\n"+bulk("subscribe")+bulk("ch")+":1\r\n")
		ts.hub.Publish(store.Channel, "ch", "x")
		again.expect("*3\r\n" + bulk("message") + bulk("ch") + bulk("x"))

		ts.fake.removed.Store(true)
		for _, word := range []string{"SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE"} {
			other.do(word+" ch", "-"+string(cluster.ErrRemoved)+"\r\n")
		}
		other.do("PUBSUB NUMSUB ch", "*2\r\n"+bulk("ch")+":1\r\n")
	})
}

// expectGone reads until the connection ends, whatever comes before that.
func (c *client) expectGone() {
	c.t.Helper()
	deadline := time.AfterFunc(10*time.Second, func() { _ = c.conn.Close() })
	defer deadline.Stop()
	buf := make([]byte, 1<<20)
	from := c.conn
	if secret, ok := from.(secretConn); ok {
		from = secret.tcp // reading whole records takes long, because they are larger than the receive buffer
	}
	for {
		if _, err := from.Read(buf); err != nil {
			break
		}
	}
	if !deadline.Stop() {
		c.t.Fatal("the connection stays open")
	}
}

// await waits until the function done returns true. Another goroutine is about to bring that about.
func (ts *testServer) await(done func() bool) {
	ts.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			ts.t.Fatal("it has not come about")
		}
	}
}

func TestIdleClients(t *testing.T) {
	ts := newTestServer(t, nil)
	idle, busy, listening := ts.dial(t), ts.dial(t), ts.dial(t)
	idle.do("CONFIG SET timeout 10", "+OK\r\n")
	busy.do("PING", "+PONG\r\n")
	listening.do("SUBSCRIBE ch", "*3\r\n$9\r\nsubscribe\r\n$2\r\nch\r\n:1\r\n")
	ts.fake.advance(6 * time.Second)
	busy.do("PING", "+PONG\r\n")
	ts.fake.advance(6 * time.Second)
	ts.checkClients(ts.fake.clock())
	idle.expectClosed()
	busy.do("PING", "+PONG\r\n")
	listening.do("PING", "*2\r\n$4\r\npong\r\n$0\r\n\r\n")
}

// TestSubscriberIsNotIdle: when the operating system takes output for a client, this counts as activity of the client, as in Redis.
func TestSubscriberIsNotIdle(t *testing.T) {
	ts := newTestServer(t, nil)
	listening, other := ts.dial(t), ts.dial(t)
	listening.do("SUBSCRIBE ch", "*3\r\n$9\r\nsubscribe\r\n$2\r\nch\r\n:1\r\n")
	idle := func(want string) {
		t.Helper()
		list := other.ask("CLIENT", "LIST", "TYPE", "PUBSUB").Text
		if !strings.Contains(list, " idle="+want+" ") {
			t.Errorf("CLIENT LIST = %q, want idle=%s", list, want)
		}
	}
	ts.fake.advance(9 * time.Second)
	idle("9")
	other.do("PUBLISH ch m", ":1\r\n")
	listening.expect("*3\r\n$7\r\nmessage\r\n$2\r\nch\r\n$1\r\nm\r\n")
	idle("0")
}

func TestMaxClients(t *testing.T) {
	ts := newTestServer(t, func(c *Config) { c.MaxClients = 2 })
	a, b := ts.dial(t), ts.dial(t)
	a.do("PING", "+PONG\r\n")
	b.do("PING", "+PONG\r\n")
	c := ts.dial(t)
	c.expect("-ERR max number of clients reached\r\n")
	c.expectClosed()
	b.do("QUIT", "+OK\r\n")
	b.expectClosed()
	ts.await(func() bool { return ts.clients() == 1 })
	ts.dial(t).do("PING", "+PONG\r\n")
}

// farConn is a connection that seems to come from another machine.
type farConn struct{ net.Conn }

func (farConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 5000} }

func TestProtectedMode(t *testing.T) {
	far := func(c net.Conn) net.Conn { return farConn{c} }
	ts := newTestServer(t, nil)
	c := ts.pipe(t, far)
	c.expect("-" + string(errDenied) + "\r\n")
	c.expectClosed()
	near := ts.dial(t)
	near.do("CONFIG SET requirepass secret", "+OK\r\n")
	c = ts.pipe(t, far)
	c.do("PING", "-NOAUTH Authentication required.\r\n")
	c.do("AUTH secret", "+OK\r\n")
	near.do("CONFIG SET requirepass \"\" protected-mode no", "+OK\r\n")
	ts.pipe(t, far).do("PING", "+PONG\r\n")
}

// TestStatsOfAYoungFunction: FUNCTION STATS shows a running function only once the leader answers BUSY.
func TestStatsOfAYoungFunction(t *testing.T) {
	ts := newTestServer(t, nil)
	c := ts.dial(t)
	for refusal, want := range map[store.Error]string{store.ErrBusyFunction: "+runs\r\n", store.ErrBusyScript: "-" + string(store.ErrBusyScript) + "\r\n"} {
		asked := 0
		running := func() store.Reply {
			if asked++; asked == 1 || refusal == store.ErrBusyScript {
				return store.Nil
			}
			return store.Status("runs")
		}
		ts.fake.running.Store(&running)
		ts.fake.refusal.Store(refusal)
		c.do("FUNCTION STATS", want)
	}
	// Here the function has ended before the node looks again.
	running := func() store.Reply { return store.Nil }
	ts.fake.running.Store(&running)
	ts.fake.refusal.Store(store.ErrBusyFunction)
	c.do("FUNCTION STATS", "-"+string(store.ErrBusyFunction)+"\r\n")
}

func TestBusy(t *testing.T) {
	ts := newTestServer(t, nil)
	c := ts.dial(t)
	ts.fake.busy.Store(true)
	busy := "-" + string(store.ErrBusyScript) + "\r\n"
	c.do("PING", busy)
	c.do("GET k", busy)
	c.do("NOSUCH", "-ERR unknown command 'NOSUCH', with args beginning with: \r\n")
	c.do("AUTH default x", "+OK\r\n")
	c.do("SCRIPT KILL", "+OK\r\n")
	if n := ts.fake.kills.Load(); n != 1 {
		t.Errorf("KillScript was called %d times", n)
	}
	c.do("RESET", "+RESET\r\n")
	ts.fake.busy.Store(false)
	c.do("PING", "+PONG\r\n")
	c.do("CONFIG SET busy-reply-threshold 250", "+OK\r\n")
	if d := time.Duration(ts.fake.threshold.Load()); d != 250*time.Millisecond {
		t.Errorf("the backend's threshold is %v", d)
	}
}

// TestShutdown: at a shutdown, an idle client is disconnected at once. A client whose command is running gets its reply first.
func TestShutdown(t *testing.T) {
	ts := newTestServer(t, nil)
	idle, working := ts.dial(t), ts.dial(t)
	idle.do("PING", "+PONG\r\n")
	working.do("PING", "+PONG\r\n")
	release := ts.fake.holdBack()
	working.send(array("SET", "k", "v"))
	ts.await(func() bool { return ts.fake.held.Load() == 1 })
	done := make(chan error, 1)
	go func() { done <- ts.Shutdown(t.Context()) }()
	idle.expectClosed()
	release()
	working.expect("+OK\r\n")
	working.expectClosed()
	if err := <-done; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if _, err := net.Dial("tcp", ts.addr); err == nil {
		t.Error("the server still accepts connections")
	}
}

// TestShutdownCut: when the context of Shutdown ends, the server cuts the connections that are left.
func TestShutdownCut(t *testing.T) {
	ts := newTestServer(t, nil)
	c := ts.dial(t)
	release := ts.fake.holdBack()
	c.send(array("SET", "k", "v"))
	ts.await(func() bool { return ts.fake.held.Load() == 1 })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- ts.Shutdown(ctx) }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown: %v", err)
	}
	c.expectClosed()
	release()
	ts.await(func() bool { return ts.clients() == 0 })
}

func TestShutdownCommand(t *testing.T) {
	asked := make(chan struct{}, 1)
	ts := newTestServer(t, func(c *Config) { c.OnShutdown = func() { asked <- struct{}{} } })
	c := ts.dial(t)
	c.do("SHUTDOWN SAVE NOSAVE", "-ERR syntax error\r\n")
	c.send("SHUTDOWN NOSAVE\r\n")
	<-asked
	c.expectClosed()
	newTestServer(t, nil).dial(t).do("SHUTDOWN", "-"+string(errShutdown)+"\r\n")
}

// TestDebugInScripts: a script may call DEBUG only with enable-debug-command yes, DEBUG SET-DISABLE-DENY-SCRIPTS 1 and the user's right to
// DEBUG.
func TestDebugInScripts(t *testing.T) {
	script := array("EVAL", "return redis.pcall('debug', 'protocol', 'integer') == 12345 and 1 or 0", "0")
	for _, who := range []string{"no", "local", "yes"} {
		ts := newTestServer(t, func(c *Config) { c.EnableDebugCommand = who })
		c := ts.dial(t)
		c.do("ACL SETUSER u on nopass ~* +@all -debug", "+OK\r\n")
		c.send(script)
		c.expect(":0\r\n")
		set, runs := "+OK\r\n", ":0\r\n"
		switch who {
		case "no":
			set = "-" + string(errDebugOff) + "\r\n"
		case "yes":
			runs = ":1\r\n"
		}
		c.do("DEBUG SET-DISABLE-DENY-SCRIPTS 1", set)
		c.send(script)
		c.expect(runs)
		c.do("AUTH u x", "+OK\r\n")
		c.send(script)
		c.expect(":0\r\n")
	}
}

// TestEveryDebugInAScript: a DEBUG command that a script calls never waits for the end of this script.
func TestEveryDebugInAScript(t *testing.T) {
	ts := newTestServer(t, func(c *Config) { c.EnableDebugCommand = "yes" })
	c := ts.dial(t)
	c.do("DEBUG SET-DISABLE-DENY-SCRIPTS 1", "+OK\r\n")
	c.do("SET k v", "+OK\r\n")
	for _, sub := range debugCommands() {
		if sub.name == "set-disable-deny-scripts" {
			continue
		}
		words := append([]string{"'debug'", "'" + sub.name + "'"}, slices.Repeat([]string{"'1'"}, sub.least-2)...)
		c.send(array("EVAL", "local r=redis.pcall("+strings.Join(words, ",")+") return type(r)=='table' and r.err and string.find(r.err,'cannot be called in a script',1,true) and 1 or 0", "0"))
		c.expect(map[bool]string{false: ":0\r\n", true: ":1\r\n"}[notInScripts[sub.name]])
	}
	for _, what := range []string{"'digest'", "'digest-value','k'"} {
		c.send(array("EVAL", "local r=redis.call('debug',"+what+") r=r[1] and r[1].ok or r.ok return r==string.rep('0',40) and 0 or #r", "0"))
		c.expect(":40\r\n")
	}
}

// TestResetAndMessages: RESET does not change the protocol while a message to its client is on the way.
func TestResetAndMessages(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		c := ts.dial(t)
		c.ask("HELLO", "3")
		s, h := ts.each()[0], ts.hub
		h.mu.RLock() // as tracker.deliver does
		c.send("RESET\r\nPING\r\n")
		until(t, "RESET", func() bool {
			if s.protocol() == 2 {
				return true
			}
			free := h.mu.TryRLock()
			if free {
				h.mu.RUnlock()
			}
			return !free // RESET waits
		})
		if s.protocol() != 3 {
			t.Error("the protocol has changed while a message was on its way")
		}
		s.push(store.Str("x"))
		h.mu.RUnlock()
		c.expect(">1\r\n" + bulk("x") + "+RESET\r\n+PONG\r\n")
	})
}
