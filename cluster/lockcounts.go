package cluster

import (
	"time"

	"github.com/lockstep-io/lockstep/cluster/tally"
	"github.com/lockstep-io/lockstep/store"
)

// lockCounter counts the events of locks, and passes them on. Every node notes since when locks are held, because it may lead when they end;
// only the leader counts.
type lockCounter struct {
	to    store.LockSink
	locks *tally.Locks
	held  *tally.Held
	leads func() bool
}

func newLockCounter(n *Node, to store.LockSink) *lockCounter {
	return &lockCounter{to, n.measures.Locks, n.held, func() bool { return n.routes.get().seq != nil }}
}

// Wanted, Locked, Retold and Lost implement store.LockSink.
func (c *lockCounter) Wanted() bool { return c.to.Wanted() }

func (c *lockCounter) Locked(seq uint64, at store.Time, events []store.LockEvent) {
	if len(events) > 0 {
		c.count(at, events, c.leads())
	}
	c.to.Locked(seq, at, events)
}

func (c *lockCounter) Retold(seq uint64, at store.Time, events []store.LockEvent) {
	if len(events) > 0 {
		c.count(at, events, false)
	}
	c.to.Retold(seq, at, events)
}

func (c *lockCounter) Lost(seq uint64, at store.Time) {
	c.held.ForgetAll()
	c.to.Lost(seq, at)
}

// lockEnds are how the events of locks end them.
var lockEnds = map[store.LockHow]tally.End{store.LockReleased: tally.Released, store.LockExpired: tally.Expired, store.LockForced: tally.Forced,
	store.LockReplaced: tally.Replaced, store.LockMoved: tally.Moved}

func (c *lockCounter) count(at store.Time, events []store.LockEvent, leads bool) {
	for i := range events {
		switch e := &events[i]; e.How {
		case store.LockGranted:
			if e.Holds > 1 {
				continue // the owner has held it before
			}
			c.held.Begin(e.DB, e.Token, e.Owner, at.Lease, e.Client)
			if leads {
				c.locks.Granted(e.Kind)
			}
		case store.LockRenewed:
			if leads {
				c.locks.Renewed(e.Kind)
			}
		case store.LockReleased, store.LockExpired, store.LockForced, store.LockReplaced, store.LockMoved:
			if e.Holds > 0 && e.Owner != "" {
				continue // the owner still holds it
			}
			held := c.held.End(e.DB, e.Token, e.Owner, at.Lease)
			if leads {
				c.ended(e, held)
			}
		case store.LockFlushed:
			c.held.Forget(e.DB)
		case store.LockSwapped:
			c.held.Forget(e.DB)
			c.held.Forget(int(e.Holds))
		case store.LockGap:
			c.held.ForgetAll()
		}
	}
}

// ended counts a lock that ends after that many ms; -1: nobody knows.
func (c *lockCounter) ended(e *store.LockEvent, ms int64) {
	held := time.Duration(-1)
	if ms >= 0 {
		held = time.Duration(ms) * time.Millisecond
	}
	c.locks.Ended(e.Kind, lockEnds[e.How], held)
}
