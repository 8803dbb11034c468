package server

import (
	"fmt"
	"strings"
	"testing"

	"lockstep/store"
)

// write applies a write set as the log would, from wherever it comes.
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

// invalidation is the push that keys have changed.
func invalidation(keys ...string) string {
	list := fmt.Sprintf("*%d\r\n", len(keys))
	for _, key := range keys {
		list += bulk(key)
	}
	return ">2\r\n" + bulk("invalidate") + list
}

// tracker connects a client that speaks RESP3 and tracks.
func (ts *testServer) tracker(t *testing.T, options string) *client {
	t.Helper()
	c := ts.dial(t)
	c.send("HELLO 3\r\nCLIENT GETNAME\r\n")
	c.until("_\r\n")
	c.do("CLIENT TRACKING ON "+options, "+OK\r\n")
	return c
}

// until reads up to these bytes.
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

// TestInvalidationFollowsReply changes a key while its read is under way: the
// client would keep the reply for good if it came after the message.
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

// TestInvalidationFollowsTransaction is the like of what a transaction reads, which says
// only itself that its client tracks.
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
		// A change of one's own behind the read.
		c.send("GET k\r\nSET k 2\r\n")
		c.expect(bulk("new") + "+OK\r\n" + invalidation("k"))
		ts.fake.set("k") // not remembered any more
		ts.fake.set("l")
		c.expect(invalidation("l"))
	})
}

// TestNoLoop has the write set tell who changed what.
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

// TestTrackingEnds looks for what a client leaves behind.
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

// TestHeldBackIsBounded has so much change during one read that the client is
// told to forget everything.
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

// TestWhoListens: subscribers of each kind, and those who track keys, until they end it or
// are gone.
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
	tracks := ts.tracker(t, "")
	if !ts.hub.Listens() {
		t.Error("nobody listens while a client tracks keys")
	}
	tracks.conn.Close()
	ts.await(func() bool { return !ts.hub.Listens() })
}

// A redirection to a client that has been cut off leads nowhere, also as long as the node has not taken leave of it.
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
