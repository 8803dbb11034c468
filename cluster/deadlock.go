package cluster

import (
	"strings"

	"lockstep/store"
)

// Deadlocks. An owner that begins to wait for a lock may close a circle: each owner of the circle holds a lock and waits for that of the
// next. None of them would get its lock before a lease or a wait is over, so the leader refuses the command that closes the circle.

// deadlockSteps is how many owners and waiting clients one search looks at. If a circle is larger, its clients wait until their waits or
// leases are over.
const deadlockSteps = 10_000

// waitsFor is an owner in a search for a circle.
type waitsFor struct {
	owner string
	from  *waitsFor // the owner that waits for this one
}

// deadlock returns an error if the wait would close a circle, or "".
func (s *sequencer) deadlock(txn *store.Txn, wait *store.Wait) store.Error {
	if wait.Type != store.TypeFree {
		return ""
	}
	var circle *waitsFor
	ws, steps := s.blockedClients, 0
	seen := map[string]bool{}
	list := []*waitsFor{{owner: wait.Owner}}
	holders := func(by *waitsFor, w *store.Wait) bool {
		txn.LockOwners(w.DB, w.Keys[0], func(owner string) bool {
			steps++
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
	if !holders(list[0], wait) {
		return circle.refusal()
	}
	for i := 1; i < len(list); i++ {
		for w := range ws.owners[list[i].owner] {
			if steps++; !holders(list[i], w.wait) {
				return circle.refusal()
			}
		}
	}
	return ""
}

// refusal returns the error for the circle that ends at an owner, or "" if there is none.
func (x *waitsFor) refusal() store.Error {
	if x == nil {
		return ""
	}
	var names []string
	for ; x != nil; x = x.from {
		names = append(names, shownOwner(x.owner))
	}
	var b strings.Builder
	b.WriteString("DEADLOCK owner " + names[len(names)-1])
	for i := len(names) - 2; i >= 0; i-- {
		if i < len(names)-2 {
			b.WriteString(", which")
		}
		if b.Len() > maxCircle {
			b.WriteString(" …")
			break
		}
		b.WriteString(" waits for " + names[i])
	}
	return store.Error(b.String())
}

const (
	maxCircle = 512 // length of an error, in bytes, beyond which refusal names no further owner
	maxOwner  = 64  // length of an owner, in bytes, beyond which refusal cuts it off
)

// shownOwner returns an owner for an error.
func shownOwner(owner string) string {
	if len(owner) > maxOwner {
		owner = owner[:maxOwner] + "…"
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, owner)
}

// expireForLocks deletes expired keys while clients wait for locks, and reports whether it has served such clients. Otherwise another
// command of the batch could take an expired lock before the first client in the queue.
func (s *sequencer) expireForLocks(txn *store.Txn) bool {
	now := txn.Now().Lease
	if !s.blockedClients.forLocks() || now <= s.lockExpiry {
		return false
	}
	s.lockExpiry = now
	bytes, longest := s.expiryRoom()
	if txn.ExpireDue(expireLimit, bytes, longest) == 0 {
		return false
	}
	s.serveReady(txn)
	return true
}
