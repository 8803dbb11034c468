package server

import (
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// TestPatternsThatTakeLong: the hub cuts off a client with many slow patterns at the first message, but not a client with few.
func TestPatternsThatTakeLong(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		evil := strings.Repeat("*[ac]", 20) + "*[bd]"
		channel := strings.Repeat("a", 4000)
		attacker, few, all := ts.dial(t), ts.dial(t), ts.dial(t)
		var many []string
		for i := range 1000 {
			many = append(many, fmt.Sprint(evil, i))
		}
		attacker.send(array(append([]string{"PSUBSCRIBE"}, many...)...))
		for i := range many {
			attacker.expect(fmt.Sprintf("*3\r\n$10\r\npsubscribe\r\n$%d\r\n%s\r\n:%d\r\n", len(many[i]), many[i], i+1))
		}
		for c, pattern := range map[*client]string{few: evil + "*", all: "a*"} {
			c.send(array("PSUBSCRIBE", pattern))
			c.expect(fmt.Sprintf("*3\r\n$10\r\npsubscribe\r\n$%d\r\n%s\r\n:1\r\n", len(pattern), pattern))
		}
		sender := ts.dial(t)
		for range 2 {
			sender.send(array("PUBLISH", channel+"b", "m"))
			sender.expect(":2\r\n")
			for c, pattern := range map[*client]string{few: evil + "*", all: "a*"} {
				c.expect(fmt.Sprintf("*4\r\n$8\r\npmessage\r\n$%d\r\n%s\r\n$4001\r\n%sb\r\n$1\r\nm\r\n", len(pattern), pattern, channel))
			}
		}
		attacker.expectClosed()
	})
}

// TestMessagesThatTakeLongTogether: if matching many messages takes too long in all, the hub cuts off a client with many patterns.
func TestMessagesThatTakeLongTogether(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		subscribe := func(n int) *client {
			c := ts.dial(t)
			for i := range n {
				name := fmt.Sprint(n, "-", i)
				c.send(array("PSUBSCRIBE", name))
				c.expect(fmt.Sprintf("*3\r\n$10\r\npsubscribe\r\n$%d\r\n%s\r\n:%d\r\n", len(name), name, i+1))
			}
			return c
		}
		many, some, few := subscribe(300), subscribe(200), subscribe(3)
		took := func(d time.Duration) {
			ts.hub.mu.RLock()
			defer ts.hub.mu.RUnlock()
			ts.hub.matched(epoch, epoch.Add(d))
		}
		took(matchTime / 2)
		few.do("PING", "*2\r\n$4\r\npong\r\n$0\r\n\r\n")
		many.do("PING", "*2\r\n$4\r\npong\r\n$0\r\n\r\n")
		took(matchTime)
		many.expectClosed()
		some.do("PING", "*2\r\n$4\r\npong\r\n$0\r\n\r\n")
		few.do("PING", "*2\r\n$4\r\npong\r\n$0\r\n\r\n")
	})
}

// TestManyClientsOfPatternsAreCutOffAtOnce: one pass over all patterns finds the clients to cut off. With a pass for each client, this
// test would take minutes.
func TestManyClientsOfPatternsAreCutOffAtOnce(t *testing.T) {
	ts := newTestServer(t, nil)
	const clients, each = 5000, 40
	var many []*session
	few := ts.subscriberTo(each/2, "few")
	for i := range clients {
		many = append(many, ts.subscriberTo(each, fmt.Sprint(i)))
	}
	ts.hub.mu.RLock()
	ts.hub.matched(epoch, epoch.Add(matchTime))
	ts.hub.mu.RUnlock()
	cut := 0
	for _, s := range many {
		if s.out.isOver() {
			cut++
		}
	}
	if cut != clients/2+1 || few.out.isOver() {
		t.Errorf("%d of %d clients with %d patterns are cut off; of the one with fewer that is %v", cut, clients, each, few.out.isOver())
	}
	// In this test nothing ends the sessions of the clients that were cut off. The hub removes their patterns all the same.
	ts.await(func() bool { return ts.hub.size(subPattern) == (clients-cut)*each+each/2 })
}

// TestMessageThatTakesLongWithManyClients: slow patterns of many clients do not hold up the hub. If each pattern could take matchSteps
// steps, this test would take minutes.
func TestMessageThatTakesLongWithManyClients(t *testing.T) {
	ts := newTestServer(t, nil)
	evil := strings.Repeat("*[ac]", 20) + "*[bd]"
	var many []*session
	for i := range 1000 {
		many = append(many, ts.subscriberTo(2, fmt.Sprint(evil, i)))
	}
	one, other := ts.subscriberTo(1, "a*"), ts.subscriberTo(1, "b*")
	ts.hub.Publish(store.Channel, strings.Repeat("a", 1_000_000)+"b", "m")
	for i, s := range many {
		if !s.out.isOver() {
			t.Fatalf("client %d is not cut off", i)
		}
	}
	if one.out.isOver() || other.out.isOver() || one.out.size() == 0 || other.out.size() != 0 {
		t.Errorf("%d and %d bytes wait for the others", one.out.size(), other.out.size())
	}
}

// subscriberTo connects a session that reads nothing, with n patterns that begin with a text.
func (ts *testServer) subscriberTo(n int, text string) *session {
	conn, _ := net.Pipe()
	s := &session{srv: ts.Server, conn: &guard{Conn: conn}}
	s.out = newOutbox(conn, new(atomic.Int64), new(atomic.Int64))
	s.out.setOnPush(func() {}) // nobody sends the waiting output
	ts.hub.mu.Lock()
	defer ts.hub.mu.Unlock()
	for i := range n {
		pattern := text + strings.Repeat("*", min(i, 1)) + strings.Repeat("x", max(i-1, 0))
		subs := &subscribers{}
		subs.put(s, struct{}{})
		s.subs[subPattern].put(pattern, struct{}{})
		ts.hub.patterns.put(pattern, subs)
	}
	return s
}

// TestPatternForChannelNamesIsBounded: PUBSUB CHANNELS with a pattern that takes long is refused. Without the bound this test
// would take minutes.
func TestPatternForChannelNamesIsBounded(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		c := ts.dial(t)
		for _, kind := range []subKind{subChannel, subShard} {
			ts.hub.mu.Lock()
			for i := range 20 {
				ts.hub.byKind(kind).put(fmt.Sprint(strings.Repeat("ab", 500_000), i), &subscribers{})
			}
			ts.hub.byKind(kind).put("short", &subscribers{})
			ts.hub.mu.Unlock()
		}
		refused := "-" + string(errLongPattern) + "\r\n"
		for _, word := range []string{"CHANNELS", "SHARDCHANNELS"} {
			c.send(array("PUBSUB", word, "*"+strings.Repeat("[ab]", 70)+"c"))
			c.expect(refused)
			c.send(array("PUBSUB", word, "*h*t"))
			c.expect("*1\r\n" + bulk("short"))
			c.send(array("PUBSUB", word, "sh?rt"))
			c.expect("*1\r\n" + bulk("short"))
		}
	})
}
