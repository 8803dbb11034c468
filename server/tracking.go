package server

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"lockstep/cluster"
	"lockstep/store"
)

// This file has client side caching (CLIENT TRACKING): a client keeps the values that it has read and gets
// a message when they change. Each node serves its own clients. It sees every write set that it applies, so
// it knows the changes by the clients of all nodes.
//
// A value that a client may have kept never changes without a message to the client:
//
//   - The node remembers a key before the read goes to the leader. Writes after the leader's read are
//     applied on this node later than that.
//   - This node may lag behind the leader. So while the reply is on its way, this node may apply a change
//     that the leader had seen when it read, or a change that the leader had not seen. In both cases the
//     node sends the message and forgets the key. So while a tracking client waits for replies, the node
//     holds its messages back and sends them after the replies: at worst, the client discards a value that
//     is still right.
//   - A message comes after the change is committed, and the leader evaluates nothing on a state that
//     lacks a committed change. So a client that reads again gets the new value, through any node.
//
// A node that is cut off from the leader sends no messages, as a Redis replica would not. A client that
// depends on the messages has to let its cache age.
//
// NOLOOP suppresses a client's messages about its own changes. The write set says which session made a
// change: a session with NOLOOP has a number that is unique in the cluster, its calls carry the number to
// the leader, and the leader puts it in front of their writes (write op 32). The node cannot derive this
// from the reply: a write set holds the writes of many clients, and another client's write to the same key
// may stand before or after the client's own. Redis forgets a key after such a change; this node still
// remembers it, because a pipeline may have read the key again after its change.
//
// As in Redis, keys are not distinguished by database.

// tracker records what the clients of this node have read.
type tracker struct {
	clients atomic.Int32 // how many clients track; without any, a write costs only this load
	maxKeys atomic.Int64 // tracking-table-max-keys; 0: no limit
	maxSize func() int64 // bytes of keys that may be remembered; 0: no limit
	base    uint64       // the first origin of this node's sessions

	// Lock order: the FSM's lock, then mu, then a server's and an outbox's.
	mu       sync.Mutex
	sessions map[int64]*session               // sessions that track
	keys     map[string]map[int64]struct{}    // the sessions that have read a key
	items    int                              // pairs in keys
	size     int64                            // bytes of keys
	prefixes map[string]map[*session]struct{} // the sessions that listen to a prefix
	lengths  map[int]int                      // how many prefixes have a length

	changed map[string]map[string]uint64 // keys of the present write set by prefix, with the origin of the change
	emptied bool                         // the last change was to all keys
}

// These are the costs of a remembered key, without its bytes, and of each reader.
const (
	trackedCost = 192
	readerCost  = 24
)

// someone is an origin that no session has: it means that several sessions have changed a key.
const someone = 0

func newTracker() *tracker {
	return &tracker{
		maxSize:  func() int64 { return 0 },
		base:     rand.Uint64() &^ (1<<32 - 1),
		sessions: map[int64]*session{},
		keys:     map[string]map[int64]struct{}{},
		prefixes: map[string]map[*session]struct{}{}, lengths: map[int]int{},
		changed: map[string]map[string]uint64{},
	}
}

// tracking is how a session tracks. It is replaced and never changed, except for broken.
type tracking struct {
	redirect             int64 // id of the client that gets the messages; 0: itself
	bcast, optin, optout bool
	noloop               bool
	prefixes             []string    // sorted
	broken               atomic.Bool // the redirection has no target any more
}

// origin returns the number that identifies a session in write sets.
func (t *tracker) origin(s *session) uint64 { return t.base + uint64(s.id) }

// enable starts tracking or changes how a session tracks.
func (t *tracker) enable(s *session, how *tracking) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, again := t.sessions[s.id]; !again {
		t.sessions[s.id] = s
		t.clients.Add(1)
	}
	t.list(s, how)
	s.tracking.Store(how)
	s.countPrefixes(how)
}

// disable ends tracking. The keys that the session has read stay until they change, as in Redis, unless
// no session tracks any more.
func (t *tracker) disable(s *session) {
	how := s.tracking.Load()
	if how == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s.tracking.Store(nil)
	s.dropLate()
	if _, is := t.sessions[s.id]; !is {
		return
	}
	delete(t.sessions, s.id)
	t.clients.Add(-1)
	t.unlist(s, how)
	s.countPrefixes(nil)
	if len(t.sessions) == 0 {
		clear(t.keys)
		t.items, t.size = 0, 0
	}
}

// restore makes a session track as before a transaction that did not take place.
func (t *tracker) restore(s *session, before *tracking) {
	switch now := s.tracking.Load(); {
	case now == before:
	case before == nil:
		t.disable(s)
	default:
		t.mu.Lock()
		defer t.mu.Unlock()
		t.unlist(s, now)
		t.list(s, before)
		s.tracking.Store(before)
		s.countPrefixes(before)
	}
}

// list makes a session listen to the prefixes of its tracking. The caller holds mu.
func (t *tracker) list(s *session, how *tracking) {
	for _, prefix := range how.prefixes {
		if t.prefixes[prefix] == nil {
			t.prefixes[prefix] = map[*session]struct{}{}
			t.lengths[len(prefix)]++
		}
		t.prefixes[prefix][s] = struct{}{}
	}
}

// countPrefixes counts the memory of the prefixes that a session listens to from now on. The caller
// holds mu.
func (s *session) countPrefixes(how *tracking) {
	size := int64(0)
	if how != nil {
		size = sizeOf(how.prefixes)
	}
	s.holds(size - s.prefixSize)
	s.prefixSize = size
}

// sizeOf returns the memory that prefixes count as.
func sizeOf(prefixes []string) int64 {
	size := int64(0)
	for _, prefix := range prefixes {
		size += prefixCost + int64(len(prefix))
	}
	return size
}

// unlist reverses list.
func (t *tracker) unlist(s *session, how *tracking) {
	for _, prefix := range how.prefixes {
		delete(t.prefixes[prefix], s)
		if len(t.prefixes[prefix]) == 0 {
			delete(t.prefixes, prefix)
			if t.lengths[len(prefix)]--; t.lengths[len(prefix)] == 0 {
				delete(t.lengths, len(prefix))
			}
		}
	}
}

// track prepares a call of a tracking session before it is submitted.
func (s *session) track(call *cluster.Call) {
	how := s.tracking.Load()
	if how == nil {
		return
	}
	t := s.srv.hub.tracker
	// Redis tells a client in BCAST mode about changes by its own scripts.
	if how.noloop && !(how.bcast && call.Cmd.Is(store.Scripting)) {
		call.Origin = t.origin(s)
	}
	// Messages about changes by a blocking command must follow its reply: the origin identifies the
	// changes.
	if call.Cmd.Is(store.Blocking) {
		call.Origin = t.origin(s)
	}
	var keys [][]byte
	if !how.bcast && !(how.optin && !s.caching) && !(how.optout && s.caching) && mayRead(call.Cmd) {
		keys, _ = call.Cmd.KeysOf(call.Args)
	}
	// A blocking command returns nothing that a client may keep, and may wait forever.
	s.holding = s.holding || !call.Cmd.Is(store.Blocking)
	t.remember(s, keys, s.holding)
}

// mayRead reports whether clients may keep the result of a command. All keys of a script count, because
// what it reads is not known before it runs.
func mayRead(cmd *store.Command) bool {
	return cmd.Is(store.ReadOnly) && !cmd.Is(store.PubSub) || cmd.Is(store.Scripting)
}

// remember records the keys that a session is about to read, and whether its messages are held back.
func (t *tracker) remember(s *session, keys [][]byte, hold bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.waiting = hold
	for _, key := range keys {
		ids := t.keys[string(key)]
		if ids == nil {
			ids = map[int64]struct{}{}
			t.keys[string(key)] = ids
			t.size += trackedCost + int64(len(key))
		}
		if _, known := ids[s.id]; !known {
			ids[s.id] = struct{}{}
			t.items++
			t.size += readerCost
		}
	}
	t.evict()
}

// evict invalidates keys until the tracker remembers no more than its limits allow. The caller holds
// mu.
func (t *tracker) evict() {
	limit, bytes := t.maxKeys.Load(), t.maxSize()
	for key := range t.keys {
		if (limit == 0 || int64(len(t.keys)) <= limit) && (bytes == 0 || t.size <= bytes) {
			break
		}
		t.invalidate(key, t.keys[key], someone)
	}
}

// setMaxKeys sets tracking-table-max-keys.
func (t *tracker) setMaxKeys(limit int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.maxKeys.Store(limit)
	t.evict()
}

// setMaxSize sets the function that returns how many bytes of keys the tracker may remember.
func (t *tracker) setMaxSize(fn func() int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.maxSize = fn
}

// release sends the messages that were held back while a session waited for replies.
func (t *tracker) release(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.waiting = false
	late := s.late
	s.dropLate()
	for _, keys := range late {
		t.deliver(s, keys)
	}
}

// Applied implements store.KeySink.
func (h *Hub) Applied(writes []byte) {
	t := h.tracker
	if t.clients.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.emptied = false
	store.EachTouched(writes, t)
	t.broadcast()
}

// touchAll is TouchAll for callers outside a write set.
func (t *tracker) touchAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.emptied = false
	t.TouchAll()
}

// Touch implements store.Toucher. The caller holds mu.
func (t *tracker) Touch(key string, origin uint64) {
	t.emptied = false
	if ids := t.keys[key]; ids != nil {
		t.invalidate(strings.Clone(key), ids, origin)
	}
	for n := range t.lengths {
		if n > len(key) {
			continue
		}
		prefix := key[:n]
		if t.prefixes[prefix] == nil {
			continue
		}
		prefix = strings.Clone(prefix)
		keys := t.changed[prefix]
		if keys == nil {
			keys = map[string]uint64{}
			t.changed[prefix] = keys
		}
		if by, again := keys[key]; again && by != origin {
			keys[key] = someone
		} else if !again {
			keys[strings.Clone(key)] = origin
		}
	}
}

// TouchAll implements store.Toucher. The caller holds mu. FLUSHALL empties many databases, but clients
// get one message.
func (t *tracker) TouchAll() {
	if t.emptied {
		return
	}
	t.emptied = true
	clear(t.keys)
	t.items, t.size = 0, 0
	for _, s := range t.sessions {
		t.send(s, nil, false)
	}
}

// invalidate tells the sessions that have read a key about its change, and forgets them.
func (t *tracker) invalidate(key string, ids map[int64]struct{}, origin uint64) {
	for id := range ids {
		s := t.sessions[id]
		if s != nil {
			how := s.tracking.Load()
			if how.noloop && origin == t.origin(s) {
				continue
			}
			if !how.bcast {
				t.send(s, []string{key}, origin == t.origin(s))
			}
		}
		delete(ids, id)
		t.items--
		t.size -= readerCost
	}
	if len(ids) == 0 {
		t.size -= trackedCost + int64(len(key))
		delete(t.keys, key)
	}
}

// broadcast tells the listeners of prefixes which keys a write set has changed.
func (t *tracker) broadcast() {
	for _, prefix := range slices.Sorted(maps.Keys(t.changed)) { // in Redis's order
		changed := t.changed[prefix]
		keys := slices.Sorted(maps.Keys(changed))
		for s := range t.prefixes[prefix] {
			mine, me := keys, t.origin(s)
			if s.tracking.Load().noloop {
				mine = slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return changed[key] == me })
			}
			if len(mine) > 0 {
				t.send(s, mine, changed[mine[0]] == me)
			}
		}
	}
	clear(t.changed)
}

// maxHeld and maxLateSize bound the messages that are held back for a session that waits for replies.
// Beyond these limits the session gets one message that all keys may have changed.
const (
	maxHeld     = 4096
	maxLateSize = 1 << 20 // bytes of held messages
	lateCost    = 24      // a list of keys, or a key without its bytes
)

// dropLate forgets the messages that were held back. The caller holds mu.
func (s *session) dropLate() {
	s.holds(-int64(s.lateSize))
	s.late, s.lateSize = nil, 0
}

// send delivers a message, or holds it back; keys is nil for all keys. own means that the session's
// blocking command may have made the change.
func (t *tracker) send(s *session, keys []string, own bool) {
	if s.waiting || own && s.blocked.Load() != nil {
		s.late = append(s.late, keys)
		size := s.lateSize + lateCost
		for _, key := range keys {
			size += lateCost + len(key)
		}
		if len(s.late) > maxHeld || size > maxLateSize {
			s.late, size = [][]string{nil}, lateCost // one message for all keys
		}
		s.holds(int64(size - s.lateSize))
		s.lateSize = size
		return
	}
	t.deliver(s, keys)
}

// invalidateChannel is the channel on which RESP2 clients get their messages.
const invalidateChannel = "__redis__:invalidate"

// deliver sends a message to the session or to its redirection. A RESP2 target gets it only if it has a
// subscription; there is no other way to send it.
func (t *tracker) deliver(s *session, keys []string) {
	how := s.tracking.Load()
	if how == nil {
		return
	}
	target := s
	if how.redirect != 0 {
		if target = s.srv.session(how.redirect); target == nil || target.out.isOver() {
			how.broken.Store(true)
			if s.protocol() > 2 {
				s.push(store.Str("tracking-redir-broken"), store.Int(how.redirect))
			}
			return
		}
	}
	list := store.Nil
	if keys != nil {
		list = store.Strs(keys...)
	}
	switch {
	case target.protocol() > 2:
		target.push(store.Str("invalidate"), list)
	case target != s && target.subscriber():
		target.push(store.Str("message"), store.Str(invalidateChannel), list)
	}
}

// push sends a message that is not a reply.
func (s *session) push(elems ...store.Reply) {
	r := store.Reply{Kind: store.Push, Elems: elems}
	s.out.push(appendReply(nil, &r, s.protocol()), s.srv.params.limitOf(s.class()), s.srv.cfg.Clock())
}

// sizes returns the numbers for INFO.
func (t *tracker) sizes() (keys, items, prefixes int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.keys), t.items, len(t.prefixes)
}
