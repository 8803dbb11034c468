package server

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/store"
)

// This file implements client side caching (CLIENT TRACKING): a client keeps the values that it has read and gets a message when they
// change. Each node serves its own clients. It sees every write set that it applies, so it knows the changes by the clients of all nodes.
//
// A value that a client may have kept never changes without a message to the client:
//
//   - The node remembers a key before it sends the read to the leader, so before it applies a write that follows the read.
//   - A change that this node applies while the reply is on its way may come before or after the leader's read. A client that
//     got the message before the reply could keep an old value. So the node holds back all messages for a tracking client
//     that waits for replies.
//   - A message is sent after the change is committed, and the leader evaluates nothing on a state that lacks a committed
//     change. So a client that reads again gets the new value, through any node.
//
// A node that is cut off from the leader sends no messages, so a client has to let its cache age.
//
// NOLOOP suppresses a client's messages about its own changes. The calls of such a session carry a number that is unique in the cluster to
// the leader, which puts it in front of their writes (write op 32). A reply could not tell which changes are the client's own, because one
// write set holds the writes of many clients.
//
// Unlike Redis, the node remembers a key after the client's own change, because the client's pipeline may have read the key again.
//
// As in Redis, keys of the same name in different databases count as one key.

// tracker records what the clients of this node have read.
type tracker struct {
	clients atomic.Int32 // how many clients track; if it is 0, a write set costs only this load
	maxKeys atomic.Int64 // tracking-table-max-keys; 0: no limit
	maxSize func() int64 // returns the limit of size, and of the bytes of messages about one write set; 0: no limit
	base    uint64       // the origin of a session is base plus its id

	// Lock order: the FSM's lock, then mu, Server.mu, Hub.mu, and the mu of an outbox.
	mu       sync.Mutex
	sessions roomy[int64, *session]    // sessions that track
	keys     table[map[int64]struct{}] // for each remembered key, the ids of the sessions that have read it
	items    int                       // how many ids the sets in keys have together
	size     int64                     // the memory of keys (see trackedCost)
	prefixes prefix                    // the root of the tree of prefixes that sessions listen to
	listed   int                       // how many different prefixes the tree has

	changes changes // what sessions are told about the write set that is being applied, or about the keys that evict forgets
}

const (
	trackedCost = 192 // the memory of a remembered key, without the bytes of its name
	readerCost  = 24  // the memory of each session that has read the key
)

const (
	// maxRead bounds the keys that the tracker remembers for one submission or transaction, maxReadBytes the bytes of one command's keys.
	// Beyond them, the client must forget all keys.
	maxRead      = 4096
	maxReadBytes = 1 << 20
	// fewRead is how many keys an event loop remembers for one submission. A single command with more keys runs on another goroutine.
	fewRead = maxCalls
	// atOnce is how many keys or prefixes inSteps handles at most before it releases mu.
	atOnce = 64
	// evictAtOnce is how many keys evict forgets one by one to make room. If it would have to forget more, it forgets all.
	evictAtOnce = 1024
)

// someone is the origin of a change that belongs to no single known session, such as the expiry of a key.
const someone = 0

func newTracker() *tracker {
	return &tracker{
		maxSize: func() int64 { return 0 },
		base:    rand.Uint64() &^ (1<<32 - 1),
	}
}

// tracking is how a session tracks. A change replaces the whole value; within a value, only the field broken changes.
type tracking struct {
	redirect             int64 // id of the client that gets the messages; 0: the tracking client itself
	bcast, optin, optout bool
	noloop               bool
	prefixes             []string    // sorted
	broken               atomic.Bool // true if the client with the id redirect has left or has logged in as another user
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

// disable ends a session's tracking. As in Redis, the tracker does not forget at once which keys the session has read.
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

// restore makes a session track as it did before a transaction that did not take place.
func (t *tracker) restore(s *session, before *tracking) {
	switch now := s.tracking.Load(); {
	case now == before:
	case before == nil:
		t.disable(s)
	default:
		t.enable(s, before)
	}
}

// prefixesBeyond returns the prefixes that the first tracking has and the other one does not have. Both may be nil.
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

// listens returns the prefixes that a session with this tracking listens to. The receiver may be nil.
func (how *tracking) listens() []string {
	if how == nil {
		return nil
	}
	return how.prefixes
}

// list makes a session listen to prefixes, and adds the memory of the prefixes to the client's holdings.
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

// inSteps calls do with up to atOnce elements at a time, at least once. The state machine gets mu between the calls.
func inSteps[T any](mu sync.Locker, all []T, do func(some []T)) {
	for again := true; again; again = len(all) > 0 {
		some := all[:min(len(all), atOnce)]
		all = all[len(some):]
		mu.Lock()
		do(some)
		mu.Unlock()
	}
}

// sizeOf returns how much memory prefixes take, as the server estimates it.
func sizeOf(prefixes []string) int64 {
	size := int64(0)
	for _, prefix := range prefixes {
		size += prefixCost + int64(len(prefix))
	}
	return size
}

// track prepares a call that is about to be submitted: it sets the call's origin, and remembers the keys that the call reads.
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
	// A message about a change by the session's blocking command must follow the command's reply. tracker.send recognizes such a
	// change by its origin.
	if call.Cmd.Is(store.Blocking) {
		call.Origin = t.origin(s)
	}
	var keys [][]byte
	if !how.bcast && !(how.optin && !s.caching) && !(how.optout && s.caching) && mayRead(call.Cmd) {
		keys, _ = call.Cmd.KeysOf(call.Args)
	}
	// A blocking command is no reason to hold back messages: it returns nothing that a client may keep, and may wait forever.
	s.holding = s.holding || !call.Cmd.Is(store.Blocking)
	some, all := s.someOf(keys)
	t.remember(s, some, s.holding)
	if !all {
		t.forgets(s)
	}
}

// someOf returns the keys of a call that the tracker is to remember: all, or none beyond maxRead or maxReadBytes. all is false when the
// client must be told to forget all keys.
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

// readsMuch reports whether a command and the collected calls may read more than fewRead keys. It takes each argument for a key.
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

// mayRead reports whether a client may keep what it reads with a command. For every script it is true, because the keys that a script will
// read are unknown.
func mayRead(cmd *store.Command) bool {
	return cmd.Is(store.ReadOnly) && !cmd.Is(store.PubSub) || cmd.Is(store.Scripting)
}

// remember records the keys that a session is about to read. If hold is true, the tracker holds back the session's messages until
// tracker.release sends them.
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

// forgets tells a session that all keys may have changed, because the tracker does not remember all keys that the session reads.
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

// evict invalidates random keys, or all if evictAtOnce are not enough, until the tracker keeps to its limits. The caller holds mu.
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

// setMaxSize sets the function maxSize.
func (t *tracker) setMaxSize(fn func() int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.maxSize = fn
}

// release sends the messages that the tracker held back while a session waited for replies.
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

// sizes returns the numbers of keys, items and prefixes that INFO shows.
func (t *tracker) sizes() (keys, items, prefixes int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.keys.len(), t.items, t.listed
}
