package cluster

import (
	"slices"

	"github.com/lockstep-io/lockstep/store"
)

// Deadlocks. An owner that begins to wait for a lock may close a circle: each owner of the circle holds a lock and waits for that of the
// next. None of them would get its lock before a lease or a wait is over, so the leader refuses the command that closes the circle.
//
// Owners are texts that clients choose. So the search follows only clients of one user: otherwise a user could learn who waits for keys that
// it may not read, or have the commands of others refused.

// deadlockSteps is how many owners and waiting clients one search looks at; a long name of an owner counts as several. If a circle is
// larger, its clients wait until their waits or leases are over.
const deadlockSteps = 1000

// waitsFor is an owner in a search for a circle.
type waitsFor struct {
	owner string
	from  *waitsFor // the owner that waits for this one
}

// deadlock returns an error if the wait would close a circle, or "".
func (s *sequencer) deadlock(txn *store.Txn, user string, wait *store.Wait) store.Error {
	if wait.Type != store.TypeFree {
		return ""
	}
	x := search{s: s, txn: txn, user: user, wait: wait, seen: map[string]bool{}, list: []*waitsFor{{owner: wait.Owner}}}
	k := waitKey{db: wait.DB, key: string(wait.Keys[0]), free: true}
	if !x.lock(x.list[0], k, wait, s.blockedClients.queues[k], nil) {
		return x.circle.refusal()
	}
	for i := 1; i < len(x.list); i++ {
		for w := range s.blockedClients.owners[x.list[i].owner] {
			if x.steps++; x.steps >= deadlockSteps {
				return ""
			}
			if w.waitsFor(user) && !x.lock(x.list[i], w.places[0].queue.key, w.wait, w.places[0].queue, &w.places[0]) {
				return x.circle.refusal()
			}
		}
	}
	return ""
}

// search is a search for a circle that a wait closes.
type search struct {
	s      *sequencer
	txn    *store.Txn
	user   string
	wait   *store.Wait
	seen   map[string]bool
	list   []*waitsFor // the owners that the search has found
	steps  int
	circle *waitsFor // the end of the circle, if the search has found one
}

// found notes that one owner waits for another. It returns false when the search is over.
func (x *search) found(by *waitsFor, owner string) bool {
	x.steps += 1 + len(owner)/64
	switch next := (&waitsFor{owner, by}); {
	case owner == x.wait.Owner:
		x.circle = next
	case !x.seen[owner]:
		x.seen[owner] = true
		x.list = append(x.list, next)
	}
	return x.circle == nil && x.steps < deadlockSteps
}

// lock notes for whom an owner waits that stands at the place p of a lock's queue, or behind all if p is nil: for the holders and, if the lock
// can be shared, for those before it in the queue. Of a lock with several permits one holder may be enough, so only an owner that waits for
// its own permits is sure to wait in vain. lock returns false when the search is over.
func (x *search) lock(by *waitsFor, k waitKey, wait *store.Wait, q *waitQueue, p *place) bool {
	shared, many := x.txn.LockShared(k.db, []byte(k.key))
	goOn := true
	if p == nil && x.txn.HoldsLock(k.db, []byte(k.key), x.wait.Owner) {
		return x.found(by, x.wait.Owner)
	}
	if many {
		return true
	}
	x.txn.LockOwners(k.db, []byte(k.key), func(owner string, holds bool) bool {
		if holds {
			goOn = x.found(by, owner)
			return goOn
		}
		x.steps++
		goOn = x.steps < deadlockSteps
		return goOn
	})
	if !goOn || !shared || q == nil {
		return goOn
	}
	for other := q.head; other != nil && goOn; other = other.next {
		if x.steps++; x.steps >= deadlockSteps {
			return false
		}
		before := p == nil || other.order.compare(p.order) < 0
		// That the owner of the search waits itself, by another command, closes no circle: it gets the lock in its turn.
		if owner := other.w.owner(); before && owner != x.wait.Owner && !(wait.Shared && other.w.wait.Shared) && other.w.waitsFor(x.user) {
			goOn = x.found(by, owner)
		}
	}
	return goOn
}

// waitsFor reports whether a client of the user waits for a lock. The arguments of a cancelled client must not be touched.
func (w *blockedClient) waitsFor(user string) bool {
	state := w.state.Load()
	return (state == blockedWaiting || state == blockedJoining) && w.req.calls[0].User == user && len(w.places) > 0
}

// refusal returns the error for the circle that ends at an owner, or "" if there is none.
func (x *waitsFor) refusal() store.Error {
	if x == nil {
		return ""
	}
	var names []string
	for ; x != nil; x = x.from {
		names = append(names, x.owner)
	}
	slices.Reverse(names)
	return errDeadlock(names)
}
