package store

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"
	"unsafe"
)

// Databases is the number of databases (SELECT 0-15).
const Databases = 16

// Type is the type of a key's value.
type Type uint8

const (
	TypeString Type = iota + 1
	TypeHash
	TypeList
	TypeSet
	TypeSortedSet
	TypeLock
	// TypeFree is no type of a value: a client that waits for a lock waits until the key is free.
	TypeFree
)

func (t Type) String() string {
	switch t {
	case TypeString:
		return "string"
	case TypeHash:
		return "hash"
	case TypeList:
		return "list"
	case TypeSet:
		return "set"
	case TypeSortedSet:
		return "zset"
	case TypeLock:
		return "lock"
	}
	return "none"
}

// Entry is a key with its value. A caller that gets an entry from a Txn must not change it.
//
// One more word would cost every lock 16 bytes: the runtime would allocate 96 instead of 80.
type Entry struct {
	key      string
	deadline int64  // ms on the lease clock; 0 means none
	token    uint64 // see tokens.go
	changed  uint64
	leased   uint64 // sequence number of the write set that set the deadline
	epoch    uint32 // Store.epoch or, for a pending entry, Txn.generation when this copy was made
	typ      Type
	form     strForm
	seat     uint16 // the index in its bucket (deadlines); it changes in place, even if a snapshot shares the entry
	str      string
	elems    *elements // nil for a string
}

// strForm records how a string was written, for OBJECT ENCODING.
type strForm uint8

const (
	formByValue strForm = iota // OBJECT ENCODING depends on the value alone
	formRaw                    // a command has changed part of the string, or BITOP has made it
	formText                   // a number that INCRBYFLOAT stored as text

	// formMarks are the bits of the field form that any key may have.
	formMarks = formLock | formTold | formSemaphore | formLatch
	// formSemaphore and formLatch: a script of Redisson has made the number of a semaphore, or of a latch that counts down.
	formSemaphore strForm = 1 << 4
	formLatch     strForm = 1 << 5
	// formLock: the key is a lock, because SET NX, SETNX or LOCK.ACQUIRE has made it.
	formLock strForm = 1 << 6
	// formTold: the owner of the lock has been asked to release it (LOCK.REVOKE).
	formTold strForm = 1 << 7
)

// stringForm returns the form of a string without the marks.
func (e *Entry) stringForm() strForm { return e.form &^ formMarks }

// elements is a collection that an Entry points to.
type elements struct{ collection }

// holding returns a copy of e with the collection c. The copy and its elements struct share one allocation.
func (e Entry) holding(c collection) *Entry {
	both := &struct {
		Entry
		elements
	}{e, elements{c}}
	both.Entry.elems = &both.elements
	return &both.Entry
}

// collection is the value of a key with elements. The key is deleted with its last element.
type collection interface {
	Len() int
	// clone returns a copy that is independent of the original.
	clone() collection
	// size returns the estimated memory of the elements.
	size() int64
}

// drop releases the collection of an entry. The small elements struct stays allocated together with the entry.
func (e *Entry) drop() {
	if e.elems != nil {
		e.elems.collection, e.elems = nil, nil
	}
}

// Key returns the key's name.
func (e *Entry) Key() string { return e.key }

// Type returns the type of the value.
func (e *Entry) Type() Type { return e.typ }

// Deadline returns the lease time after which the key expires; 0 means never.
func (e *Entry) Deadline() int64 { return e.deadline }

// Changed returns the sequence number of the last write set that changed the key (see Txn.Version).
func (e *Entry) Changed() uint64 { return e.changed }

// Leased returns the sequence number of the write set that set the deadline.
func (e *Entry) Leased() uint64 { return e.leased }

// Str returns the value of a string key.
func (e *Entry) Str() string { return e.str }

// collection returns the value of a key with elements, or nil for a string.
func (e *Entry) collection() collection {
	if e.elems == nil {
		return nil
	}
	return e.elems.collection
}

// Fields returns the value of a hash key, or nil for another type.
func (e *Entry) Fields() *Hash { h, _ := e.collection().(*Hash); return h }

// List returns the value of a list key, or nil for another type.
func (e *Entry) List() *Deque { l, _ := e.collection().(*Deque); return l }

// Members returns the value of a set key, or nil for another type.
func (e *Entry) Members() *MemberSet { s, _ := e.collection().(*MemberSet); return s }

// Scores returns the value of a sorted set key, or nil for another type.
func (e *Entry) Scores() *SortedSet { z, _ := e.collection().(*SortedSet); return z }

// clone returns a copy of the entry that is independent of the original.
func (e *Entry) clone() *Entry {
	if e.elems != nil {
		return e.holding(e.elems.clone())
	}
	c := *e
	return &c
}

// hashOf returns the position of a name in the iteration order: the first hashBits bits of its SHA-256. With a simpler function, a client
// could choose many names of one position.
func hashOf(name string) uint64 {
	sum := sha256.Sum256(stringBytes(name))
	return binary.BigEndian.Uint64(sum[:]) >> (64 - hashBits)
}

// hash returns the position of the key in the iteration order.
func (e *Entry) hash() uint64 { return hashOf(e.key) }

// keyspace is one database: an index of the keys by hash, and the keys with a deadline by periods
// of time.
type keyspace struct {
	keys      index
	deadlines deadlines
	found     *Entry // the key that get has found last
	hash      uint64 // the hash of the key in the field found
	hashes    *hashCache
	size      int64 // the sum of Entry.size of all keys; every change of an entry adds the difference
}

func newKeyspace(hashes *hashCache) *keyspace {
	return &keyspace{keys: newIndex(), deadlines: newDeadlines(), hashes: hashes}
}

// get finds a key. A command looks up the same key several times, and Apply once more, so get caches the last key that
// it found.
func (ks *keyspace) get(key string) *Entry {
	if ks.found != nil && ks.found.key == key {
		return ks.found
	}
	ks.hash = ks.hashes.of(key)
	ks.found = ks.keys.get(ks.hash, key)
	return ks.found
}

// place returns the slot for an entry.
func (ks *keyspace) place(e *Entry) slot {
	if ks.found != nil && ks.found.key == e.key {
		return slot{ks.hash, e}
	}
	return slot{ks.hashes.of(e.key), e}
}

func (ks *keyspace) set(e *Entry) {
	at := ks.place(e)
	old := ks.keys.set(at)
	ks.found, ks.hash = e, at.hash
	if old != nil && old.deadline != 0 {
		if old.deadline == e.deadline {
			ks.deadlines.replace(old, e)
			return
		}
		ks.deadlines.remove(old)
	}
	if e.deadline != 0 {
		ks.deadlines.add(e)
	}
}

// remove removes an entry and returns its hash.
func (ks *keyspace) remove(e *Entry) uint64 {
	at := ks.place(e)
	ks.found = nil
	ks.keys.remove(at.hash, e.key)
	if e.deadline != 0 {
		ks.deadlines.remove(e)
	}
	return at.hash
}

// setDeadline changes the deadline of an entry. The entry must be in this keyspace and owned by the
// current epoch.
func (ks *keyspace) setDeadline(e *Entry, at int64) {
	if e.deadline == at {
		return
	}
	if e.deadline != 0 {
		ks.deadlines.remove(e)
	}
	e.deadline = at
	if at != 0 {
		ks.deadlines.add(e)
	}
}

// Sink receives the messages of an applied write set, in order. Apply calls it, so it must not
// block.
type Sink interface {
	Publish(kind PublishKind, channel, message string)
}

// Store is the committed keyspace. It is not safe for concurrent use.
type Store struct {
	dbs      [Databases]*keyspace
	scripts  scriptCache
	epoch    uint32
	expired  uint64            // number of keys deleted because they had expired
	leased   uint64            // the result of LastLease
	swapped  [Databases]uint64 // sequence number of the latest SWAPDB of each database, for WATCH
	tokens   tokens
	removals removals // the latest removals of keys, for WATCH; not part of the state
	libs     *librarySet
	config   config
	accounts accounts
	newest   uint64   // the result of Newest; not part of the state
	witness  *witness // tells the events of locks; nil: nobody wants them. Not part of the state

	hashes    hashCache       // of keys; not part of the state
	ahead     Ahead           // for readAhead; not part of the state
	brake     func(bytes int) // the function that Brake has set; not part of the state
	uncounted int             // bytes copied since the last call of brake; not part of the state
}

// New returns an empty store.
func New() *Store {
	s := &Store{scripts: newScriptCache(), libs: noLibraries, accounts: newAccounts()}
	for i := range s.dbs {
		s.dbs[i] = newKeyspace(&s.hashes)
	}
	return s
}

// Keys returns the number of keys in a database and the number of keys with a deadline. Both
// include expired keys that are not deleted yet.
func (s *Store) Keys(db int) (total, withDeadline int) {
	return s.dbs[db].keys.size, s.dbs[db].deadlines.size
}

// LastLease returns the sequence number of the last write set that gave a key a deadline, after Restore the highest in the snapshot.
func (s *Store) LastLease() uint64 { return s.leased }

// Newest returns the highest sequence number in the records of the restored snapshot.
func (s *Store) Newest() uint64 { return s.newest }

// Expired returns the number of keys that were deleted because they had expired.
func (s *Store) Expired() uint64 { return s.expired }

// NextDeadline returns the earliest deadline of any key, or 0 if no key has one.
func (s *Store) NextDeadline() int64 {
	next := int64(0)
	for _, ks := range s.dbs {
		if at := ks.deadlines.first(); at != 0 && (next == 0 || at < next) {
			next = at
		}
	}
	return next
}

// Deadlines returns the number of keys with a deadline.
func (s *Store) Deadlines() int {
	n := 0
	for _, ks := range s.dbs {
		n += ks.deadlines.size
	}
	return n
}

// ownKey copies a key out of the buffer that contains it.
func ownKey(key string) string { return strings.Clone(key) }

// maxShared is the largest total length, in bytes, of a key and a value that share memory.
const maxShared = 128

// ownPair copies a key and its value. A short pair gets one allocation, because the runtime rounds up each.
func ownPair(key, value string) (ownedKey, ownedValue string) {
	n := len(key) + len(value)
	if n > maxShared {
		return strings.Clone(key), strings.Clone(value)
	}
	both := bytesToString(append(append(make([]byte, 0, n), key...), value...))
	return both[:len(key)], both[len(key):]
}

// paired reports whether key and value may share an allocation (ownPair). Code that replaces one must copy the other, because each keeps
// both alive.
func (e *Entry) paired() bool {
	end := uintptr(unsafe.Pointer(unsafe.StringData(e.key))) + uintptr(len(e.key))
	return len(e.str) > 0 && end == uintptr(unsafe.Pointer(unsafe.StringData(e.str)))
}
