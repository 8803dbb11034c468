package server

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// TestPipelineBehindABlockedCommandAtShutdown: a shutdown closes a blocked client's connection without a reply, because a later reply
// would seem to answer the blocked command.
func TestPipelineBehindABlockedCommandAtShutdown(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		c := ts.dial(t)
		c.send("BLPOP nothing 0\r\nINCR x\r\nECHO other\r\n")
		ts.await(func() bool { return ts.fake.blockedClients() == 1 })
		go func() { _ = ts.Shutdown(t.Context()) }()
		c.expectClosed()
	})
}

// TestSwappedDatabasesAreTold: a client that has cached a value gets a message when SWAPDB swaps the databases.
func TestSwappedDatabasesAreTold(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		c, other := ts.tracker(t, ""), ts.dial(t)
		other.do("SET k v0", "+OK\r\n")
		c.do("GET k", bulk("v0"))
		other.do("SWAPDB 0 1", "+OK\r\n")
		c.send("PING\r\n")
		c.expect(">2\r\n")
	})
}

// TestRedirectTargetThatLeaves: a client of RESP2 gets no message of tracking after the reply to its UNSUBSCRIBE or RESET.
func TestRedirectTargetThatLeaves(t *testing.T) {
	for cmd, reply := range map[string]string{
		"UNSUBSCRIBE": "*3\r\n" + bulk("unsubscribe") + bulk(invalidateChannel) + ":0\r\n",
		"RESET":       "+RESET\r\n",
	} {
		t.Run(cmd, func(t *testing.T) {
			var on atomic.Bool
			in, out := make(chan struct{}), make(chan struct{})
			ts := newTestServer(t, func(c *Config) {
				c.Loops = 1
				clock := c.Clock
				c.Clock = func() time.Time {
					if on.Load() && stacks(false, "pushMessage") && on.CompareAndSwap(true, false) {
						close(in)
						<-out
					}
					return clock()
				}
			})
			target, reader := ts.dial(t), ts.dial(t)
			target.do("CLIENT ID", ":1\r\n")
			target.do("SUBSCRIBE "+invalidateChannel, "*3\r\n"+bulk("subscribe")+bulk(invalidateChannel)+":1\r\n")
			reader.do("CLIENT TRACKING ON REDIRECT 1", "+OK\r\n")
			reader.do("GET k", "$-1\r\n")
			on.Store(true)
			go ts.fake.set("k")
			<-in
			target.send(cmd + "\r\n")
			ended := make(chan string)
			go func() {
				got, b := "", make([]byte, 4096)
				for !strings.Contains(got, reply) {
					n, err := target.conn.Read(b)
					if got += string(b[:n]); err != nil {
						break
					}
				}
				ended <- got
			}()
			got := ""
			for got == "" && !stacks(true, "sync.(*RWMutex).Lock(") {
				select {
				case got = <-ended:
				default:
					runtime.Gosched()
				}
			}
			close(out)
			if got == "" {
				got = <-ended
			}
			if !strings.HasSuffix(got, reply) {
				t.Errorf("%q", got)
			}
			if got = target.ask("PING", "again").Text; got != "again" {
				t.Errorf("then %q", got)
			}
		})
	}
}

// stacks reports whether a function is on the stack of this goroutine (any: of any goroutine).
func stacks(any bool, function string) bool {
	b := make([]byte, 1<<20)
	return bytes.Contains(b[:runtime.Stack(b, any)], []byte(function))
}

// TestHelloBesideMessages: messages before the reply to HELLO are in the old protocol, and messages after it in the new one.
func TestHelloBesideMessages(t *testing.T) {
	ts := newTestServer(t, func(c *Config) { c.Loops = 1 })
	for range 100 {
		c := ts.dial(t)
		c.send("HELLO 3\r\nSUBSCRIBE c\r\n")
		c.until("subscribe\r\n$1\r\nc\r\n:1\r\n")
		stop, done := make(chan struct{}), make(chan struct{})
		var published atomic.Int64
		go func() {
			defer close(done)
			for {
				select {
				case <-stop:
					return
				default:
					ts.hub.Publish(store.Channel, "c", "hi")
					published.Add(1)
				}
			}
		}()
		ts.await(func() bool { return published.Load() > 3 })
		c.send("HELLO 2\r\nPING end\r\n")
		got, b := "", make([]byte, 65536)
		for !strings.Contains(got, "pong\r\n$3\r\nend\r\n") {
			n, err := c.conn.Read(b)
			if got += string(b[:n]); err != nil {
				break
			}
		}
		close(stop)
		<-done
		before, after, _ := strings.Cut(got, "server\r\n")
		if strings.Contains(after, ">3\r\n") || strings.Contains(before, "*3\r\n$7\r\nmessage") {
			t.Fatalf("%.200q and then %.400q", before, after)
		}
		_ = c.conn.Close()
	}
}

// TestLongReadsAreRefused: the arguments of a read are limited like those of a write, because long reads would delay others' requests to
// the leader.
func TestLongReadsAreRefused(t *testing.T) {
	ts := newTestServer(t, nil)
	c := ts.dial(t)
	limit := int(ts.backend.MaxEntry())
	for _, size := range []int{limit, limit + store.MinEntry + 1} {
		want := ":0\r\n"
		if size > limit {
			want = fmt.Sprintf("-%v\r\n", store.ErrArgumentsTooBig(int64(limit)))
		}
		c.send(fmt.Sprintf("*2\r\n$6\r\nEXISTS\r\n$%d\r\n%s\r\n", size, strings.Repeat("k", size)))
		c.expect(want)
	}
}

// TestInfoCacheAnswersEachNameOnce: a SENTINEL INFO-CACHE of megabytes that repeats one name must not get a reply of gigabytes.
func TestInfoCacheAnswersEachNameOnce(t *testing.T) {
	ts := newTestServer(t, nil)
	c := dialTo(t, ts.sentinel(t))
	ts.fake.become(fakeTopology("n1"))
	names := []string{"SENTINEL", "INFO-CACHE"}
	for range 1000 {
		names = append(names, "mymaster")
	}
	one, many := c.ask(names[:3]...), c.ask(names...)
	if len(one.Elems) != 2 || len(many.Elems) != 2 {
		t.Errorf("%d elements for a name, %d for the same name a thousand times", len(one.Elems), len(many.Elems))
	}
}

// TestMessagesAfterQuit: a client gets all its replies, though messages for it come after its QUIT.
func TestMessagesAfterQuit(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		c, other := ts.dial(t), ts.dial(t)
		readLittle(t, c.conn, 64<<10)
		large := strings.Repeat("x", 100_000)
		other.ask("SET", "large", large)
		c.send("HELLO 3\r\nSUBSCRIBE c\r\n")
		c.until("subscribe\r\n$1\r\nc\r\n:1\r\n")
		// The session must have finished SUBSCRIBE. Otherwise it would wait until the client reads the messages below, and would not
		// see QUIT.
		s := ts.each()[0]
		ts.await(func() bool { return !s.isRunning() })
		for range 6 {
			ts.hub.Publish(store.Channel, "c", large)
		}
		c.send("GET large\r\nQUIT\r\n")
		ts.await(func() bool { // the session may have ended already, if the kernel has taken all output
			return s.isClosing() || len(ts.each()) == 1
		})
		for range 3 {
			ts.hub.Publish(store.Channel, "c", large)
		}
		got, err := io.ReadAll(c.conn)
		if want := "$100000\r\n" + large + "\r\n+OK\r\n"; err != nil || !strings.HasSuffix(string(got), want) {
			t.Errorf("%d bytes, %v; the last are %q", len(got), err, got[max(0, len(got)-40):])
		}
	})
}
