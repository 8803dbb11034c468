package cluster

import (
	"slices"

	"lockstep/store"
)

// Deadlocks. An owner that begins to wait for a lock may close a circle: each owner of the circle holds a lock and waits for that of the
// next. None of them would get its lock before a lease or a wait is over, so the leader refuses the command that closes the circle.
//
// Owners are texts that clients choose. So the search follows only clients of one user: otherwise a user could learn who waits for keys that
// it may not read, or have the commands of others refused.

// deadlockSteps is how many owners and waiting clients one search looks at; a long name of an owner counts as several. If a circle is larger, its clients wait until their waits or
// leases are over.
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
	var circle *waitsFor
	ws, steps := s.blockedClients, 0
	seen := map[string]bool{}
	list := []*waitsFor{{owner: wait.Owner}}
	holders := func(by *waitsFor, k waitKey) bool {
		txn.LockOwners(k.db, []byte(k.key), func(owner string) bool {
			steps += 1 + len(owner)/64
			switch next := (&waitsFor{owner, by}); {
			case owner == wait.Owner:
				circle = next
			case !seen[owner]:
				seen[owner] = true
				list = append(list, next)
			}
			return circle == nil && steps < deadlockSteps
		})
		return circle == nil && steps < deadlockSteps
	}
	if !holders(list[0], waitKey{db: wait.DB, key: string(wait.Keys[0])}) {
		return circle.refusal()
	}
	for i := 1; i < len(list); i++ {
		for w := range ws.owners[list[i].owner] {
			if steps++; steps >= deadlockSteps {
				return ""
			}
			if w.waitsFor(user) && !holders(list[i], w.places[0].queue.key) {
				return circle.refusal()
			}
		}
	}
	return ""
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
