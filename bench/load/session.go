package load

import "time"

// Session is one client of a peer. Only one goroutine uses it. If the peer has pipelines, a call with several keys is one pipeline.
type Session interface {
	// Lock takes each of the locks that is free, with a lease, and returns how many it got.
	Lock(keys []string) (int, error)
	// Unlock releases those of the locks that the session's owner holds.
	Unlock(keys []string) (int, error)
	// Hold does what Lock does, but gives each lock a lease of its own. Renew lengthens that lease. Drop ends the lease and so
	// releases the lock.
	Hold(keys []string) (int, error)
	Drop(keys []string) (int, error)
	// Renew lengthens the lease of each lock that the owner holds.
	Renew(keys []string) (int, error)
	// Held returns how many of the locks are held now, whoever holds them.
	Held(keys []string) (int, error)
	Close() error
}

// Reentrant is a session that can also take and release locks in the way of Redisson's RLock.
type Reentrant interface {
	LockReentrant(keys []string) (int, error)
	UnlockReentrant(keys []string) (int, error)
}

// Queued is a session that can wait for its turn, by the lock recipe of its peer. The sessions behave like clients in one process,
// and share what such clients share.
type Queued interface {
	Enter(key string) error
	Leave(key string) error
}

// Herded is a session that can also wait as if it were alone in its process. The peer then sends every release to every waiting
// session. Only sessions of peers for which that makes a difference are Herded.
type Herded interface {
	EnterAlone(key string) error
	Leave(key string) error
}

// Expiring is a session of a peer that deletes locks whose leases have ended, and counts these locks.
type Expiring interface {
	HoldFor(keys []string, lease time.Duration) (int, error)
	// Expired returns how many locks the peer has deleted so far because their leases had ended.
	Expired() (int, error)
}

// Target opens sessions of a peer. Sessions with the same owner may release and renew each other's locks.
type Target interface {
	Open(owner string) (Session, error)
}
