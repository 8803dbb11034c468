package load

import "time"

// Session is one client of a peer. Only one goroutine uses it. If the peer has pipelines, a call with several keys is one pipeline.
type Session interface {
	// Lock takes each of the locks that is free, with a lease, and returns how many it got.
	Lock(keys []string) (int, error)
	// Unlock releases those of the locks that the session's owner holds.
	Unlock(keys []string) (int, error)
	// Hold is Lock with a lease for each lock. Drop ends those leases.
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

// Queued sessions wait for a lock by the recipe of their peer. They share what the clients of one process share.
type Queued interface {
	Enter(key string) error
	Leave(key string) error
}

// Herded sessions can also wait as if each were alone in its process: the peer then sends them every release.
type Herded interface {
	EnterAlone(key string) error
	Leave(key string) error
}

// Native sessions take locks by commands that their peer has for locks. Their peer keeps the queue of those that wait.
type Native interface {
	EnterNative(key string) error
	LeaveNative(key string) error
	// LockNative takes each of the locks that is free. It waits for none.
	LockNative(keys []string) (int, error)
	UnlockNative(keys []string) (int, error)
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
