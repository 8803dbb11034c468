package bridge

import (
	"sync"
	"time"
)

// A node compares at most so many locks with the old Redis, and keeps at most so many bytes of their names and owners.
const (
	maxHolds     = 1 << 20
	maxHoldBytes = 128 << 20
)

// forever is the deadline of a lock without one.
const forever = time.Duration(1<<63 - 1)

type dbKey struct {
	db  int
	key string
}

// A hold is a lock that a command by way of this node has taken or renewed on both sides.
type hold struct {
	until time.Duration // monotonic time before which the old Redis must not end the lock by itself
	last  state         // what the key held on the old Redis
	alone bool          // since then lockstep has decided about the lock alone, so the old Redis may not know of its end
	lost  bool          // the old Redis has lost it, somebody else has it there, and it is counted
}

type holds struct {
	mu    sync.Mutex
	m     map[dbKey]hold
	bytes int
}

func size(key string, one hold) int {
	n := len(key)
	for _, c := range one.last.content {
		n += len(c)
	}
	return n
}

func (h *holds) len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.m)
}

func (h *holds) get(db int, key string) (hold, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	one, ok := h.m[dbKey{db, key}]
	return one, ok
}

// put keeps a hold; it returns false if there are too many.
func (h *holds) put(db int, key string, one hold) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.m == nil {
		h.m = map[dbKey]hold{}
	}
	before, known := h.m[dbKey{db, key}]
	bytes := h.bytes + size(key, one)
	if known {
		bytes -= size(key, before)
	}
	if bytes > maxHoldBytes || !known && len(h.m) >= maxHolds {
		return false
	}
	h.m[dbKey{db, key}], h.bytes = one, bytes
	return true
}

func (h *holds) drop(db int, key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if one, known := h.m[dbKey{db, key}]; known {
		delete(h.m, dbKey{db, key})
		h.bytes -= size(key, one)
	}
}

func (h *holds) lost(db int, key string) bool {
	one, ok := h.get(db, key)
	return ok && one.lost
}

func (h *holds) any(db int, keys [][]byte) bool {
	for _, key := range keys {
		if _, ok := h.get(db, string(key)); ok {
			return true
		}
	}
	return false
}

// all returns the keys of all holds.
func (h *holds) all() []dbKey {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := make([]dbKey, 0, len(h.m))
	for k := range h.m {
		list = append(list, k)
	}
	return list
}
