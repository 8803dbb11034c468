package server

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/lockstep-io/lockstep/store"
)

// write applies a write set as the Raft log would, whichever node it comes from.
func (f *fakeBackend) write(fn func(txn *store.Txn)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	txn := f.store.Begin(store.Time{Lease: f.now.Load()/1e6 + 1, Wall: f.clock().UnixMicro()}, f.seq+1, store.Env{})
	fn(txn)
	f.seq++
	if err := f.store.Apply(txn.Writes().Bytes(), f.seq, f.hub); err != nil {
		panic(err)
	}
	f.hub.Applied(txn.Writes().Bytes())
}

func (f *fakeBackend) set(key string) {
	f.write(func(txn *store.Txn) { txn.SetString(0, []byte(key), "new", 0) })
}

// invalidation returns the push message that keys have changed.
func invalidation(keys ...string) string {
	list := fmt.Sprintf("*%d\r\n", len(keys))
	for _, key := range keys {
		list += bulk(key)
	}
	return ">2\r\n" + bulk("invalidate") + list
}

// tracker connects a client that speaks RESP3, and that tracks with these options of CLIENT TRACKING.
func (ts *testServer) tracker(t *testing.T, options string) *client {
	t.Helper()
	c := ts.dial(t)
	c.send("HELLO 3\r\nCLIENT GETNAME\r\n")
	c.until("_\r\n")
	c.do("CLIENT TRACKING ON "+options, "+OK\r\n")
	return c
}

// until reads what the client gets, up to and including the text in the argument end.
func (c *client) until(end string) {
	c.t.Helper()
	got := ""
	for !strings.HasSuffix(got, end) {
		b := make([]byte, 1)
		if _, err := c.conn.Read(b); err != nil {
			c.t.Fatalf("got %q and then %v", got, err)
		}
		got += string(b)
	}
}

// TestInvalidationFollowsReply: a message about a change during a read follows the reply. Otherwise the client would keep the old value.
func TestInvalidationFollowsReply(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		for _, options := range []string{"", "BCAST", "OPTOUT", "NOLOOP"} {
			c := ts.tracker(t, options)
			release := ts.fake.holdBack()
			c.send("GET k\r\n")
			ts.await(func() bool { return ts.fake.held.Load() > 0 })
			ts.fake.set("k")
			release()
			c.expect(bulk("new") + invalidation("k"))
			c.do("PING", "+PONG\r\n")
			c.do("CLIENT TRACKING OFF", "+OK\r\n")
		}
	})
}

// TestInvalidationFollowsTransaction does the same as TestInvalidationFollowsReply with a transaction. In it, the client turns on
// tracking before it reads.
func TestInvalidationFollowsTransaction(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		for _, options := range []string{"", "BCAST", "OPTOUT", "NOLOOP"} {
			c := ts.dial(t)
			c.send("HELLO 3\r\nCLIENT GETNAME\r\n")
			c.until("_\r\n")
			c.send("MULTI\r\nCLIENT TRACKING ON " + options + "\r\nGET k\r\n")
			c.expect("+OK\r\n+QUEUED\r\n+QUEUED\r\n")
			release := ts.fake.holdBack()
			c.send("EXEC\r\n")
			ts.await(func() bool { return ts.fake.held.Load() > 0 })
			ts.fake.set("k")
			release()
			c.expect("*2\r\n+OK\r\n" + bulk("new") + invalidation("k"))
			c.do("PING", "+PONG\r\n")
			c.do("CLIENT TRACKING OFF", "+OK\r\n")
		}
	})
}

func TestInvalidationInPipelines(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		c := ts.tracker(t, "")
		c.send("SET k 1\r\nGET k\r\nGET l\r\n")
		c.expect("+OK\r\n" + bulk("1") + "_\r\n")
		ts.fake.set("k")
		c.expect(invalidation("k"))
		// The client itself changes the key after its read.
		c.send("GET k\r\nSET k 2\r\n")
		c.expect(bulk("new") + "+OK\r\n" + invalidation("k"))
		ts.fake.set("k") // k is not remembered any more
		ts.fake.set("l")
		c.expect(invalidation("l"))
	})
}

// TestNoLoop: the write set says which session has changed which key. A client with NOLOOP gets no messages about its own changes.
func TestNoLoop(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		c := ts.tracker(t, "NOLOOP")
		c.send("SET k 1\r\nGET k\r\nSET k 2\r\nGET k\r\n")
		c.expect("+OK\r\n" + bulk("1") + "+OK\r\n" + bulk("2"))
		ts.fake.set("k")
		c.expect(invalidation("k"))

		all := ts.tracker(t, "BCAST NOLOOP")
		all.do("SET own 1", "+OK\r\n")
		s := ts.each()[1]
		me := ts.hub.tracker.origin(s)
		ts.fake.write(func(txn *store.Txn) {
			txn.SetOrigin(me)
			txn.SetString(0, []byte("mine"), "v", 0)
			txn.SetString(0, []byte("ours"), "v", 0)
			txn.SetOrigin(me + 1)
			txn.SetString(0, []byte("ours"), "v", 0)
			txn.SetString(0, []byte("theirs"), "v", 0)
			txn.SetOrigin(0)
			txn.SetString(0, []byte("nobody's"), "v", 0)
		})
		all.expect(invalidation("nobody's", "ours", "theirs"))
	})
}

func TestTrackingTableLimit(t *testing.T) {
	ts := newTestServer(t, nil)
	c := ts.tracker(t, "")
	c.do("CONFIG SET tracking-table-max-keys 2", "+OK\r\n")
	c.send("MGET a b\r\n")
	c.expect("*2\r\n_\r\n_\r\n")
	if keys, items, _ := ts.hub.tracker.sizes(); keys != 2 || items != 2 {
		t.Errorf("%d keys, %d items", keys, items)
	}
	c.send("GET c\r\n")
	c.expect("_\r\n")
	c.until("invalidate\r\n")
	c.until("*1\r\n$1\r\n")
	if keys, items, _ := ts.hub.tracker.sizes(); keys != 2 || items != 2 {
		t.Errorf("after one more: %d keys, %d items", keys, items)
	}
}

// TestTrackingEnds: a client that leaves or ends its tracking leaves nothing in the tracker.
func TestTrackingEnds(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		one, two := ts.tracker(t, ""), ts.tracker(t, "BCAST PREFIX a PREFIX b")
		one.do("GET k", "_\r\n")
		if n := ts.hub.tracker.clients.Load(); n != 2 {
			t.Fatalf("%d clients track", n)
		}
		if _, _, prefixes := ts.hub.tracker.sizes(); prefixes != 2 {
			t.Errorf("%d prefixes", prefixes)
		}
		two.do("RESET", "+RESET\r\n")
		two.do("CLIENT GETREDIR", ":-1\r\n")
		if _, _, prefixes := ts.hub.tracker.sizes(); prefixes != 0 {
			t.Errorf("after RESET: %d prefixes", prefixes)
		}
		if err := one.conn.Close(); err != nil {
			t.Fatal(err)
		}
		ts.await(func() bool { return ts.hub.tracker.clients.Load() == 0 })
		if keys, items, prefixes := ts.hub.tracker.sizes(); keys+items+prefixes != 0 {
			t.Errorf("left behind: %d keys, %d items, %d prefixes", keys, items, prefixes)
		}
	})
}

func TestReplacedStateInvalidatesAll(t *testing.T) {
	ts := newTestServer(t, nil)
	c, all := ts.tracker(t, ""), ts.tracker(t, "BCAST PREFIX x")
	c.do("GET k", "_\r\n")
	ts.hub.Missed()
	for _, c := range []*client{c, all} {
		c.expect(">2\r\n" + bulk("invalidate") + "_\r\n")
		c.do("PING", "+PONG\r\n")
	}
}

func TestClientListShowsTracking(t *testing.T) {
	ts := newTestServer(t, nil)
	c := ts.tracker(t, "BCAST")
	line := func() string { return ts.each()[0].describe(ts.fake.clock(), 0) }
	if !strings.Contains(line(), " flags=tB ") || !strings.Contains(line(), " redir=0 ") {
		t.Error(line())
	}
	c.do("CLIENT TRACKING OFF", "+OK\r\n")
	if !strings.Contains(line(), " flags=N ") || !strings.Contains(line(), " redir=-1 ") {
		t.Error(line())
	}
}

// TestHeldBackIsBounded: so many keys change during one read that the client is told that all keys may have changed.
func TestHeldBackIsBounded(t *testing.T) {
	ts := newTestServer(t, nil)
	c := ts.tracker(t, "BCAST")
	release := ts.fake.holdBack()
	c.send("GET k\r\n")
	ts.await(func() bool { return ts.fake.held.Load() > 0 })
	for i := range maxHeld + 2 {
		ts.fake.set(fmt.Sprint("key:", i))
	}
	release()
	c.expect("_\r\n>2\r\n" + bulk("invalidate") + "_\r\n" + invalidation(fmt.Sprint("key:", maxHeld+1)))
	c.do("PING", "+PONG\r\n")
}

// TestWhoListens: Hub.Listens reports true while there are subscribers of any kind but those of events of locks, or clients that track keys.
func TestWhoListens(t *testing.T) {
	ts := newTestServer(t, nil)
	c := ts.dial(t)
	for _, prefix := range []string{"", "p", "s"} {
		for _, step := range []struct {
			word  string
			count int
		}{{prefix + "subscribe", 1}, {prefix + "unsubscribe", 0}} {
			c.do(step.word+" x", fmt.Sprintf("*3\r\n%s%s:%d\r\n", bulk(step.word), bulk("x"), step.count))
			if got := ts.hub.Listens(); got != (step.count > 0) {
				t.Errorf("after %s: listens is %v", step.word, got)
			}
		}
	}
	for _, word := range []string{"subscribe", "psubscribe"} {
		c.do(word+" __lock@0__:forced", fmt.Sprintf("*3\r\n%s%s:%d\r\n", bulk(word), bulk("__lock@0__:forced"), len(word)-8))
	}
	if ts.hub.Listens() {
		t.Error("a listener of events of locks hurries all entries")
	}
	own := ts.dial(t)
	own.do("subscribe __lock@0__:granted:me", fmt.Sprintf("*3\r\n%s%s:1\r\n", bulk("subscribe"), bulk("__lock@0__:granted:me")))
	if !ts.hub.Listens() {
		t.Error("an owner in a queue waits for the next entry to learn that it has the lock")
	}
	own.conn.Close()
	ts.await(func() bool { return !ts.hub.Listens() })
	tracks := ts.tracker(t, "")
	if !ts.hub.Listens() {
		t.Error("nobody listens while a client tracks keys")
	}
	tracks.conn.Close()
	ts.await(func() bool { return !ts.hub.Listens() })
}

// A redirection to a client that has been cut off counts as broken, even before the node has removed the client's session.
func TestRedirectionToWhoHasBeenCutOff(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		target := ts.dial(t)
		target.do("PING", "+PONG\r\n")
		to := ts.each()[0]
		c := ts.dial(t)
		c.ask("HELLO", "3")
		c.do(fmt.Sprint("CLIENT TRACKING ON REDIRECT ", to.id), "+OK\r\n")
		release := ts.fake.holdBack()
		defer release()
		target.send(array("GET", "k"))
		ts.await(func() bool { return ts.fake.held.Load() == 1 })
		to.out.abort()
		for _, s := range ts.each() {
			ts.hub.tracker.deliver(s, about("k", someone))
		}
		c.expect(fmt.Sprintf(">2\r\n$21\r\ntracking-redir-broken\r\n:%d\r\n", to.id))
	})
}

// commandOf returns a command of the given words and n numbered names.
func commandOf(n int, format string, words ...string) string {
	return array(append(words, numbered(n, format)...)...)
}

// TestLargeReadIsNotRemembered: a client that reads very many keys at once is told after the reply that all keys may have changed.
func TestLargeReadIsNotRemembered(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		ts.params.clientLimit.Store(0)
		keys := func() int { n, _, _ := ts.hub.tracker.sizes(); return n }
		c := ts.tracker(t, "")
		c.do("GET before", "_\r\n")
		// This command reads as many keys as the node remembers at once.
		c.send(commandOf(maxRead, "%d", "EXISTS") + array("PING"))
		c.expect(":0\r\n+PONG\r\n")
		if n := keys(); n != maxRead+1 {
			t.Fatalf("%d keys are remembered of %d", n, maxRead+1)
		}
		long := strings.Repeat("x", maxReadBytes/2)
		var gets, queued, nils strings.Builder
		for i := range maxRead + 100 {
			gets.WriteString(array("GET", fmt.Sprint("x", i)))
			queued.WriteString("+QUEUED\r\n")
			nils.WriteString("_\r\n")
		}
		for what, test := range map[string]struct{ send, want string }{
			"a command":     {commandOf(maxRead+1, "m%d", "EXISTS"), ":0\r\n"},
			"long names":    {array("EXISTS", long+"1", long+"2"), ":0\r\n"},
			"a script":      {commandOf(maxRead+1, "s%d", "EVAL", "return 1", fmt.Sprint(maxRead+1)), ":1\r\n"},
			"a transaction": {array("MULTI") + gets.String() + array("EXEC"), "+OK\r\n" + queued.String() + fmt.Sprintf("*%d\r\n", maxRead+100) + nils.String()},
		} {
			before := keys()
			go func() { _, _ = io.WriteString(c.conn, test.send) }()
			c.expect(test.want + forgetAll)
			c.do("PING", "+PONG\r\n")
			// Of a transaction, the node remembers the keys of the commands before the limit was exceeded.
			if n := keys() - before; n > maxRead || n > 0 && what != "a transaction" {
				t.Errorf("%s: %d keys more are remembered", what, n)
			}
		}
		// The node has not forgotten the earlier keys, and remembers later ones.
		ts.fake.set("before")
		c.expect(invalidation("before"))
		c.do("GET k", "_\r\n")
		ts.fake.set("k")
		c.expect(invalidation("k"))
		// Each pipeline may read up to the limit, even after a large one.
		c.send(commandOf(maxRead-1, "m%d", "EXISTS"))
		c.expect(":0\r\n")
		c.send(commandOf(maxRead-1, "n%d", "EXISTS") + array("PING"))
		c.expect(":0\r\n+PONG\r\n")
		// A client in BCAST mode is not told that all keys may have changed. Neither is a client with OPTIN that has not called
		// CLIENT CACHING.
		for _, options := range []string{"BCAST PREFIX p", "OPTIN"} {
			c := ts.tracker(t, options)
			c.send(commandOf(maxRead+1, "o%d", "EXISTS") + array("PING"))
			c.expect(":0\r\n+PONG\r\n")
		}
	})
}

// TestLargeReadsOfTrackersLeaveTheLoop: while the node remembers many keys that one client reads, the loop serves the other clients.
func TestLargeReadsOfTrackersLeaveTheLoop(t *testing.T) {
	var gets strings.Builder
	for i := range fewRead + 1 {
		gets.WriteString(array("GET", fmt.Sprint(i)))
	}
	for what, send := range map[string]string{
		"a command":     commandOf(fewRead+1, "%d", "EXISTS"),
		"a transaction": gets.String(),
	} {
		t.Run(what, func(t *testing.T) {
			ts := newTestServer(t, withLoops(1))
			other, c := ts.dial(t), ts.tracker(t, "")
			s, want := ts.last(), ":0\r\n"
			if what == "a transaction" {
				c.do("MULTI", "+OK\r\n")
				go func() { _, _ = io.WriteString(c.conn, send) }()
				c.expect(strings.Repeat("+QUEUED\r\n", fewRead+1))
				send, want = array("EXEC"), fmt.Sprintf("*%d\r\n", fewRead+1)+strings.Repeat("_\r\n", fewRead+1)
			}
			ts.awaitIdle()
			ts.hub.tracker.mu.Lock()
			unlock := sync.OnceFunc(ts.hub.tracker.mu.Unlock)
			defer unlock()
			c.send(send)
			ts.await(s.isRunning)
			other.do("PING", "+PONG\r\n") // a loop that waited for the lock would not answer
			unlock()
			c.expect(want)
			if keys, _, _ := ts.hub.tracker.sizes(); keys != fewRead+1 {
				t.Errorf("%d keys are remembered", keys)
			}
		})
	}
}

// TestPipelinedReadsOfTrackers: a loop remembers few keys at a time. Before it remembers further keys, it submits the commands that
// read the earlier ones.
func TestPipelinedReadsOfTrackers(t *testing.T) {
	ts := newTestServer(t, withLoops(1))
	ts.fake.whole.Store(true)
	c := ts.tracker(t, "")
	ts.fake.mu.Lock()
	ts.fake.batch = nil
	ts.fake.mu.Unlock()
	const each, commands = 100, 40
	var b strings.Builder
	for i := range commands {
		b.WriteString(commandOf(each, fmt.Sprint(i)+".%d", "EXISTS"))
	}
	c.send(b.String())
	c.expect(strings.Repeat(":0\r\n", commands))
	ts.fake.mu.Lock()
	defer ts.fake.mu.Unlock()
	for _, n := range ts.fake.batch {
		if n*each > fewRead {
			t.Errorf("%d keys were remembered at once", n*each)
		}
	}
	if keys, _, _ := ts.hub.tracker.sizes(); keys != each*commands {
		t.Errorf("%d keys are remembered", keys)
	}
}

// TestMuchLowerTrackingLimit: if a limit becomes much lower, the node tells the readers to forget all keys, instead of removing them one
// by one.
func TestMuchLowerTrackingLimit(t *testing.T) {
	ts := newTestServer(t, nil)
	ts.params.clientLimit.Store(0)
	tracked := ts.hub.tracker
	fill := func(s *session, format string) {
		for _, key := range numbered(5000, format) {
			tracked.remember(s, [][]byte{[]byte(key)}, false)
		}
	}
	for what, lower := range map[string]func(s *session){
		"tracking-table-max-keys": func(*session) { tracked.setMaxKeys(10) },
		"maxmemory-clients": func(s *session) {
			ts.params.clientLimit.Store(10_000)
			tracked.remember(s, [][]byte{[]byte("one")}, false)
		},
	} {
		tracked.setMaxKeys(0)
		ts.params.clientLimit.Store(0)
		s := ts.deaf(t, &tracking{})
		fill(s, "%d")
		lower(s)
		got := received(s)
		if n := strings.Count(got, "invalidate"); n > 2000 || !strings.HasSuffix(got, forgetAll) {
			t.Errorf("%s: %d messages, the last of them %.50q", what, n, got[max(len(got)-50, 0):])
		}
		if keys, _, _ := tracked.sizes(); keys > 10 {
			t.Errorf("%s: %d keys are left", what, keys)
		}
		tracked.disable(s)
	}
}
