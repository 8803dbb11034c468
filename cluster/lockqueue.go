package cluster

import (
	"slices"

	"github.com/lockstep-io/lockstep/store"
)

// The queues of clients that wait for locks, on the leader. Each client waits until its key is free.

// serveLock gives a lock to the clients that wait for it, in the order in which they came, until one does not get it.
func (s *sequencer) serveLock(txn *store.Txn, k waitKey, room *serving) {
	q, key := s.blockedClients.queues[k], []byte(k.key)
	if q == nil {
		return
	}
	if e := txn.LookupWrite(k.db, key); e != nil && e.Type() == store.TypeString {
		return // somebody holds the lock
	}
	q.sort()
	p := q.head
	for looked := 0; p != nil && looked < mostPassed; looked++ {
		if room.over {
			s.blockedClients.ready.putBack(k)
			return
		}
		next := p.next
		if s.serveFirst(txn, p, key, room) && !txn.HoldsLock(k.db, key, p.w.wait.Owner) {
			break
		}
		p = next // an owner that holds the lock already, by another command, keeps its place, and nobody out
	}
	for _, owner := range txn.LapsedOwners(k.db, key) {
		for w := range s.blockedClients.owners[owner] {
			if len(w.places) > 0 && w.places[0].listed && w.places[0].queue.key == k && !room.over {
				s.serveFirst(txn, &w.places[0], key, room)
				break
			}
		}
	}
}

const (
	// mostWaits is by how many commands one owner may wait for locks.
	mostWaits = 1000
	// mostPassed is how many clients of a queue serveLock and queued look at.
	mostPassed = 2 * mostWaits
)

// giveUpTickets ends the tickets that an owner has for a lock. Their nodes hear that the lock was not granted.
func (s *sequencer) giveUpTickets(db int, key, owner string) {
	ws, k := s.blockedClients, waitKey{db, key, true}
	for w := range ws.owners[owner] {
		if w.wait.Ticket && len(w.places) > 0 && w.places[0].queue.key == k && ws.take(w) {
			w.req.spans = nil // of an earlier evaluation
			ws.answer(w, store.WaitTimedOut)
			ws.ready.put(ws, k)
		}
	}
}

// queued reports whether clients wait for the lock at a key, other than those that have left.
func (s *sequencer) queued(db int, key []byte) bool {
	q := s.blockedClients.queues[waitKey{db, string(key), true}]
	if q == nil {
		return false
	}
	p := q.head
	for looked := 0; p != nil && looked < mostPassed; p = p.next {
		looked++
		state := p.w.state.Load()
		if (state == blockedWaiting || state == blockedJoining) && !s.txn.HoldsLock(db, key, p.w.wait.Owner) {
			return true
		}
	}
	return p != nil
}

// waiting returns how many clients wait for the lock at a key. Some that have left may still be among them.
func (s *sequencer) waiting(db int, key string) int {
	if q := s.blockedClients.queues[waitKey{db, key, true}]; q != nil {
		return q.n
	}
	return 0
}

// blocked returns how many clients are blocked on a list or sorted set.
func (s *sequencer) blocked(db int, key string) int {
	if q := s.blockedClients.queues[waitKey{db, key, false}]; q != nil {
		return q.n
	}
	return 0
}

// eachWaiter calls fn for the clients that wait for the lock at a key, or are blocked on a list or sorted set, in order, until fn returns false.
func (s *sequencer) eachWaiter(db int, key string, lock bool, fn func(store.Waiter) bool) {
	q := s.blockedClients.queues[waitKey{db, key, lock}]
	if q == nil {
		return
	}
	q.sort()
	now := s.node.cfg.Time.Monotonic()
	for p := q.head; p != nil; p = p.next {
		w := p.w
		if state := w.state.Load(); state != blockedWaiting && state != blockedJoining {
			continue
		}
		if !fn(store.Waiter{Owner: w.wait.Owner, User: store.UserOf(w.req.calls[0].User), Age: (now - w.since).Milliseconds(), Shared: w.wait.Shared}) {
			return
		}
	}
}

// takeLeft puts keys that have become ready since the last command into the list of those that are to be served: keys that have expired.
func (s *sequencer) takeLeft(txn *store.Txn) {
	if !s.blockedClients.any() {
		return
	}
	if keys, all := txn.TakeReady(); len(keys) > 0 || all {
		s.blockedClients.ready.add(s.blockedClients, keys, all)
		s.serveTurns.pend(s.blockedClients.pending(), s.node.cfg.Time.Monotonic())
	}
}

// handOn notes that the present batch has handed on a lock.
func (ws *blockedClients) handOn(k waitKey) {
	if ws.handed == nil {
		ws.handed = map[waitKey]struct{}{}
	}
	ws.handed[k] = struct{}{}
}

// namesHanded reports whether a request may touch a lock that this batch has handed on. It has to wait for the next batch: the node of a
// client that left meanwhile tells by the number of the write set whether somebody has touched the lock since (blockRegistry.release).
func (s *sequencer) namesHanded(r *request) bool {
	handed := s.blockedClients.handed
	if len(handed) == 0 {
		return false
	}
	names := func(c *Call) bool {
		if c.Cmd == nil {
			return false
		}
		if c.Cmd.RunsLua() {
			return true // it may touch keys that it does not name
		}
		keys, ok := c.Cmd.KeysOf(c.Args)
		return !ok || slices.ContainsFunc(keys, func(key []byte) bool {
			_, yes := handed[waitKey{c.DB, string(key), true}]
			return yes
		})
	}
	return slices.ContainsFunc(r.calls, func(c Call) bool {
		if c.Txn == nil {
			return names(&c)
		}
		return slices.ContainsFunc(c.Txn.Calls, func(c Call) bool { return names(&c) })
	})
}

// lookAtLocks is how many keys of a request freeExpired looks at.
const lookAtLocks = 64

// freeExpired deletes those keys of a request that have expired, if clients wait for them as locks, and serves these clients. Otherwise the
// request could take such a lock before them. A blocking command must have been taken before, because its arguments may not be touched
// after it has been cancelled.
func (s *sequencer) freeExpired(txn *store.Txn, r *request) {
	ws := s.blockedClients
	if !ws.forLocks() {
		return
	}
	looked := 0
	look := func(c *Call) {
		if c.Cmd == nil || looked >= lookAtLocks {
			return
		}
		keys, _ := c.Cmd.KeysOf(c.Args)
		for _, key := range keys[:min(len(keys), lookAtLocks)] {
			looked++
			if ws.queues[waitKey{c.DB, string(key), true}] != nil {
				txn.LookupWrite(c.DB, key)
			}
		}
	}
	for i := range r.calls {
		if c := &r.calls[i]; c.Txn == nil {
			look(c)
		} else {
			for j := range c.Txn.Calls {
				look(&c.Txn.Calls[j])
			}
		}
	}
	s.serveReady(txn)
}
