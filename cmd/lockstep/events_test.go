package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/nodes"
)

// listener is a client connection that gets messages besides replies.
type listener struct {
	t    *testing.T
	id   string
	conn net.Conn
	r    *bufio.Reader
}

func hearNode(t *testing.T, n *nodes.Node) *listener {
	t.Helper()
	c, err := net.Dial("tcp", n.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return &listener{t: t, id: n.ID, conn: c, r: bufio.NewReader(c)}
}

func (l *listener) send(line string) {
	l.t.Helper()
	if _, err := io.WriteString(l.conn, line+"\r\n"); err != nil {
		l.t.Fatal(l.id, err)
	}
}

// expect reads lines of the protocol, and fails unless they are the given ones.
func (l *listener) expect(want ...string) {
	l.t.Helper()
	for i, line := range want {
		got, err := l.r.ReadString('\n')
		if got = strings.TrimSuffix(got, "\r\n"); err != nil || got != line {
			l.t.Fatalf("%s: line %d is %q, %v; want %q", l.id, i, got, err, want)
		}
	}
}

// skip reads lines up to the first one that equals last.
func (l *listener) skip(last string) {
	l.t.Helper()
	for got := ""; got != last; {
		line, err := l.r.ReadString('\n')
		if err != nil {
			l.t.Fatal(l.id, err)
		}
		got = strings.TrimSuffix(line, "\r\n")
	}
}

func (l *listener) expectInvalid(keys ...string) {
	l.t.Helper()
	l.expect(">2", "$10", "invalidate", fmt.Sprintf("*%d", len(keys)))
	for _, key := range keys {
		l.expect(fmt.Sprintf("$%d", len(key)), key)
	}
}

func followers(list []*nodes.Node, leader *nodes.Node) []*nodes.Node {
	var rest []*nodes.Node
	for _, n := range list {
		if n != leader {
			rest = append(rest, n)
		}
	}
	return rest
}

func mustDo(t *testing.T, n *nodes.Node, want string, args ...string) {
	t.Helper()
	if got, err := n.Do(args...); fmt.Sprint(got) != want || err != nil {
		t.Fatalf("%s: %q: %v, %v; want %s", n.ID, args, got, err, want)
	}
}

// TestEventsOnEveryNode: subscribers of all nodes get keyspace notifications that were turned on through a follower, also after a
// change of leader and a restart.
func TestEventsOnEveryNode(t *testing.T) {
	list := nodes.Start(t, 3)
	leader := nodes.Leader(list)
	if leader == nil {
		t.Fatal("no leader")
	}
	rest := followers(list, leader)
	mustDo(t, rest[0], "OK", "CONFIG", "SET", "notify-keyspace-events", "KEA", "timeout", "0")
	for _, n := range list {
		mustDo(t, n, "[notify-keyspace-events AKE]", "CONFIG", "GET", "notify-keyspace-events")
	}
	hear := func(through *nodes.Node, alive []*nodes.Node, key string) {
		t.Helper()
		var ears []*listener
		for _, n := range alive {
			l := hearNode(t, n)
			l.send("SUBSCRIBE __keyevent@0__:expired __keyevent@0__:set")
			l.skip(":2")
			ears = append(ears, l)
		}
		mustDo(t, through, "OK", "SET", key, "owner", "PX", "100")
		for _, l := range ears {
			for _, event := range []string{"set", "expired"} {
				channel := "__keyevent@0__:" + event
				l.expect("*3", "$7", "message", fmt.Sprintf("$%d", len(channel)), channel, fmt.Sprintf("$%d", len(key)), key)
			}
		}
	}
	hear(rest[1], list, "before")
	leader.Kill()
	for _, n := range rest {
		n.WaitReady()
	}
	hear(rest[0], rest, "after")
	for _, n := range rest {
		n.Kill()
	}
	for _, n := range list {
		n.Run()
	}
	for _, n := range list {
		n.WaitReady()
	}
	mustDo(t, list[0], "[notify-keyspace-events AKE]", "CONFIG", "GET", "notify-keyspace-events")
	waitEqual(t, list) // a node that was away sends the events of the entries with which it catches up
	hear(list[2], list, "again")
	waitEqual(t, list)
}

// TestTrackingOnEveryNode: a client that has read a key is told of changes through any node, but with NOLOOP not of its own.
func TestTrackingOnEveryNode(t *testing.T) {
	list := nodes.Start(t, 3)
	mustDo(t, list[0], "OK", "SET", "k", "0")
	var plain, noloop []*listener
	for _, n := range list {
		for _, option := range []string{"", " NOLOOP"} {
			l := hearNode(t, n)
			l.send("HELLO 3\r\nCLIENT GETNAME")
			l.skip("_")
			l.send("CLIENT TRACKING ON" + option)
			l.expect("+OK")
			if option == "" {
				plain = append(plain, l)
			} else {
				noloop = append(noloop, l)
			}
		}
	}
	for i, writer := range noloop {
		// Each round has a key of its own: a node that lags behind would tell the client of an earlier change.
		key := fmt.Sprintf("k%d", i)
		for _, l := range append(plain, noloop...) {
			l.send("EXISTS " + key)
			l.expect(":0")
		}
		writer.send("SET " + key + " v PX 60000")
		writer.expect("+OK")
		for _, l := range append(plain, noloop...) {
			if l != writer {
				l.expectInvalid(key)
			}
		}
		// A client with NOLOOP is not told of its own change, but is told of another client's change.
		writer.send("GET " + key)
		writer.expect("$1", "v")
		plain[i].send("DEL " + key)
		plain[i].expect(":1")
		writer.expectInvalid(key)
	}
}
