package store

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// What happens to locks, told from the applied writes: each node finds the same events in the same order, and the log holds nothing more
// for them.

// LockHow says what has happened to a lock.
type LockHow uint8

const (
	// LockGranted: an owner has got the lock, or holds it once more.
	LockGranted LockHow = iota + 1
	// LockRenewed: the lease of an owner ends later.
	LockRenewed
	// LockReleased: an owner holds the lock less often, or no longer.
	LockReleased
	// LockExpired: the lease of an owner is over.
	LockExpired
	// LockForced: LOCK.FORCE has ended the lock for an owner.
	LockForced
	// LockRevoked: LOCK.REVOKE has asked the owners for the lock.
	LockRevoked
	// LockReplaced: another command than one for locks has overwritten the key.
	LockReplaced
	// LockMoved: the key has got another name.
	LockMoved
	// LockFlushed: all keys of a database were deleted.
	LockFlushed
	// LockSwapped: two databases have exchanged their keys. LockEvent.Holds is the number of the other one.
	LockSwapped
	// LockGap: events are missing.
	LockGap
)

var lockHows = [...]string{LockGranted: "granted", LockRenewed: "renewed", LockReleased: "released", LockExpired: "expired", LockForced: "forced",
	LockRevoked: "revoked", LockReplaced: "replaced", LockMoved: "moved", LockFlushed: "flushed", LockSwapped: "swapped", LockGap: "gap"}

func (h LockHow) String() string { return lockHows[h] }

// LockHowOf returns what a word says; ok is false for an unknown word.
func LockHowOf(word string) (h LockHow, ok bool) {
	i := slices.Index(lockHows[:], strings.ToLower(word))
	return LockHow(max(i, 0)), i > 0
}

// Ends reports whether an owner may no longer hold the lock.
func (h LockHow) Ends() bool {
	return h == LockReleased || h == LockExpired || h == LockForced || h == LockReplaced || h == LockMoved
}

// LockEvent is an event of a lock. Names are valid only until the next write set is applied.
type LockEvent struct {
	How          LockHow
	DB           int
	Key          string
	Kind         string
	Owner        string
	Token        uint64
	Holds        int64 // how often the owner holds the lock now
	Permits      int64
	Limit        int64  // of a lock with permits: how many there are
	Deadline     int64  // ms on the lease clock; 0: none
	Client       uint64 // who has got the lock (see SetClient); 0: nobody knows
	User, Reason string // who has forced or revoked the lock, and why
}

// LockSink receives the events of locks.
type LockSink interface {
	// Wanted reports whether the events of the next write set are wanted.
	Wanted() bool
	// Locked receives the events of the write set seq, perhaps none. The write set was evaluated at the time at. Locked must not block, and
	// must copy what it keeps.
	Locked(seq uint64, at Time, events []LockEvent)
	// Retold is Locked for a write set that is older than this process: who listens to events has not asked for these.
	Retold(seq uint64, at Time, events []LockEvent)
	// Lost reports that a snapshot with the state after the write set seq has replaced the state: the events until then are unknown.
	Lost(seq uint64, at Time)
}

// Audit is the kind of a message that says who ends a lock, and why. It is for the history of locks, and not for clients.
const Audit PublishKind = 17

// verdict is the text of such a message.
type verdict struct {
	DB     int    `json:"db"`
	Key    []byte `json:"key"` // shortened
	Kind   string `json:"kind"`
	How    string `json:"how"`
	User   string `json:"user"`
	Reason string `json:"reason"`
	Owners int    `json:"owners"`
}

// judged writes into the log who ends the lock, and why, before the lock is ended.
func (c *Ctx) judged(how LockHow, kind string, reason []byte, owners int) {
	c.message(Audit, "", message(verdict{c.DB, []byte(ShortName(string(c.Args[1]))), kind, how.String(), ShortName(valid([]byte(c.Caller))), ShortName(valid(reason)), owners}))
}

// ShortName replaces the end of a long name by a part of its SHA-256, as events do, so that they take little memory.
func ShortName(name string) string {
	if len(name) <= MaxLockName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return strings.ToValidUTF8(name[:MaxLockName-40], "") + "…" + hex.EncodeToString(sum[:16])
}
