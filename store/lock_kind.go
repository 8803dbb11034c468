package store

import (
	"strconv"
	"strings"

	"github.com/lockstep-io/lockstep/store/redistext"
)

// Which keys are locks, and of which library, told by what that library stores.

// The kinds of locks, as LOCK.INFO and LOCK.LIST name them.
const (
	kindPlain     = "plain"     // a string that SET NX, SETNX or LOCK.ACQUIRE has made
	kindShedLock  = "shedlock"  // such a string with the text of ShedLock's Redis providers
	kindReentrant = "reentrant" // the hash of LOCK.ACQUIRE with REENTRANT

	// Locks of type lock.
	kindExclusive = "exclusive"
	kindShared    = "shared"
	kindLimit     = "limit"

	// Redisson's.
	kindRLock     = "redisson"
	kindFairLock  = "redisson-fair"
	kindFenced    = "redisson-fenced"
	kindReadWrite = "redisson-readwrite"
	kindGroup     = "redisson-group"     // the lock of several values: getMultiLock with a name and values
	kindSemaphore = "redisson-semaphore" // with or without leases of its permits
	kindLatch     = "redisson-latch"

	kindSymfony = "symfony" // the sorted set of Symfony's RedisStore
)

// lockKinds are all kinds, for LOCK.LIST … KIND.
var lockKinds = []string{kindPlain, kindShedLock, kindReentrant, kindExclusive, kindShared, kindLimit,
	kindRLock, kindFairLock, kindFenced, kindReadWrite, kindGroup, kindSemaphore, kindLatch, kindSymfony}

// lockKind returns the kind of a lock, or "" if the key is no lock.
func (t *Txn) lockKind(db int, e *Entry) string {
	switch e.typ {
	case TypeString:
		return t.stringKind(db, e)
	case TypeHash:
		return t.hashKind(db, e)
	case TypeSortedSet:
		if t.symfonyShape(e.Scores()) {
			return kindSymfony
		}
	case TypeLock:
		switch e.Lock().mode {
		case lockExclusive:
			return kindExclusive
		case lockShared:
			return kindShared
		}
		return kindLimit
	}
	return ""
}

// writeSuffix ends the name of the owner that holds Redisson's read-write lock as a writer.
const writeSuffix = ":write"

// lookAtFields is how many fields of a hash hashKind looks at.
const lookAtFields = 64

// hashKind returns the kind of a hash. The fields of Redisson's locks are owners, and their values say how often each holds the lock.
func (t *Txn) hashKind(db int, e *Entry) string {
	mode, readWrite := e.Fields().Get("mode")
	readWrite = readWrite && (mode == "read" || mode == "write")
	looked, owners := 0, true
	e.Fields().Each(func(f Field) bool {
		looked++
		owners = readWrite && f.Name == "mode" || redissonOwner(strings.TrimSuffix(f.Name, writeSuffix)) && isCount(f.Value)
		return owners && looked < lookAtFields
	})
	t.looked += looked
	switch {
	case owners && readWrite:
		return kindReadWrite
	case owners && (t.exists(db, queueKey(e.key)) || t.exists(db, timeoutsKey(e.key))):
		return kindFairLock
	case owners && t.exists(db, fenceKey(e.key)):
		return kindFenced
	case owners:
		return kindRLock
	case e.form&formLock != 0:
		return kindReentrant
	case t.groupShape(e.Fields()):
		return kindGroup
	}
	return ""
}

// uuidLength is the length of a UUID as text.
const uuidLength = 36

// redissonOwner reports whether a text is the name of an owner of Redisson: a UUID, a colon, and the number of a thread.
func redissonOwner(text string) bool {
	return len(text) >= uuidLength+2 && text[uuidLength] == ':' && isUUID(text[:uuidLength]) && isDigits(text[uuidLength+1:])
}

// ofRedisson reports whether a text begins as an owner of Redisson does.
func ofRedisson(text string) bool {
	return len(text) > uuidLength+1 && text[uuidLength] == ':' && isUUID(text[:uuidLength])
}

func isUUID(text string) bool {
	if len(text) != uuidLength {
		return false
	}
	for i := range uuidLength {
		c := text[i]
		dash := i == 8 || i == 13 || i == 18 || i == 23
		if dash != (c == '-') || !dash && !isHex(c) {
			return false
		}
	}
	return true
}

func isHex(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F' }

func isDigits(text string) bool {
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return false
		}
	}
	return text != ""
}

func isCount(text string) bool {
	n, ok := redistext.ParseInt(stringBytes(text))
	return ok && n >= 0 // a script of Redisson counts down to 0 before it deletes the field
}

// exists reports whether a key exists, for a reply that does not depend on that alone.
func (t *Txn) exists(db int, key string) bool {
	e := t.peek(db, key)
	return e != nil && !t.dead(e)
}

// Names of the keys beside a lock of Redisson.

// braced returns the name in braces, as Redisson does unless the name has some.
func braced(key string) string {
	if strings.Contains(key, "{") {
		return key
	}
	return "{" + key + "}"
}

func queueKey(key string) string    { return "redisson_lock_queue:" + braced(key) }
func timeoutsKey(key string) string { return "redisson_lock_timeout:" + braced(key) }
func fenceKey(key string) string    { return "redisson_lock_token:" + braced(key) }

// fairQueue returns the queue of Redisson's fair lock; it may be empty.
func (t *Txn) fairQueue(db int, key string) *Deque {
	if e := t.peek(db, queueKey(key)); e != nil && !t.dead(e) && e.typ == TypeList {
		return e.List()
	}
	return newList()
}

// readKey is the key that ends one hold of a reader.
func readKey(key, owner string, hold int64) string {
	return braced(key) + ":" + owner + ":rwlock_timeout:" + strconv.FormatInt(hold, 10)
}

// lockHolder is an owner of a lock, as LOCK.INFO shows it.
type lockHolder struct {
	owner          string
	holds, permits int64
	token          uint64
	until          int64  // the deadline; 0: none
	leased         uint64 // see Entry.leased
}

// eachHolder calls fn for the owners that hold a lock of a kind, until fn returns false. The key must be such a lock (kindOf).
func (c *Ctx) eachHolder(e *Entry, kind string, fn func(h lockHolder) bool) {
	of := lockHolder{holds: 1, permits: 1, token: c.Token(c.DB, e), until: e.deadline, leased: e.leased}
	switch kind {
	case kindSemaphore:
		c.eachPermit(e, of, fn)
	case kindLatch:
	case kindGroup:
		c.eachValue(e.Fields(), of, fn)
	case kindSymfony:
		c.eachSymfony(e.Scores(), of, fn)
	case kindPlain, kindShedLock:
		of.owner = e.str
		fn(of)
	case kindExclusive, kindShared, kindLimit:
		e.Lock().byOwner.Scan(func(h *holder) bool {
			if !c.holding(h) {
				return true
			}
			return fn(lockHolder{h.owner, h.holds, h.permits, max(h.token, c.tokens.swaps[c.DB]), h.deadline, h.leased})
		})
	default:
		e.Fields().Each(func(f Field) bool {
			n, ok := redistext.ParseInt(stringBytes(f.Value))
			if !ok || n == 0 {
				return true // the field mode, or an owner that has just lost the lock
			}
			of.owner, of.holds = f.Name, n
			return fn(of)
		})
	}
}
