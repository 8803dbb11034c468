package server

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/transcript"
	"github.com/lockstep-io/lockstep/store"
)

// TestMessagesDuringAnExec: a message that comes during an EXEC follows its replies, in the protocol after the EXEC, and only if the
// subscription still exists.
func TestMessagesDuringAnExec(t *testing.T) {
	const told, pushed = "message\r\n$2\r\nch\r\n$1\r\nm\r\n", "invalidate\r\n*1\r\n$1\r\nk\r\n"
	eachPath(t, func(t *testing.T, loops int) {
		for _, test := range []struct{ before, last, want, end string }{
			{"HELLO 3\r\nSUBSCRIBE ch\r\n", "ECHO x", ">3\r\n$7\r\n" + told, ""},
			{"HELLO 3\r\nSUBSCRIBE ch\r\n", "UNSUBSCRIBE ch", "", ""},
			{"HELLO 3\r\nSUBSCRIBE ch\r\n", "HELLO 2", "*3\r\n$7\r\n" + told, "*2\r\n" + bulk("pong") + bulk("end")},
			{"HELLO 3\r\nCLIENT TRACKING ON BCAST\r\n", "ECHO x", ">2\r\n$10\r\n" + pushed, ""},
			{"HELLO 3\r\nCLIENT TRACKING ON BCAST\r\n", "HELLO 2", "", ""},
		} {
			ts := newTestServer(t, func(c *Config) { c.Loops, c.Durable, c.patience = loops, true, time.Hour })
			c := ts.dial(t)
			r := bufio.NewReader(c.conn)
			read := func() {
				if _, err := transcript.ReadValue(r); err != nil {
					t.Fatal(err)
				}
			}
			c.send(test.before)
			read()
			read()
			release := ts.holdAfter(1)
			c.send("MULTI\r\nGET k\r\nCONFIG GET maxmemory\r\n" + test.last + "\r\nEXEC\r\n")
			for range 4 {
				read()
			}
			if line, err := r.ReadString('\n'); line != "*3\r\n" {
				t.Fatal(line, err)
			}
			ts.hub.Publish(store.Channel, "ch", "m")
			ts.hub.tracker.mu.Lock()
			for _, s := range ts.hub.tracker.sessions.m {
				ts.hub.tracker.deliver(s, about("k", someone))
			}
			ts.hub.tracker.mu.Unlock()
			release()
			for range 3 { // the replies of the EXEC
				read()
			}
			c.send("PING end\r\n")
			want := test.want + cmp.Or(test.end, bulk("end"))
			got := make([]byte, len(want))
			if _, err := io.ReadFull(r, got); err != nil || string(got) != want {
				t.Errorf("%q and %s: got %q, %v, want %q", test.before, test.last, got, err, want)
			}
			c.conn.Close()
		}
	})
}

// TestRedirectToOneself: as with Redis, a RESP2 client may redirect its invalidations to itself. It gets them as messages of
// its subscription.
func TestRedirectToOneself(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		c := ts.dial(t)
		c.do("PING", "+PONG\r\n")
		id := ts.each()[0].id
		other := ts.dial(t)
		c.do(fmt.Sprint("CLIENT TRACKING ON REDIRECT ", id), "+OK\r\n")
		c.do("GET k\r\nSUBSCRIBE "+invalidateChannel, "$-1\r\n*3\r\n"+bulk("subscribe")+bulk(invalidateChannel)+":1\r\n")
		other.do("SET k v", "+OK\r\n")
		c.expect("*3\r\n" + bulk("message") + bulk(invalidateChannel) + "*1\r\n" + bulk("k"))
	})
}

// TestTrackingThatBeginsLate: if the reads of a transaction run before the CLIENT TRACKING ON in front of them, the server tells the
// client to forget all keys.
func TestTrackingThatBeginsLate(t *testing.T) {
	const forget = ">2\r\n$10\r\ninvalidate\r\n_\r\n"
	bothPaths(t, func(t *testing.T, ts *testServer) {
		for _, test := range []struct{ queue, replies, want string }{
			{"CLIENT TRACKING OFF\r\nCLIENT TRACKING ON\r\nGET k\r\n", "*3\r\n+OK\r\n+OK\r\n_\r\n", forget},
			{"CLIENT TRACKING OFF\r\nGET k\r\nCLIENT TRACKING ON\r\n", "*3\r\n+OK\r\n_\r\n+OK\r\n", ""},
			{"CLIENT TRACKING ON\r\nGET k\r\nECHO x\r\n", "*3\r\n+OK\r\n_\r\n" + bulk("x"), ""},
			{"CLIENT TRACKING OFF\r\nCLIENT TRACKING ON BCAST\r\nGET k\r\n", "*3\r\n+OK\r\n+OK\r\n_\r\n", ""},
		} {
			c := ts.dial(t)
			c.ask("HELLO", "3")
			c.send("MULTI\r\n" + test.queue + "EXEC\r\nPING\r\n")
			c.expect("+OK\r\n" + strings.Repeat("+QUEUED\r\n", 3) + test.replies + test.want + "+PONG\r\n")
			c.conn.Close()
		}
	})
}
