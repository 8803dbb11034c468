package server

import (
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lockstep-io/lockstep/store"
)

// deaf makes a session whose client reads nothing. The session speaks RESP3, and tracks in the way that the argument how gives.
func (ts *testServer) deaf(t *testing.T, how *tracking) *session {
	t.Helper()
	conn, other := net.Pipe()
	t.Cleanup(func() { conn.Close(); other.Close() })
	s := &session{srv: ts.Server, id: ts.lastID.Add(1), conn: &guard{Conn: conn}}
	s.out = newOutbox(conn, new(atomic.Int64), new(atomic.Int64))
	s.out.setOnPush(func() {}) // does nothing, so messages stay in the outbox
	s.resp.Store(3)
	slices.Sort(how.prefixes)
	ts.hub.tracker.enable(s, how)
	t.Cleanup(func() { ts.hub.tracker.disable(s) })
	return s
}

// received returns the messages that wait for a session, and forgets them.
func received(s *session) string {
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	all := string(s.out.pending.take(nil))
	for s.out.pending.len() > 0 {
		all += string(s.out.pending.take(nil))
	}
	return all
}

// forgetAll is the message that all keys may have changed.
var forgetAll = ">2\r\n" + bulk("invalidate") + "_\r\n"

// changesOf returns a write set that changes keys.
func changesOf(keys []string, origin uint64) []byte {
	txn := store.New().Begin(store.Time{Lease: 1}, 1, store.Env{})
	txn.SetOrigin(origin)
	for _, key := range keys {
		txn.SetString(0, []byte(key), "", 0)
	}
	return txn.Writes().Bytes()
}

// numbered returns n keys.
func numbered(n int, format string) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf(format, i)
	}
	return keys
}

// allocated returns how many bytes do allocates.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestKeysOfManyPrefixes: the node stores a changed key once, however many prefixes it has. If too many keys of one prefix have changed,
// listeners of others still get theirs.
func TestKeysOfManyPrefixes(t *testing.T) {
	ts := newTestServer(t, nil)
	long := "app:" + strings.Repeat("a", 800)
	var nested []*session
	for i := range 100 {
		nested = append(nested, ts.deaf(t, &tracking{bcast: true, prefixes: []string{long[:4+8*i]}}))
	}
	other := ts.deaf(t, &tracking{bcast: true, prefixes: []string{"other:"}})
	writes := changesOf(append([]string{"other:1", "other:2"}, numbered(7000, long+"%d")...), 0)
	if n := allocated(func() { ts.hub.Applied(writes) }); n > 32<<20 {
		t.Errorf("%d bytes are allocated for a write set of %d", n, len(writes))
	}
	for _, s := range nested {
		if got := received(s); got != forgetAll {
			t.Fatalf("a listener to a prefix of too many keys got %.200q", got)
		}
	}
	if got := received(other); got != invalidation("other:1", "other:2") {
		t.Errorf("a listener to another prefix got %q", got)
	}
	ts.hub.Applied(changesOf([]string{long}, 0))
	for _, s := range nested {
		if got := received(s); got != invalidation(long) {
			t.Fatalf("of a small write set a listener got %.200q", got)
		}
	}
}

// TestManyPrefixesOfOneClient: one search finds all prefixes of a key. With a search for each length, this test would take minutes.
func TestManyPrefixesOfOneClient(t *testing.T) {
	ts := newTestServer(t, nil)
	var prefixes []string
	for i := range 2500 {
		prefixes = append(prefixes, strings.Repeat("x", i)+"y")
	}
	s := ts.deaf(t, &tracking{bcast: true, prefixes: prefixes})
	writes := changesOf(numbered(50_000, "app:%d"), 0)
	for range 20 {
		ts.hub.Applied(writes)
	}
	if got := received(s); got != "" {
		t.Errorf("got %.200q", got)
	}
	ts.hub.Applied(changesOf([]string{"xxxyz"}, 0))
	if got := received(s); got != invalidation("xxxyz") {
		t.Errorf("got %.200q", got)
	}
}

// TestMessagesAreEncodedOnce: 400 clients with NOLOOP share a message. Only a client that has made some of the changes gets a
// message of its own.
func TestMessagesAreEncodedOnce(t *testing.T) {
	ts := newTestServer(t, nil)
	ts.params.clientLimit.Store(0)
	var all []*session
	for range 400 {
		all = append(all, ts.deaf(t, &tracking{bcast: true, noloop: true, prefixes: []string{""}}))
	}
	mine := []string{"mine"}
	keys := numbered(6000, "key:%05d")
	writes := append(changesOf(keys, 0), changesOf(mine, ts.hub.tracker.origin(all[0]))...)
	if n := allocated(func() { ts.hub.Applied(writes) }); n > 16<<20 {
		t.Errorf("%d bytes are allocated for a message to 400 clients", n)
	}
	own, others := invalidation(keys...), invalidation(append(slices.Clone(keys), mine...)...)
	for i, s := range all {
		want := others
		if i == 0 {
			want = own
		}
		if got := received(s); got != want {
			t.Fatalf("client %d got %.200q …", i, got)
		}
	}
}

// TestMessagesOfOneWriteSetAreBounded: a client beyond the bounds for one write set is told once that all keys may have changed.
func TestMessagesOfOneWriteSetAreBounded(t *testing.T) {
	for _, c := range []struct {
		name     string
		prefixes []string // none: the clients read the keys
		limit    int64    // maxmemory-clients
		flush    int      // how many clients are told to forget all, at least
		format   string
	}{
		{"messages to readers", nil, 0, 100, "%d"},
		{"bytes to readers", nil, 1 << 20, 190, "%d" + strings.Repeat("x", 100)},
		{"messages to listeners", numbered(1000, "%d:"), 0, 100, "%d:"},
		{"bytes to listeners", []string{""}, 1 << 20, 150, "%d"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ts := newTestServer(t, nil)
			ts.params.clientLimit.Store(0)
			keys := numbered(1000, c.format)
			bytes := make([][]byte, len(keys))
			for i, key := range keys {
				bytes[i] = []byte(key)
			}
			var all []*session
			for range 200 {
				s := ts.deaf(t, &tracking{bcast: c.prefixes != nil, prefixes: slices.Clone(c.prefixes)})
				if c.prefixes == nil {
					ts.hub.tracker.remember(s, bytes, false)
				}
				all = append(all, s)
			}
			ts.params.clientLimit.Store(c.limit)
			ts.hub.Applied(changesOf(keys, 0))
			flushed, messages := 0, 0
			for i, s := range all {
				got := received(s)
				n := strings.Count(got, "invalidate")
				messages += n
				switch told := strings.HasSuffix(got, forgetAll); {
				case told:
					flushed++
				case c.prefixes == nil && n < len(keys):
					t.Errorf("client %d got %d messages, and is not told to forget all", i, n)
				}
				if strings.Count(got, forgetAll) > 1 {
					t.Errorf("client %d is told twice to forget all", i)
				}
			}
			if messages > maxTold+len(all) || flushed < c.flush {
				t.Errorf("%d messages, %d clients are told to forget all", messages, flushed)
			}
		})
	}
}

// TestManyReadersOfChangedKeys: if changed keys have too many readers, the node does not look them up. It forgets the keys that all
// sessions have read.
func TestManyReadersOfChangedKeys(t *testing.T) {
	ts := newTestServer(t, nil)
	ts.params.clientLimit.Store(0)
	s, other := ts.deaf(t, &tracking{noloop: true}), ts.deaf(t, &tracking{bcast: true, prefixes: []string{"x"}})
	ts.hub.tracker.remember(s, [][]byte{[]byte("k"), []byte("l")}, false)
	ts.hub.tracker.changes.forgotten = maxForgotten
	ts.hub.tracker.Touch("k", 0)
	ts.hub.tracker.Touch("l", 0)
	if keys, items, _ := ts.hub.tracker.sizes(); keys+items != 0 {
		t.Errorf("%d keys, %d items are left", keys, items)
	}
	if got := received(s); got != forgetAll {
		t.Errorf("a reader got %q", got)
	}
	if got := received(other); got != "" {
		t.Errorf("a listener got %q", got)
	}
}

// TestFlushesOfOneWriteSet: a script empties the database again and again. After maxTold messages, each client gets one last message
// that all keys may have changed.
func TestFlushesOfOneWriteSet(t *testing.T) {
	ts := newTestServer(t, nil)
	s := ts.deaf(t, &tracking{})
	for range maxTold + 100 {
		ts.hub.tracker.TouchAll()
		ts.hub.tracker.Touch("k", 0)
	}
	if n := strings.Count(received(s), forgetAll); n != maxTold+1 {
		t.Errorf("%d messages", n)
	}
}

// TestPrefixTree compares the prefixes that the tree finds for a key with those that a search of all prefixes finds.
func TestPrefixTree(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	word := func() string {
		b := make([]byte, random.IntN(7))
		for i := range b {
			b[i] = "ab\xff"[random.IntN(3)]
		}
		return string(b)
	}
	sessions := []*session{{id: 1}, {id: 2}, {id: 3}}
	type entry struct {
		text string
		s    *session
	}
	there, count, root := map[entry]bool{}, map[string]int{}, &prefix{}
	for range 4000 {
		e := entry{word(), sessions[random.IntN(len(sessions))]}
		if random.IntN(2) == 0 {
			if !there[e] {
				count[e.text]++
			}
			if first := root.add(e.text, e.s); first != (count[e.text] == 1 && !there[e]) {
				t.Fatalf("add %q: first is %v", e.text, first)
			}
			there[e] = true
		} else {
			if there[e] {
				count[e.text]--
			}
			if last := root.remove(e.text, e.s); last != (there[e] && count[e.text] == 0) {
				t.Fatalf("remove %q: last is %v", e.text, last)
			}
			delete(there, e)
		}
		key := word()
		want, got := map[entry]bool{}, map[entry]bool{}
		for e := range there {
			if strings.HasPrefix(key, e.text) {
				want[e] = true
			}
		}
		root.of(key, func(p *prefix) {
			for s := range p.sessions.m {
				got[entry{p.text, s}] = true
			}
		})
		if fmt.Sprint(want) != fmt.Sprint(got) {
			t.Fatalf("%q has %v, want %v", key, got, want)
		}
	}
	for e := range there {
		root.remove(e.text, e.s)
	}
	if len(root.children) > 0 || root.heard() {
		t.Errorf("%d children are left", len(root.children))
	}
}
