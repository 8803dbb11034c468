package load

import "time"

// Session is one client of a peer. One goroutine uses it. Several keys in one
// call are one pipeline, where the peer has that.
type Session interface {
	// Lock takes each lock, if it is free, with a lease, and returns how many it
	// got.
	Lock(keys []string) (int, error)
	// Unlock releases those of the locks that the owner holds.
	Unlock(keys []string) (int, error)
	// Hold is Lock where each lock has a lease of its own. Renew lengthens that
	// lease, and Drop ends it together with the lock.
	Hold(keys []string) (int, error)
	Drop(keys []string) (int, error)
	// Renew lengthens the lease of each lock that the owner holds.
	Renew(keys []string) (int, error)
	// Held returns how many of the locks are held now, by whichever owner.
	Held(keys []string) (int, error)
	Close() error
}

// Reentrant is a session that can speak as Redisson's RLock does.
type Reentrant interface {
	LockReentrant(keys []string) (int, error)
	UnlockReentrant(keys []string) (int, error)
}

// Queued is a session that can wait for its turn, by the lock recipe of its
// peer. The sessions act as clients in one process, and share what such clients
// share.
type Queued interface {
	Enter(key string) error
	Leave(key string) error
}

// Herded is a session that can also wait as if it were a process by itself,
// where that makes a difference: every release is then sent to each session.
type Herded interface {
	EnterAlone(key string) error
	Leave(key string) error
}

// Expiring is a session of a peer that deletes locks whose leases have ended,
// and counts them.
type Expiring interface {
	HoldFor(keys []string, lease time.Duration) (int, error)
	// Expired is how many the peer has deleted so far.
	Expired() (int, error)
}

// Target opens sessions of a peer. The sessions of one owner may release and
// renew each other's locks.
type Target interface {
	Open(owner string) (Session, error)
}
