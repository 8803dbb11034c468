package server

import (
	"math/rand/v2"
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
//     node sends the message and forgets the key. Therefore the node holds the messages of a tracking client
//     back while the client waits for replies, and sends them after the replies: at worst, the client
//     discards a value that is still right.
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
	base    uint64       // the origin of a session is base plus its id

	// Lock order: the FSM's lock, then mu, Server.mu, Hub.mu and an outbox's.
	mu       sync.Mutex
	sessions roomy[int64, *session]    // sessions that track
	keys     table[map[int64]struct{}] // the sessions that have read a key
	items    int                       // pairs in keys
	size     int64                     // bytes of keys
	prefixes prefix                    // the root of the tree of prefixes that sessions listen to
	listed   int                       // how many prefixes there are

	changes changes // of the present write set
}

// These are the costs of a remembered key, without its bytes, and of each reader.
const (
	trackedCost = 192
	readerCost  = 24
)

const (
	// maxRead is how many keys the tracker remembers for one command or transaction, and maxReadBytes how long the names of one
	// command may be together. If a client reads more, the tracker remembers none of these keys: it tells the client, behind the
	// reply, that all keys may have changed.
	maxRead      = 4096
	maxReadBytes = 1 << 20
	// fewRead is how many keys an event loop remembers for the commands of one submission. Before a command that would exceed
	// it, the loop submits the commands that it has collected.
	fewRead = maxCalls
	// atOnce is for how many keys or prefixes of a client mu is held without a break.
	atOnce = 64
	// evictAtOnce is how many keys the tracker forgets one by one to make room.
	evictAtOnce = 1024
)

// someone is the origin of a change that belongs to no one session: several sessions have changed the key, the key has
// expired, or the session that changed it has no number.
const someone = 0

func newTracker() *tracker {
	return &tracker{
		maxSize: func() int64 { return 0 },
		base:    rand.Uint64() &^ (1<<32 - 1),
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
	old := s.tracking.Load()
	ended, added := old.prefixesBeyond(how), how.prefixesBeyond(old)
	t.join(s, how)
	t.unlist(s, ended)
	t.list(s, added)
}

func (t *tracker) join(s *session, how *tracking) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, again := t.sessions.m[s.id]; !again {
		t.sessions.put(s.id, s)
		t.clients.Add(1)
	}
	s.tracking.Store(how)
}

// disable ends tracking. The keys that the session has read stay until they change, as in Redis, unless
// no session tracks any more.
func (t *tracker) disable(s *session) {
	how := s.tracking.Load()
	if how == nil {
		return
	}
	t.leave(s)
	t.unlist(s, how.prefixes)
}

func (t *tracker) leave(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.tracking.Store(nil)
	s.dropLate()
	if _, is := t.sessions.m[s.id]; !is {
		return
	}
	t.sessions.drop(s.id)
	t.clients.Add(-1)
	if len(t.sessions.m) == 0 {
		t.forgetKeys()
	}
}

// restore makes a session track as before a transaction that did not take place.
func (t *tracker) restore(s *session, before *tracking) {
	switch now := s.tracking.Load(); {
	case now == before:
	case before == nil:
		t.disable(s)
	default:
		t.enable(s, before)
	}
}

// prefixesBeyond returns the prefixes that other does not have; both may be nil.
func (how *tracking) prefixesBeyond(other *tracking) []string {
	if how == nil || other == nil || len(other.prefixes) == 0 {
		return how.listens()
	}
	var beyond []string
	left := other.prefixes
	for _, prefix := range how.prefixes {
		for len(left) > 0 && left[0] < prefix {
			left = left[1:]
		}
		if len(left) == 0 || left[0] != prefix {
			beyond = append(beyond, prefix)
		}
	}
	return beyond
}

// listens returns the prefixes that a session with this tracking listens to; how may be nil.
func (how *tracking) listens() []string {
	if how == nil {
		return nil
	}
	return how.prefixes
}

// list makes a session listen to prefixes, and counts their memory.
func (t *tracker) list(s *session, prefixes []string) {
	inSteps(&t.mu, prefixes, func(some []string) {
		for _, prefix := range some {
			if t.prefixes.add(prefix, s) {
				t.listed++
			}
		}
	})
	s.holds(sizeOf(prefixes))
}

// unlist reverses list.
func (t *tracker) unlist(s *session, prefixes []string) {
	inSteps(&t.mu, prefixes, func(some []string) {
		for _, prefix := range some {
			if t.prefixes.remove(prefix, s) {
				t.listed--
			}
		}
	})
	s.holds(-sizeOf(prefixes))
}

// inSteps calls do for the elements of a slice, up to atOnce at a time, and holds mu only during each call: the state machine
// needs mu for each log entry. It calls do at least once.
func inSteps[T any](mu sync.Locker, all []T, do func(some []T)) {
	for again := true; again; again = len(all) > 0 {
		some := all[:min(len(all), atOnce)]
		all = all[len(some):]
		mu.Lock()
		do(some)
		mu.Unlock()
	}
}

// sizeOf returns the memory that prefixes count as.
func sizeOf(prefixes []string) int64 {
	size := int64(0)
	for _, prefix := range prefixes {
		size += prefixCost + int64(len(prefix))
	}
	return size
}

// track prepares a call of a tracking session before it is submitted.
func (s *session) track(call *cluster.Call) {
	how := s.tracking.Load()
	if how == nil {
		return
	}
	t := s.srv.hub.tracker
	// In BCAST mode, Redis tells a client about changes by its own scripts, even with NOLOOP.
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
	some, all := s.someOf(keys)
	t.remember(s, some, s.holding)
	if !all {
		t.forgets(s)
	}
}

// someOf returns the keys of a call that the tracker is to remember: all of them, or none if the client reads too much at once.
// all is false only for the first call with too much: its keys are too long, or too many together with those of the calls before.
func (s *session) someOf(keys [][]byte) (some [][]byte, all bool) {
	if s.multi == nil && len(s.calls) <= 1 {
		s.reading = 0
	}
	before := s.reading
	if s.reading += len(keys); s.reading <= maxRead && argumentBytes(keys) <= maxReadBytes {
		return keys, true
	}
	s.reading = maxRead + 1
	return nil, before > maxRead
}

// readsMuch reports whether it would take long to remember the keys of a command together with those of the collected calls.
func (s *session) readsMuch(cmd *store.Command, args [][]byte) bool {
	how := s.tracking.Load()
	if how == nil || how.bcast || !mayRead(cmd) {
		return false
	}
	n := len(args) - 1
	if len(s.calls) > 0 {
		n += s.reading
	}
	return n > fewRead
}

// mayRead reports whether clients may keep the result of a command. All keys of a script count, because
// what it reads is not known before it runs.
func mayRead(cmd *store.Command) bool {
	return cmd.Is(store.ReadOnly) && !cmd.Is(store.PubSub) || cmd.Is(store.Scripting)
}

// remember records the keys that a session is about to read, and whether its messages are held back.
func (t *tracker) remember(s *session, keys [][]byte, hold bool) {
	inSteps(&t.mu, keys, func(some [][]byte) {
		s.waiting = hold
		for _, key := range some {
			t.rememberOne(s, key)
			t.evict()
		}
	})
}

// rememberOne records a key that a session reads. The caller holds mu.
func (t *tracker) rememberOne(s *session, key []byte) {
	ids, is := t.keys.getBytes(key)
	if !is {
		ids = map[int64]struct{}{}
		t.keys.put(string(key), ids)
		t.size += trackedCost + int64(len(key))
	}
	if _, known := ids[s.id]; !known {
		ids[s.id] = struct{}{}
		t.items++
		t.size += readerCost
	}
}

// forgets tells a session, behind the replies that it waits for, that all keys may have changed: it is about to read more
// than the tracker remembers at once.
func (t *tracker) forgets(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changes = changes{}
	t.tellAll(s)
}

// full reports whether the tracker remembers more than its limits allow. The caller holds mu.
func (t *tracker) full() bool {
	limit, bytes := t.maxKeys.Load(), t.maxSize()
	return limit > 0 && int64(t.keys.len()) > limit || bytes > 0 && t.size > bytes
}

// evict invalidates keys until the tracker remembers no more than its limits allow. If evictAtOnce keys are not enough, because a
// limit is lower than before or a name is very long, it forgets all. The caller holds mu.
func (t *tracker) evict() {
	if !t.full() {
		return
	}
	t.changes = changes{}
	n := 0
	for key, ids := range t.keys.all() {
		if n++; n > evictAtOnce {
			t.invalidateAll()
			return
		}
		if t.invalidate(key, ids, someone); !t.full() {
			return
		}
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
	for _, m := range late {
		t.deliver(s, m)
	}
}

// sizes returns the numbers for INFO.
func (t *tracker) sizes() (keys, items, prefixes int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.keys.len(), t.items, t.listed
}
