package server

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// subscribes makes the client subscribe to n names (namesOf100). The argument word is the command, such as subscribe.
func (c *client) subscribes(word string, n int) {
	c.t.Helper()
	for at := 0; at < n; at += 100 {
		names := numbered(min(n-at, 100), fmt.Sprint(at)+".%02d")
		c.send(array(append([]string{word}, names...)...))
		want := ""
		for i, name := range names {
			want += "*3\r\n" + bulk(word) + bulk(name) + fmt.Sprintf(":%d\r\n", at+i+1)
		}
		c.expect(want)
	}
}

// last returns the session of the client that has connected last.
func (ts *testServer) last() *session {
	list := ts.each()
	return list[len(list)-1]
}

// awaitIdle waits until no session runs a pipeline.
func (ts *testServer) awaitIdle() {
	ts.await(func() bool { return !slices.ContainsFunc(ts.each(), func(s *session) bool { return s.isRunning() }) })
}

// TestManyNamesLeaveTheLoop: while many subscriptions of one client begin or end, the loop serves the other clients.
func TestManyNamesLeaveTheLoop(t *testing.T) {
	const many = fewNames + 100
	names := numbered(many, "n%d")
	prefixes := []string{"CLIENT", "TRACKING", "ON", "BCAST"}
	for _, name := range names {
		prefixes = append(prefixes, "PREFIX", name+":")
	}
	tracking := array("HELLO", "3") + array(prefixes...) + array("CLIENT", "GETNAME")
	for _, test := range []struct {
		what string
		has  string // the command by which the client has subscribed before; "": it has not
		send string // what the client sends; "": it leaves
	}{
		{"SUBSCRIBE", "", array(append([]string{"SUBSCRIBE"}, names...)...)},
		{"PSUBSCRIBE", "", array(append([]string{"PSUBSCRIBE"}, names...)...)},
		{"SSUBSCRIBE", "", array(append([]string{"SSUBSCRIBE"}, names...)...)},
		{"UNSUBSCRIBE of names", "subscribe", array(append([]string{"UNSUBSCRIBE"}, names...)...)},
		{"UNSUBSCRIBE", "subscribe", array("UNSUBSCRIBE")},
		{"PUNSUBSCRIBE", "psubscribe", array("PUNSUBSCRIBE")},
		{"SUNSUBSCRIBE", "ssubscribe", array("SUNSUBSCRIBE")},
		{"RESET", "subscribe", array("RESET")},
		{"QUIT", "subscribe", array("QUIT")},
		{"the end of a connection", "psubscribe", ""},
		{"the end of a connection with prefixes", "", ""},
		{"CLIENT TRACKING with prefixes", "", tracking},
		{"EXEC", "", array("MULTI") + strings.Repeat(array(append([]string{"SUBSCRIBE"}, names[:fewNames/2]...)...), 3) + array("EXEC")},
	} {
		t.Run(test.what, func(t *testing.T) {
			ts := newTestServer(t, withLoops(1))
			other, c := ts.dial(t), ts.dial(t)
			c.do("PING", "+PONG\r\n")
			s := ts.last()
			locked := sync.Locker(&ts.hub.mu)
			switch {
			case test.has != "":
				c.subscribes(test.has, many)
			case strings.Contains(test.what, "prefixes"):
				locked = &ts.hub.tracker.mu
				if test.send == "" {
					c.send(tracking)
					c.until("_\r\n")
				}
			}
			ts.awaitIdle()
			locked.Lock()
			unlock := sync.OnceFunc(locked.Unlock)
			defer unlock()
			switch test.send {
			case "":
				_ = c.conn.Close()
			default:
				go func() { _, _ = io.WriteString(c.conn, test.send) }()
			}
			if test.send == "" || test.what == "QUIT" {
				ts.await(s.out.isOver)
			} else {
				ts.await(s.isRunning)
			}
			other.do("PING", "+PONG\r\n") // a loop that waited for the lock would not answer
			unlock()
			if test.send == "" || test.what == "QUIT" {
				ts.await(func() bool { return ts.clients() == 1 })
				if ts.hub.Listens() {
					t.Error("something is left behind")
				}
			}
		})
	}
}

// TestFewNamesStayOnTheLoop: a client that uses locks has few subscriptions. The loop begins and ends them itself, without a
// goroutine.
func TestFewNamesStayOnTheLoop(t *testing.T) {
	ts := newTestServer(t, nil)
	c := ts.dial(t)
	c.subscribes("subscribe", 10)
	s := ts.last()
	for _, words := range [][]string{{"subscribe", "a", "b"}, {"unsubscribe", "a"}, {"unsubscribe"}, {"reset"}, {"client", "tracking", "on"}} {
		var args [][]byte
		for _, word := range words {
			args = append(args, []byte(word))
		}
		cmd, _ := ts.table.Resolve(args)
		if n := s.namesIn(cmd, args); n != 0 {
			t.Errorf("%v counts for %d names", words, n)
		}
	}
}

// TestSubscriptionsOfAnExpelledClientEndElsewhere: the state machine does not wait until the many subscriptions of a deleted user have
// ended.
func TestSubscriptionsOfAnExpelledClientEndElsewhere(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		admin := ts.dial(t)
		admin.do("ACL SETUSER u on >p ~* &* +@all", "+OK\r\n")
		var all []*client
		for range 3 {
			c := ts.dial(t)
			c.do("AUTH u p", "+OK\r\n")
			c.subscribes("subscribe", fewNames/2)
			all = append(all, c)
		}
		ts.awaitIdle()
		ts.hub.mu.Lock()
		unlock := sync.OnceFunc(ts.hub.mu.Unlock)
		defer unlock()
		admin.do("ACL DELUSER u", ":1\r\n")
		unlock()
		for _, c := range all {
			c.expectClosed()
		}
		ts.await(func() bool { return !ts.hub.Listens() && ts.clients() == 1 })
		// A few subscriptions end before the reply to ACL DELUSER, as in Redis.
		admin.do("ACL SETUSER u on >p ~* &* +@all", "+OK\r\n")
		c := ts.dial(t)
		c.do("AUTH u p", "+OK\r\n")
		c.subscribes("subscribe", 10)
		ts.awaitIdle()
		admin.send(array("ACL", "DELUSER", "u") + array("PUBSUB", "NUMSUB", "0.00"))
		admin.expect(":1\r\n*2\r\n" + bulk("0.00") + ":0\r\n")
		c.expectClosed()
	})
}

// TestEndOfManySubscriptions: the server confirms the end of each subscription, in order, before it replies to the next command.
func TestEndOfManySubscriptions(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		const many = 3*fewNames + 7
		c, other := ts.dial(t), ts.dial(t)
		c.subscribes("psubscribe", 3)
		c.send(array("PUNSUBSCRIBE"))
		c.until(":0\r\n")
		for _, kind := range []string{"", "p", "s"} {
			c.subscribes(kind+"subscribe", many)
			c.send(array(kind+"unsubscribe") + array("ECHO", "next"))
			want := ""
			for i, name := range slices.Sorted(slices.Values(namesOf100(many))) {
				want += "*3\r\n" + bulk(kind+"unsubscribe") + bulk(name) + fmt.Sprintf(":%d\r\n", many-1-i)
			}
			c.expect(want + bulk("next"))
			other.do("PUBSUB NUMSUB 0.00", "*2\r\n"+bulk("0.00")+":0\r\n")
			other.do("PUBSUB NUMPAT", ":0\r\n")
		}
	})
}

// namesOf100 returns the n names to which the method client.subscribes subscribes a client.
func namesOf100(n int) (list []string) {
	for at := 0; at < n; at += 100 {
		list = append(list, numbered(min(n-at, 100), fmt.Sprint(at)+".%02d")...)
	}
	return list
}

// TestManyNamesGiveWay: a client gives way before a command with many names, even if this is its first command.
func TestManyNamesGiveWay(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		ask := func(c *client, end string, words ...string) time.Duration {
			before := ts.fake.rested.Load()
			go func() { _, _ = io.WriteString(c.conn, array(words...)) }()
			for r, line := bufio.NewReader(c.conn), ""; line != end+"\r\n"; {
				var err error
				if line, err = r.ReadString('\n'); err != nil {
					t.Fatal(err)
				}
			}
			return time.Duration(ts.fake.rested.Load() - before)
		}
		end := func(n int) string { return fmt.Sprint(":", n) }
		subscribe := func(n int) []string { return append([]string{"SUBSCRIBE"}, numbered(n, "%d")...) }
		const most = int(plumbingSlices * ownSlice / plumbingTakes)
		if took := ask(ts.dial(t), end(most/2), subscribe(most/2)...); took != 0 {
			t.Errorf("the first names of a client give way for %v", took)
		}
		if took := ask(ts.dial(t), end(most+1), subscribe(most+1)...); took < plumbingSlices*ownSlice {
			t.Errorf("%d names give way for %v", most+1, took)
		}
		for word, last := range map[string]string{"UNSUBSCRIBE": end(0), "RESET": "+RESET"} {
			c := ts.dial(t)
			ask(c, end(most+1), subscribe(most+1)...)
			ts.fake.advance(2 * ownMemory)
			if took := ask(c, last, word); took < plumbingSlices*ownSlice {
				t.Errorf("%s of %d names gives way for %v", word, most+1, took)
			}
		}
		// When the node has worked much for all clients together, a client gives way for fewer names.
		ts.ownWork.add(ts.fake.clock(), 2*ownAtOnce)
		if took := ask(ts.dial(t), end(most/2), subscribe(most/2)...); took < time.Duration(most/2)*plumbingTakes {
			t.Errorf("in a crowd %d names give way for %v", most/2, took)
		}
		if took := ask(ts.dial(t), end(fewNames/2), subscribe(fewNames/2)...); took != 0 {
			t.Errorf("in a crowd a few names give way for %v", took)
		}
	})
}

// TestNamesAreCountedOnce: the node does not charge a client for names for which the client has already given way.
func TestNamesAreCountedOnce(t *testing.T) {
	ts := newTestServer(t, nil)
	conn, _ := net.Pipe()
	s := ts.newSession(newGuard(conn))
	s.own.since = ts.fake.clock()
	s.named(1000)
	if s.own.took != 999*plumbingTakes {
		t.Errorf("1000 names count for %v", s.own.took)
	}
	s.own.took, s.own.paid = 0, 400*plumbingTakes
	if s.named(1000); s.own.took != 599*plumbingTakes || s.own.paid != 0 {
		t.Errorf("1000 names of which 400 are paid count for %v", s.own.took)
	}
}
