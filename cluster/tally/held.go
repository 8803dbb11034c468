package tally

import (
	"hash/maphash"
	"sync"
)

// mostHeld is how many locks Held remembers at most. Each takes 40 to 60 bytes.
const mostHeld = 1 << 20

// databases is the number of databases.
const databases = 16

// Held remembers since when locks are held, and by which clients. What a node has not seen itself, because a snapshot brought the lock, it
// does not know.
type Held struct {
	seed maphash.Seed

	mu    sync.Mutex
	locks [databases]map[uint64]held
	n     int
}

type held struct {
	at     int64  // ms on the lease clock
	client uint64 // number of a client (cluster.ClientNumber); 0: not known
}

// NewHeld returns a Held without locks.
func NewHeld() *Held { return &Held{seed: maphash.MakeSeed()} }

func (h *Held) name(token uint64, owner string) uint64 {
	return maphash.String(h.seed, owner) ^ token*0x9e3779b97f4a7c15
}

// Begin notes that an owner, the given client, holds the lock with a token since then.
func (h *Held) Begin(db int, token uint64, owner string, at int64, client uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.n >= mostHeld {
		return
	}
	if h.locks[db] == nil {
		h.locks[db] = map[uint64]held{}
	}
	h.locks[db][h.name(token, owner)] = held{at, client}
	h.count()
}

// count counts the locks anew; mu is held.
func (h *Held) count() {
	h.n = 0
	for _, m := range h.locks {
		h.n += len(m)
	}
}

// Of returns since when an owner holds the lock with a token, and the client; ok is false if that is not known.
func (h *Held) Of(db int, token uint64, owner string) (at int64, client uint64, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	one, ok := h.locks[db][h.name(token, owner)]
	return one.at, one.client, ok
}

// End returns for how long an owner has held a lock that ends, and forgets it; -1 if that is not known.
func (h *Held) End(db int, token uint64, owner string, at int64) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	name := h.name(token, owner)
	one, ok := h.locks[db][name]
	if !ok {
		return -1
	}
	delete(h.locks[db], name)
	h.n--
	return max(at-one.at, 0)
}

// Forget forgets the locks of a database, whose tokens have changed or whose keys are gone.
func (h *Held) Forget(db int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.locks[db] = nil
	h.count()
}

// ForgetAll forgets all locks: how some of them have ended is not known.
func (h *Held) ForgetAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.locks[:])
	h.n = 0
}
