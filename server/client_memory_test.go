package server

import (
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/cluster"
)

// If clients hold too much memory in half commands, queues or unread replies, the server cuts off the largest, and serves the others.
func TestClientsThatHoldTooMuch(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		other := ts.dial(t)
		other.do("CONFIG SET maxmemory-clients 4mb", "+OK\r\n")
		ts.fake.whole.Store(true)
		big := strings.Repeat("x", 900_000)
		for i := range 12 {
			c := ts.dial(t)
			switch i % 3 {
			case 0: // half a command
				c.send(fmt.Sprintf("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n%s", 2*len(big), big))
			case 1: // a queue
				c.send("MULTI\r\n" + array("SET", "k", big))
			case 2: // replies that nobody reads
				c.send(array("SET", "big", big) + strings.Repeat(array("GET", "big"), 8))
			}
		}
		deadline := time.Now().Add(10 * time.Second)
		for {
			ts.evictClients() // as once a second
			held := int64(0)
			for _, s := range ts.each() {
				held += s.memory()
			}
			if _, cut := ts.ClientMemory(); cut >= 5 && held <= 4<<20 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d bytes are held", held)
			}
			time.Sleep(10 * time.Millisecond)
		}
		other.do("SET lock me NX", "+OK\r\n")
		other.do("DEL lock", ":1\r\n")
	})
}

// TestRepliesBehindAFullSocket: a client does not read its replies, so later replies wait. The waiting replies count as
// memory of the client.
func TestRepliesBehindAFullSocket(t *testing.T) {
	ts := newTestServer(t, nil) // without loops: the goroutine waits for the socket
	ts.fake.whole.Store(true)
	c := ts.dial(t)
	c.send(array("SET", "big", strings.Repeat("x", 900_000)))
	c.expect("+OK\r\n")
	c.send(strings.Repeat(array("GET", "big"), 50))
	s := ts.last()
	ts.await(func() bool { return s.memory() > 30<<20 })
	for range 50 {
		c.expect("$900000\r\n" + strings.Repeat("x", 900_000) + "\r\n")
	}
	ts.await(func() bool { return s.held.bytes.Load() == 0 })
}

// TestManyClientsAreCutOff: the server cuts off the clients that hold most, keeps a few others, and logs few lines.
func TestManyClientsAreCutOff(t *testing.T) {
	log := new(lines)
	ts := newTestServer(t, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(log, nil)) })
	const many = 300
	other := ts.dial(t)
	other.do("PING", "+PONG\r\n")
	hold := func(n int) {
		t.Helper()
		for i := range n {
			c := ts.dial(t)
			c.do("CLIENT SETNAME "+strings.Repeat("n", 12_000+i), "+OK\r\n")
		}
	}
	hold(many)
	other.do("CONFIG SET maxmemory-clients 240000", "+OK\r\n")
	ts.evictClients()
	if _, cut := ts.ClientMemory(); cut < many-20 || cut >= many {
		t.Errorf("%d of %d were cut off", cut, many)
	}
	for _, s := range ts.each() {
		if n := s.memory(); n > 12_000+25 && !s.out.isOver() {
			t.Errorf("one that holds %d is left", n)
		}
	}
	hold(20)
	ts.evictClients()
	if n := log.count("clients were cut off"); n != 1 {
		t.Errorf("%d lines in the log", n)
	}
	ts.fake.advance(seldomSilence)
	ts.evictClients()
	if n := log.count("clients were cut off"); n != 2 {
		t.Errorf("%d lines in the log after a while", n)
	}
	other.do("SET lock me NX", "+OK\r\n")
}

// Everything of a client that can grow counts as memory, and a client with too much of it is cut off.
func TestEveryHoldingCounts(t *testing.T) {
	const many = 5000
	names := func(words ...string) []string {
		for i := range many {
			words = append(words, fmt.Sprintf("name-%05d", i))
		}
		return words
	}
	prefixes := []string{"CLIENT", "TRACKING", "ON", "BCAST"}
	for _, name := range names() {
		prefixes = append(prefixes, "PREFIX", name)
	}
	word := strings.Repeat("n", 1<<20)
	for _, c := range []struct {
		name string
		send string
		free string // the command that gives the memory back
		each int64  // bytes for each of the many names, keys or commands
	}{
		{"channels", array(names("SUBSCRIBE")...), array("UNSUBSCRIBE"), subscriptionCost},
		{"patterns", array(names("PSUBSCRIBE")...), array("PUNSUBSCRIBE"), subscriptionCost},
		{"shard channels", array(names("SSUBSCRIBE")...), array("SUNSUBSCRIBE"), subscriptionCost},
		{"prefixes", array("HELLO", "3") + array(prefixes...), array("CLIENT", "TRACKING", "OFF"), prefixCost},
		{"watched keys", array(names("WATCH")...), array("UNWATCH"), watchCost},
		{"a queue", array("MULTI") + strings.Repeat(array("SET", "k", "v"), many), array("DISCARD"), commandCost + 3*argumentCost},
		{"keys that it waits for", array(append(names("BLPOP"), "0")...), "", cluster.BlockedSize(make([][]byte, many)) / many},
		{"a name", array("CLIENT", "SETNAME", word), array("CLIENT", "SETNAME", ""), int64(len(word)) / many},
		{"a library's name", array("CLIENT", "SETINFO", "LIB-NAME", word), array("CLIENT", "SETINFO", "LIB-NAME", ""), int64(len(word)) / many},
		{"a library's version", array("CLIENT", "SETINFO", "LIB-VER", word), array("CLIENT", "SETINFO", "LIB-VER", ""), int64(len(word)) / many},
	} {
		t.Run(c.name, func(t *testing.T) {
			bothPaths(t, func(t *testing.T, ts *testServer) {
				other, greedy := ts.dial(t), ts.dial(t)
				other.do("PING", "+PONG\r\n")
				greedy.do("PING", "+PONG\r\n")
				list := ts.each()
				s := list[len(list)-1]
				gone := make(chan struct{})
				go func() {
					defer close(gone)
					_, _ = io.Copy(io.Discard, greedy.conn) // until it is cut off
				}()
				want := many * c.each
				grown := func() bool {
					ts.evictClients()
					told, _ := ts.ClientMemory()
					return s.out.size() == 0 && s.held.bytes.Load() >= want && told >= want-keepOutput
				}
				greedy.send(c.send)
				ts.await(grown)
				if c.free != "" {
					greedy.send(c.free)
					ts.await(func() bool { return s.held.bytes.Load() == 0 })
					greedy.send(c.send)
					ts.await(grown)
				}
				other.do("CONFIG SET maxmemory-clients 256kb", "+OK\r\n")
				ts.evictClients() // as once a second
				ts.await(func() bool {
					select {
					case <-gone:
						return true
					default:
						return false
					}
				})
				ts.await(func() bool { told, cut := ts.ClientMemory(); return told == 0 && cut == 1 && len(ts.each()) == 1 })
				other.do("SET lock me NX", "+OK\r\n")
			})
		})
	}
}

// The server cuts off a client that does not read its messages, of whatever kind they are. It serves the others.
func TestUnreadMessagesCount(t *testing.T) {
	message := strings.Repeat("m", 64<<10)
	for name, listen := range map[string]string{
		"a channel":       array("SUBSCRIBE", "ch"),
		"a pattern":       array("PSUBSCRIBE", "c*"),
		"all commands":    array("MONITOR"),
		"changes of keys": array("HELLO", "3") + array("CLIENT", "TRACKING", "ON", "BCAST"),
	} {
		t.Run(name, func(t *testing.T) {
			bothPaths(t, func(t *testing.T, ts *testServer) {
				other, deaf := ts.dial(t), ts.dial(t)
				other.do(`CONFIG SET maxmemory-clients 2mb client-output-buffer-limit "pubsub 0 0 0"`, "+OK\r\n")
				deaf.send(listen + "PING\r\n")
				ts.await(func() bool { return ts.hub.Listens() || ts.monitors.count.Load() > 0 })
				deadline := time.Now().Add(20 * time.Second)
				for {
					other.ask("PUBLISH", "ch", message)
					other.ask("SET", message, "v")
					if _, cut := ts.ClientMemory(); cut == 1 {
						break
					}
					if time.Now().After(deadline) {
						t.Fatal("nobody was cut off")
					}
				}
				ts.await(func() bool { told, _ := ts.ClientMemory(); return told == 0 && len(ts.each()) == 1 })
				other.do("GET lock", "$-1\r\n")
			})
		})
	}
}

// The keys that the node remembers for CLIENT TRACKING take bounded memory, and so do the messages held back for a client.
func TestTrackedKeysAreBounded(t *testing.T) {
	ts := newTestServer(t, nil)
	other, reader := ts.dial(t), ts.dial(t)
	other.do("CONFIG SET maxmemory-clients 1mb tracking-table-max-keys 0", "+OK\r\n")
	reader.send(array("HELLO", "3") + array("CLIENT", "TRACKING", "ON"))
	go func() { _, _ = io.Copy(io.Discard, reader.conn) }()
	ts.await(func() bool { return ts.hub.tracker.clients.Load() == 1 })
	list := ts.each()
	s, tracked := list[len(list)-1], ts.hub.tracker
	for i := range 2000 {
		tracked.remember(s, [][]byte{fmt.Appendf(nil, "%d%s", i, strings.Repeat("k", 1000))}, false)
		if i%50 == 0 {
			ts.await(func() bool { return s.out.size() == 0 }) // or the messages about evicted keys could get the reader cut off
		}
	}
	tracked.mu.Lock()
	size, items, real := tracked.size, tracked.items, int64(0)
	for key, ids := range tracked.keys.all() {
		real += trackedCost + int64(len(key)) + readerCost*int64(len(ids))
	}
	tracked.mu.Unlock()
	if size != real || size > 512<<10 || items < 300 {
		t.Errorf("%d keys count as %d, take %d", items, size, real)
	}
	tracked.mu.Lock()
	s.waiting = true
	for range 100 {
		tracked.send(s, about(strings.Repeat("k", 30_000), someone))
	}
	late, lists := s.lateSize, len(s.late)
	tracked.mu.Unlock()
	if held := s.held.bytes.Load(); held != int64(late) || late > maxLateSize || lists > 40 {
		t.Errorf("%d messages of %d bytes are held back, %d counted", lists, late, held)
	}
	tracked.release(s)
	if held := s.held.bytes.Load(); held != 0 {
		t.Errorf("%d bytes are counted of nothing", held)
	}
}

// The server cuts off clients with CLIENT NO-EVICT only when they together hold more than half of the limit.
func TestNoEvictIsBounded(t *testing.T) {
	ts := newTestServer(t, nil)
	other := ts.dial(t)
	other.do("PING", "+PONG\r\n")
	hold := func(n, size int, exempt bool) {
		t.Helper()
		for range n {
			c := ts.dial(t)
			if exempt {
				c.do("CLIENT NO-EVICT ON", "+OK\r\n")
			}
			c.send(array("CLIENT", "SETNAME", strings.Repeat("n", size)))
			c.expect("+OK\r\n")
		}
	}
	left := func() (kept, others int) {
		t.Helper()
		other.do("CONFIG SET maxmemory-clients 1mb", "+OK\r\n")
		ts.evictClients()
		other.do("CONFIG SET maxmemory-clients 0", "+OK\r\n")
		for _, s := range ts.each() {
			switch {
			case s.out.isOver() || s.memory() < 10_000:
			case s.noEvict.Load():
				kept++
			default:
				others++
			}
		}
		return kept, others
	}
	other.do("CONFIG SET maxmemory-clients 0", "+OK\r\n")
	hold(5, 100_000, true)
	hold(4, 100_000, false)
	if kept, others := left(); kept != 5 || others != 4 {
		t.Errorf("%d with NO-EVICT and %d others are left of what has room", kept, others)
	}
	hold(9, 90_000, false)
	if kept, others := left(); kept != 5 || others < 4 {
		t.Errorf("%d with NO-EVICT and %d others are left", kept, others)
	}
	hold(20, 110_000, true)
	kept, others := left()
	if kept < 3 || kept > 5 || others < 3 {
		t.Errorf("%d with NO-EVICT and %d others are left after a flood", kept, others)
	}
	held := int64(0)
	for _, s := range ts.each() {
		if !s.out.isOver() {
			held += s.memory()
		}
	}
	if held > 1<<20 {
		t.Errorf("%d bytes are held", held)
	}
	other.do("SET lock me NX", "+OK\r\n")
}

// TestEmptyArgumentsCount: the arguments of a command that has arrived only in part count as memory even if they are empty.
func TestEmptyArgumentsCount(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		const many, limit = 100_000, 4 << 20
		ts := newTestServer(t, func(c *Config) { c.Loops, c.MaxMemoryClients = loops, limit })
		other := ts.dial(t)
		other.do("PING", "+PONG\r\n")
		part := fmt.Sprintf("*%d\r\n", many+1) + strings.Repeat("$0\r\n\r\n", many)
		ts.dial(t).send(part)
		ts.await(func() bool { return ts.clientMemory.arriving.Load() >= many*argumentCost })
		for range 10 {
			go ts.dial(t).conn.Write([]byte(part))
		}
		ts.await(func() bool { _, cut := ts.ClientMemory(); return cut > 0 })
		other.do("SET lock me NX", "+OK\r\n")
	})
}

// TestNoEvictIsNoRoom: without memory, the server stops reading commands even of clients with NO-EVICT, before a search for the largest
// clients.
func TestNoEvictIsNoRoom(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		const limit = 4 << 20
		ts := newTestServer(t, func(c *Config) { c.Loops, c.MaxMemoryClients = loops, limit })
		ts.clientMemory.cutting.Store(true) // so that the search does not begin
		for range 10 {
			c := ts.dial(t)
			c.do("CLIENT NO-EVICT ON", "+OK\r\n")
			go c.conn.Write([]byte("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2000000\r\n" + strings.Repeat("x", 1_000_000)))
		}
		ts.await(func() bool { _, cut := ts.ClientMemory(); return cut > 0 })
		if arriving := ts.clientMemory.arriving.Load(); arriving > 2*limit { // two loops may find room at the same moment
			t.Errorf("%d bytes have arrived", arriving)
		}
		ts.dial(t).do("SET lock me NX", "+OK\r\n")
	})
}

// A look at all clients corrects what they have reported, so that small unreported changes do not get other clients cut off.
func TestReportedMemoryIsCorrected(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		const limit = 4 << 20
		ts.clientMemory.limit.Store(limit)
		victim := ts.dial(t)
		value := strings.Repeat("v", 20_000)
		victim.do("PING", "+PONG\r\n")
		for range 100 {
			c := ts.dial(t)
			for _, size := range []int{33_000, 16_700} {
				c.send(array("CLIENT", "SETNAME", strings.Repeat("n", size)))
				c.expect("+OK\r\n")
			}
		}
		for i := range 7 {
			c := ts.dial(t)
			c.do("MULTI", "+OK\r\n")
			c.send(array("SET", fmt.Sprint(i), strings.Repeat("x", 250_000)))
			c.expect("+QUEUED\r\n")
		}
		ts.each()[0].goesOn() // as each command with growing memory does
		total, _, holders := ts.holders()
		if reported := ts.clientMemory.large.Load(); total > limit || len(holders) != 108 || reported > total {
			t.Errorf("%d clients hold %d of %d, and %d are reported", len(holders), total, limit, reported)
		}
		victim.send(array("SET", "k", value))
		victim.expect("+OK\r\n")
		victim.send(array("GET", "k"))
		victim.expect(bulk(value))
	})
}

// TestDyingClientsAreCutOffOnce: clients that have been cut off, but are not closed yet, cause no further search for the largest
// clients.
func TestDyingClientsAreCutOffOnce(t *testing.T) {
	passes := make(chan struct{}, 100)
	limit := new(atomic.Int64)
	limit.Store(1000)
	m := &clientMemory{limit: limit, relieve: func() { passes <- struct{}{} }}
	changed := func(by int64, want int) {
		t.Helper()
		m.changed(by)
		for range want {
			<-passes
		}
		for m.cutting.Load() {
			runtime.Gosched()
		}
		if n := len(passes); n > 0 {
			t.Fatalf("%d bytes more: %d passes more than %d", by, n, want)
		}
	}
	changed(1000, 0)
	changed(200, 1)
	m.dying.Store(400) // the pass has cut off a client that holds 400
	changed(100, 0)
	changed(100, 0)
	changed(1, 1)
	m.dying.Add(200)
	changed(-600, 0) // both are closed
	changed(199, 0)
	changed(1, 1)
	changed(-5000, 0)
	if d := m.dying.Load(); d != 0 {
		t.Errorf("%d bytes are still dying", d)
	}
}
