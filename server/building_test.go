package server

import (
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"weak"

	"github.com/lockstep-io/lockstep/store"
)

// For the commands that the session answers itself, the reply, the allocations and what the client holds meanwhile are bounded,
// whatever the words.
func TestRepliesOfOneNodeAreBounded(t *testing.T) {
	const words, limit, clients, enough = 20_000, 256 << 10, 256 << 10, 4 << 20
	ts := newTestServer(t, nil)
	ts.fake.maxReply.Store(limit)
	ts.params.clientLimit.Store(clients)
	effects := []string{"shutdown", "failover", "lockstep|transfer", "cluster|failover", "sentinel|failover", "client|kill", "client|unblock", "debug", "quit", "wait"}
	for cmd, do := range ts.handlers {
		if cmd.Arity > 0 || slices.Contains(effects, cmd.FullName()) || strings.HasPrefix(cmd.FullName(), "debug") {
			continue
		}
		for _, first := range []string{"", "mset", "id", "on bcast"} {
			for _, word := range []string{"get", "config", "*", "prefix %d", "%d"} {
				args := [][]byte{}
				for _, w := range strings.Fields(strings.ReplaceAll(cmd.FullName(), "|", " ") + " " + first) {
					args = append(args, []byte(w))
				}
				for i := 0; len(args) < words; i++ {
					for _, w := range strings.Fields(word) {
						if strings.Contains(w, "%d") {
							w = fmt.Sprintf(w, 1_000_000+i)
						}
						args = append(args, []byte(w))
					}
				}
				near, far := net.Pipe()
				s := ts.newSession(newGuard(near))
				if _, in := ts.register(s); !in {
					t.Fatal("closing")
				}
				s.resp.Store(3)
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				r := s.run(do, args)
				runtime.ReadMemStats(&after)
				name := fmt.Sprintf("%s %s %s …", cmd.FullName(), first, word)
				if took := after.TotalAlloc - before.TotalAlloc; took > enough {
					t.Errorf("%s: made %d bytes", name, took)
				}
				if n := store.Extent([]store.Reply{r}, 1<<30); n > 2*limit {
					t.Errorf("%s: a reply of %d bytes", name, n)
				}
				if n := s.memory(); n > 2*clients {
					t.Errorf("%s: the client holds %d", name, n)
				}
				s.out.abort()
				s.dropSubscriptions()
				ts.unregister(s)
				_ = far.Close()
			}
		}
	}
}

// A pipeline of commands that this node answers waits until the client reads. A transaction of such commands waits, too.
func TestPipelineWaitsForItsReader(t *testing.T) {
	const many = 100
	for name, pipeline := range map[string]string{
		"pipeline":    strings.Repeat(array("COMMAND"), many),
		"transaction": array("MULTI") + strings.Repeat(array("COMMAND"), many) + array("EXEC"),
	} {
		t.Run(name, func(t *testing.T) {
			bothPaths(t, func(t *testing.T, ts *testServer) {
				c := ts.dial(t)
				c.do("PING", "+PONG\r\n")
				s := ts.each()[0]
				c.send(pipeline + array("ECHO", "the end"))
				got, most, buf := 0, 0, make([]byte, 256<<10)
				for last := ""; !strings.HasSuffix(last, "the end\r\n"); {
					n, err := c.conn.Read(buf)
					if err != nil {
						t.Fatal(err)
					}
					got, last, most = got+n, string(buf[max(0, n-9):n]), max(most, s.out.size())
				}
				if got < many*50<<10 || most > 4*largeOutput {
					t.Errorf("of %d bytes up to %d waited", got, most)
				}
			})
		})
	}
}

// TestSlowReadersHoldNoElements: while a client does not read, its reply takes the memory of its encoded form, not that of its
// elements.
func TestSlowReadersHoldNoElements(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		const members, clients = 100_000, 8
		c := ts.dial(t)
		for i := range members / 1000 {
			call := []string{"SADD", "s"}
			for j := range 1000 {
				call = append(call, strconv.Itoa(1000*i+j))
			}
			c.send(array(call...))
			c.expect(":1000\r\n")
		}
		var elements []weak.Pointer[store.Reply]
		ts.fake.single.Store(true)
		ts.fake.mu.Lock()
		ts.fake.watch = func(r store.Reply) {
			if len(r.Elems) > 0 {
				elements = append(elements, weak.Make(&r.Elems[0]))
			}
		}
		ts.fake.mu.Unlock()
		slow := make([]*client, clients)
		for i := range slow {
			slow[i] = ts.dial(t)
			slow[i].send(strings.Repeat(array("SMEMBERS", "s")+array("ECHO", "x"), 20))
		}
		ts.await(func() bool {
			waiting := 0
			for _, s := range ts.each() {
				if s.out.size() > 0 {
					waiting++
				}
			}
			if waiting < clients {
				return false
			}
			runtime.GC()
			ts.fake.mu.Lock()
			defer ts.fake.mu.Unlock()
			for _, e := range elements {
				if e.Value() != nil {
					return false
				}
			}
			return len(elements) >= clients
		})
		runtime.KeepAlive(slow)
	})
}

// The server cuts off a client whose blocking command names too many keys, before the leader gets the command.
func TestWaitingForTooManyKeys(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		ts.dial(t).do("CONFIG SET maxmemory-clients 1mb", "+OK\r\n")
		c := ts.dial(t)
		c.send(array(append(append([]string{"BLPOP"}, strings.Fields(strings.Repeat("key ", 20_000))...), "0")...))
		c.expectClosed()
		ts.await(func() bool { held, cut := ts.ClientMemory(); return held == 0 && cut == 1 && len(ts.each()) == 1 })
		if n := ts.fake.begun.Load(); n != 0 {
			t.Errorf("%d began to wait", n)
		}
	})
}

// CLIENT TRACKING refuses overlapping prefixes. Prefixes overlap by the rules of Redis. The error names the first pair
// of overlapping prefixes.
func TestOverlappingPrefixes(t *testing.T) {
	for i, c := range []struct {
		old, given []string
		want       store.Error
	}{
		{nil, []string{"a", "b", "c"}, ""},
		{nil, []string{"b", "ab", "a", "abc"}, errPrefixTwice("ab", "a")},
		{nil, []string{"x", "a", "a"}, errPrefixTwice("a", "a")},
		{nil, []string{"x", ""}, errPrefixTwice("x", "")},
		{[]string{"a", "k"}, []string{"b", "key", "kez"}, errPrefixExists("key", "k")},
		{[]string{"a", "key"}, []string{"c", "cd", "k"}, errPrefixTwice("c", "cd")},
		{[]string{"a", "key"}, []string{"b", "d"}, ""},
	} {
		o := &trackingOptions{given: c.given}
		o.bcast = true
		old := &tracking{prefixes: c.old, bcast: true}
		if got := o.fit(old); got != c.want {
			t.Errorf("%d: %q, want %q", i, got, c.want)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var all []string
		for range 1 + random.IntN(6) {
			all = append(all, strings.Repeat("a", random.IntN(3))+strings.Repeat("b", random.IntN(3)))
		}
		meets := overlapping(all)
		for i := range all {
			want := false
			for j := range all {
				want = want || i != j && overlap(all[i], all[j])
			}
			if meets[i] != want {
				t.Fatalf("%q: %v", all, meets)
			}
		}
	}
}

// TestLargeRepliesFindNoRoom: while clients hold too much memory, the server encodes large replies only for clients with CLIENT
// NO-EVICT.
func TestLargeRepliesFindNoRoom(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		set := ts.dial(t)
		large := strings.Repeat("x", 600<<10)
		set.do("CONFIG SET maxmemory-clients 2mb", "+OK\r\n")
		kept := ts.dial(t)
		kept.do("CLIENT NO-EVICT on", "+OK\r\n")
		kept.send(array("SET", "k", large))
		kept.expect("+OK\r\n")
		ts.clientMemory.large.Add(2 << 20) // as if by other clients that are about to be cut off
		c := ts.dial(t)
		c.do("ECHO small", "$5\r\nsmall\r\n")
		c.send("GET k\r\n")
		c.expectClosed()
		kept.do("GET k", "$614400\r\n"+large+"\r\n")
		ts.clientMemory.large.Add(-2 << 20)
		ts.dial(t).do("GET k", "$614400\r\n"+large+"\r\n")
	})
}
