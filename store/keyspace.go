package store

import (
	"strings"

	"github.com/tidwall/btree"
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
	}
	return "none"
}

// Entry is a key with its value. What a Txn hands out must not be changed.
//
// There is one for each lock, and its size decides what a lock takes: with two words
// more the runtime would round it up from 80 bytes to 96. So its hash is not kept, and
// what only some keys have stands behind a pointer.
type Entry struct {
	key      string
	deadline int64 // lease ms; 0: none
	created  uint64
	changed  uint64
	leased   uint64 // write set that set the deadline
	epoch    uint32 // owner of this copy: a store epoch, or a Txn's savepoint
	typ      Type
	form     strForm
	seat     uint16 // in a bucket of deadlines; not protected by the epoch
	str      string
	elems    *elements // nil: a string
}

// strForm is what OBJECT ENCODING shows of how a string came about.
type strForm uint8

const (
	formByValue strForm = iota
	formRaw             // it has been changed in place
	formText            // a number that INCRBYFLOAT has left as text
)

// elements is a collection behind a pointer.
type elements struct{ collection }

// holding returns e with a collection of its own, both in one piece of memory.
func (e Entry) holding(c collection) *Entry {
	both := &struct {
		Entry
		elements
	}{e, elements{c}}
	both.Entry.elems = &both.elements
	return &both.Entry
}

// collection is the value of a key that holds elements. A key goes with its
// last element.
type collection interface {
	Len() int
	// clone copies so deeply that changing one leaves the other alone.
	clone() collection
	// size is what the elements take.
	size() int64
}

// drop lets go of a collection, whose place in memory stays with the entry.
func (e *Entry) drop() {
	if e.elems != nil {
		e.elems.collection, e.elems = nil, nil
	}
}

// Key returns the key's name.
func (e *Entry) Key() string { return e.key }

// Type returns the type of the value.
func (e *Entry) Type() Type { return e.typ }

// Deadline returns the lease time after which the key is gone; 0 means never.
func (e *Entry) Deadline() int64 { return e.deadline }

// Created returns the sequence number of the write set that created the key:
// it grows with every new owner of a lock and serves as a fencing token.
func (e *Entry) Created() uint64 { return e.created }

// Changed returns the sequence number of the last write set that touched the
// key; WATCH compares it.
func (e *Entry) Changed() uint64 { return e.changed }

// Leased returns the sequence number of the write set that set the deadline.
func (e *Entry) Leased() uint64 { return e.leased }

// Str returns the value of a string key.
func (e *Entry) Str() string { return e.str }

// collection returns the value of a key that holds elements, nil of a string.
func (e *Entry) collection() collection {
	if e.elems == nil {
		return nil
	}
	return e.elems.collection
}

// Fields returns the value of a hash key, nil of another.
func (e *Entry) Fields() *Hash { h, _ := e.collection().(*Hash); return h }

// List returns the value of a list key, nil of another.
func (e *Entry) List() *Deque { l, _ := e.collection().(*Deque); return l }

// Members returns the value of a set key, nil of another.
func (e *Entry) Members() *MemberSet { s, _ := e.collection().(*MemberSet); return s }

// Scores returns the value of a sorted set key, nil of another.
func (e *Entry) Scores() *SortedSet { z, _ := e.collection().(*SortedSet); return z }

// clone copies the entry deeply enough that changing the copy leaves the
// original alone.
func (e *Entry) clone() *Entry {
	if e.elems != nil {
		return e.holding(e.elems.clone())
	}
	c := *e
	return &c
}

// hashOf places a name in the iteration order. It is FNV-1a with a final mix,
// not a per-process hash, because every node must iterate in the same order.
func hashOf(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := 0; i < len(s); i++ {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	return h & hashMask
}

// hash places the key in the iteration order.
func (e *Entry) hash() uint64 { return hashOf(e.key) }

// keyspace is one database: the keys in the order of their hashes, and those
// with a deadline by periods of time.
type keyspace struct {
	keys      index
	deadlines deadlines
	found     *Entry // what get found last …
	hash      uint64 // … and its hash
	size      int64  // of all entries; whoever changes one adds the difference
}

var treeOptions = btree.Options{NoLocks: true}

func newKeyspace() *keyspace { return &keyspace{keys: newIndex(), deadlines: newDeadlines()} }

// get finds a key. A command looks a key up several times, and Apply once more
// after it, so the last answer is kept.
func (ks *keyspace) get(key string) *Entry {
	if ks.found != nil && ks.found.key == key {
		return ks.found
	}
	ks.hash = hashOf(key)
	ks.found = ks.keys.get(ks.hash, key)
	return ks.found
}

// place returns the place of an entry.
func (ks *keyspace) place(e *Entry) slot {
	if ks.found != nil && ks.found.key == e.key {
		return slot{ks.hash, e}
	}
	return slot{e.hash(), e}
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

// setDeadline changes the deadline of an entry that is in this keyspace and
// owned by the current epoch.
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

// Sink receives the messages that an applied write set publishes, in order.
// It is called from within Apply and must not block.
type Sink interface {
	Publish(kind PublishKind, channel, message string)
}

// Store is the committed keyspace. It is not safe for concurrent use.
type Store struct {
	dbs      [Databases]*keyspace
	scripts  scriptCache
	epoch    uint32
	expired  uint64            // keys deleted because their deadline had passed
	leased   uint64            // see LastLease
	swapped  [Databases]uint64 // write set of the latest SWAPDB, for WATCH
	removals removals          // for WATCH; not part of the state
	libs     *librarySet
	config   config
	accounts accounts
	copied   int // see TakeCopied; not part of the state
}

// TakeCopied is Txn.TakeCopied for what was applied.
func (s *Store) TakeCopied() int {
	copied := s.copied
	s.copied = 0
	return copied
}

// New returns an empty store.
func New() *Store {
	s := &Store{scripts: newScriptCache(), libs: noLibraries, accounts: newAccounts()}
	for i := range s.dbs {
		s.dbs[i] = newKeyspace()
	}
	return s
}

// Keys returns the number of keys in a database and how many of them have a
// deadline, those included that expired and are not deleted yet.
func (s *Store) Keys(db int) (total, withDeadline int) {
	return s.dbs[db].keys.size, s.dbs[db].deadlines.size
}

// LastLease returns the last write set that gave a key a deadline, as far as
// its keys are still there after a restart.
func (s *Store) LastLease() uint64 { return s.leased }

// Expired returns how many keys were deleted at their deadline.
func (s *Store) Expired() uint64 { return s.expired }

// NextDeadline returns the earliest deadline of any key; 0 if there is none.
func (s *Store) NextDeadline() int64 {
	next := int64(0)
	for _, ks := range s.dbs {
		if at := ks.deadlines.first(); at != 0 && (next == 0 || at < next) {
			next = at
		}
	}
	return next
}

// Deadlines returns how many keys have a deadline.
func (s *Store) Deadlines() int {
	n := 0
	for _, ks := range s.dbs {
		n += ks.deadlines.size
	}
	return n
}

// ownKey copies a key out of the buffer it arrived in.
func ownKey(key string) string { return strings.Clone(key) }

// maxShared is how long a key and its value together may be to share memory: a
// key goes on holding what its first value took.
const maxShared = 128

// ownPair copies a key and its value; short ones, as locks are, into one piece
// of memory: two would each be rounded up.
func ownPair(key, value string) (ownedKey, ownedValue string) {
	n := len(key) + len(value)
	if n > maxShared {
		return strings.Clone(key), strings.Clone(value)
	}
	both := bytesToString(append(append(make([]byte, 0, n), key...), value...))
	return both[:len(key)], both[len(key):]
}
