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

// Client side caching (CLIENT TRACKING): a client keeps what it has read and is
// told when that changes. Each node looks after its own clients. It sees every
// write set that it applies, so it knows of the changes that any client of any
// node makes.
//
// Nothing that a client may have kept must change without its being told:
//
//   - A key is remembered before the read goes to the leader. What was written
//     after the leader read is applied here later than that.
//   - This node may lag behind the leader, so a change that the leader had seen
//     when it read may be applied here while the reply is on its way; and a
//     change that it had not seen may, too. Either ends the remembering. So
//     while a tracking client waits for replies its messages are held back, and
//     follow the replies: what it has just learned is then void at worst.
//   - A message comes after the change is committed, and the leader evaluates
//     nothing on a state that lacks a committed change. So a client that asks
//     again reads the new value, through whatever node.
//
// A node that is cut off from the leader tells nothing, as a Redis replica would
// not. A client that must know has to let its cache age.
//
// NOLOOP spares a client the messages about its own changes. The write set says
// who made them: a session with NOLOOP has a number that is unlike any other's
// in the cluster, its calls carry it to the leader, and the leader puts it in
// front of their writes (write op 32). The node cannot tell it from the reply: a
// write set holds the writes of many clients, and another client's write of the
// same key may stand before or behind the own one. Redis forgets a key after such a
// change; here it stays remembered, because a pipeline may have read the key again
// behind its change.
//
// As in Redis the databases are not told apart.

// tracker holds what the clients of this node have read.
type tracker struct {
	clients atomic.Int32 // that track: all that a write costs while there is none
	maxKeys atomic.Int64 // tracking-table-max-keys; 0: no limit
	maxSize func() int64 // bytes of keys that may be remembered; 0: no limit
	base    uint64       // of the origins of this node's sessions

	// mu is taken after the FSM's lock and before a server's and an outbox's.
	mu       sync.Mutex
	sessions map[int64]*session               // those that track
	keys     map[string]map[int64]struct{}    // who has read a key
	items    int                              // pairs in keys
	size     int64                            // bytes of keys
	prefixes map[string]map[*session]struct{} // who listens to a prefix
	lengths  map[int]int                      // how many prefixes are so long

	changed map[string]map[string]uint64 // keys of the present write set, by prefix; who changed them
	emptied bool                         // the last change was of everything
}

// What a remembered key takes apart from its bytes, and each who has read it.
const (
	trackedCost = 192
	readerCost  = 24
)

// someone is an origin that no session has: several have changed a key.
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

// tracking is how a session tracks. It is replaced, never changed, except for
// broken.
type tracking struct {
	redirect             int64 // id of the client that the messages go to; 0: itself
	bcast, optin, optout bool
	noloop               bool
	prefixes             []string    // sorted
	broken               atomic.Bool // the redirection leads nowhere
}

// origin names the session to write sets.
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

// disable ends tracking. What the session has read stays until it changes, as
// in Redis, unless nobody is left.
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

// restore has a session track as it did before a transaction that did not take place.
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

// list has a session listen to the prefixes of its tracking; mu is held.
func (t *tracker) list(s *session, how *tracking) {
	for _, prefix := range how.prefixes {
		if t.prefixes[prefix] == nil {
			t.prefixes[prefix] = map[*session]struct{}{}
			t.lengths[len(prefix)]++
		}
		t.prefixes[prefix][s] = struct{}{}
	}
}

// countPrefixes counts the prefixes that a session listens to from now on; mu is held.
func (s *session) countPrefixes(how *tracking) {
	size := int64(0)
	if how != nil {
		size = sizeOf(how.prefixes)
	}
	s.holds(size - s.prefixSize)
	s.prefixSize = size
}

// sizeOf is what prefixes count as.
func sizeOf(prefixes []string) int64 {
	size := int64(0)
	for _, prefix := range prefixes {
		size += prefixCost + int64(len(prefix))
	}
	return size
}

// unlist is the contrary of list.
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

// track is told of every call of a tracking session before it is submitted.
func (s *session) track(call *cluster.Call) {
	how := s.tracking.Load()
	if how == nil {
		return
	}
	t := s.srv.hub.tracker
	// What its scripts change, Redis does tell a client in BCAST mode.
	if how.noloop && !(how.bcast && call.Cmd.Is(store.Scripting)) {
		call.Origin = t.origin(s)
	}
	// What a blocking command changes it is told of behind its reply: the origin says
	// that it was that command.
	if call.Cmd.Is(store.Blocking) {
		call.Origin = t.origin(s)
	}
	var keys [][]byte
	if !how.bcast && !(how.optin && !s.caching) && !(how.optout && s.caching) && mayRead(call.Cmd) {
		keys, _ = call.Cmd.KeysOf(call.Args)
	}
	// One that blocks returns nothing that may be kept, and may wait for ever.
	s.holding = s.holding || !call.Cmd.Is(store.Blocking)
	t.remember(s, keys, s.holding)
}

// mayRead reports whether clients may keep what a command returns. Of a script
// it is not known before it runs, so all its keys count.
func mayRead(cmd *store.Command) bool {
	return cmd.Is(store.ReadOnly) && !cmd.Is(store.PubSub) || cmd.Is(store.Scripting)
}

// remember notes what a session is about to read and whether its messages are
// held back.
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

// evict has clients forget keys until no more are remembered than there may be; mu is
// held.
func (t *tracker) evict() {
	limit, bytes := t.maxKeys.Load(), t.maxSize()
	for key := range t.keys {
		if (limit == 0 || int64(len(t.keys)) <= limit) && (bytes == 0 || t.size <= bytes) {
			break
		}
		t.invalidate(key, t.keys[key], someone)
	}
}

// setMaxKeys is tracking-table-max-keys.
func (t *tracker) setMaxKeys(limit int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.maxKeys.Store(limit)
	t.evict()
}

// setMaxSize has fn say how many bytes of keys may be remembered.
func (t *tracker) setMaxSize(fn func() int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.maxSize = fn
}

// release sends what was held back while a session waited for replies.
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

// touchAll is TouchAll from outside of a write set.
func (t *tracker) touchAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.emptied = false
	t.TouchAll()
}

// Touch implements store.Toucher; mu is held.
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

// TouchAll implements store.Toucher; mu is held. FLUSHALL empties many
// databases, of which clients hear once.
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

// invalidate tells those who have read a key that it has changed, and forgets
// them.
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

// broadcast tells the listeners of prefixes what a write set has changed.
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

// maxHeld is how many messages are held back for a session that waits for
// replies. Beyond it the session is told that anything may have changed.
const (
	maxHeld     = 4096
	maxLateSize = 1 << 20 // bytes of those
	lateCost    = 24      // a list of keys, and a key, apart from its bytes
)

// dropLate forgets what was held back; mu is held.
func (s *session) dropLate() {
	s.holds(-int64(s.lateSize))
	s.late, s.lateSize = nil, 0
}

// send delivers a message, or holds it back; no keys stands for all. own says that the
// session's blocking command is what it tells of.
func (t *tracker) send(s *session, keys []string, own bool) {
	if s.waiting || own && s.blocked.Load() != nil {
		s.late = append(s.late, keys)
		size := s.lateSize + lateCost
		for _, key := range keys {
			size += lateCost + len(key)
		}
		if len(s.late) > maxHeld || size > maxLateSize {
			s.late, size = [][]string{nil}, lateCost // all in one
		}
		s.holds(int64(size - s.lateSize))
		s.lateSize = size
		return
	}
	t.deliver(s, keys)
}

// invalidateChannel is where RESP2 clients get their messages.
const invalidateChannel = "__redis__:invalidate"

// deliver sends a message to the client that is to have it. In RESP2 that has
// to be a subscriber of anything; else there is no way to tell it.
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

// push sends a message that is no reply.
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
