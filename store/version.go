package store

import "slices"

// What WATCH compares. A key that exists has the number of the write set that
// last changed it, or put it in the place of another by SWAPDB. A key that does
// not exist has had none since some write set.
//
// The first is part of the state. That a key came and went again is not: it
// would have to be remembered for ever. A node remembers it for the keys that
// were deleted last (removals). If that is forgotten, or the node has been
// restored from a snapshot since, a transaction takes place that Redis would
// refuse: on a key that is absent, as it was when it was watched.

// wasAbsent marks the version of a key that does not exist; the rest is the
// write set since when.
const wasAbsent = 1 << 63

// Version returns what WATCH remembers of a key. It is settled unless the
// present write set has changed the key: it could do so again, and the version
// would be the same.
func (t *Txn) Version(db int, key []byte) (v uint64, settled bool) {
	if e := t.Lookup(db, key); e != nil {
		v := t.version(db, e)
		return v, v != t.seq
	}
	return wasAbsent | (t.seq - 1), !t.removedHere(db, key) && !t.swappedAway(db, key)
}

// Unchanged reports whether nothing has happened to a key since it had version
// v. That it has expired counts, unless it had before.
func (t *Txn) Unchanged(db int, key []byte, v uint64) bool {
	e := t.Lookup(db, key)
	if v&wasAbsent == 0 {
		return e != nil && t.version(db, e) == v
	}
	return e == nil && !t.removedHere(db, key) && !t.swappedAway(db, key) && t.s.removals.last(db, hashOf(bytesToString(key))) <= v&^wasAbsent
}

func (t *Txn) version(db int, e *Entry) uint64 {
	if t.swappedDBs>>db&1 != 0 {
		return t.seq
	}
	return max(e.changed, t.s.swapped[db])
}

// removedHere reports whether the transaction has removed a key, other than by
// its expiry.
func (t *Txn) removedHere(db int, key []byte) bool {
	e, pending := t.views[db].over[string(key)]
	return pending && e == nil && !slices.Contains(t.lapsed, lapsedKey{db, string(key)})
}

// swappedAway reports whether a key that a database does not have may have
// left it by a SWAPDB of the transaction: another one of those has it.
func (t *Txn) swappedAway(db int, key []byte) bool {
	if t.swappedDBs>>db&1 == 0 {
		return false
	}
	for other := range t.views {
		if t.swappedDBs>>other&1 != 0 && (t.Lookup(other, key) != nil || t.removedHere(other, key)) {
			return true
		}
	}
	return false
}

// lapsedKey is a key that has expired.
type lapsedKey struct {
	db  int
	key string
}

// lapse notes that a key has expired in this write set.
func (t *Txn) lapse(x lapsedKey) {
	t.lapsed = append(t.lapsed, x)
	if t.saved > 0 {
		t.undo(func() { t.forget(x) })
	}
}

// revive forgets that a key has expired in this write set: it is there again,
// and if it is removed now, somebody has done so.
func (t *Txn) revive(db int, key string) {
	x := lapsedKey{db, key}
	if t.forget(x) {
		t.undo(func() { t.lapsed = append(t.lapsed, x) })
	}
}

func (t *Txn) forget(x lapsedKey) bool {
	i := slices.Index(t.lapsed, x)
	if i >= 0 {
		t.lapsed = slices.Delete(t.lapsed, i, i+1)
	}
	return i >= 0
}

// removals remembers which write set removed a key, by the hash of its name.
// Of the keys that have one place it remembers those that were removed last.
type removals [256][4]struct{ name, seq uint64 }

// capacity is how many keys there is room for.
const capacity = len(removals{}) * len(removals{}[0])

// nameOf tells the keys of all databases apart: a hash has 48 bits.
func nameOf(db int, hash uint64) uint64 { return uint64(db)<<48 | hash }

// place is apart for keys of one name in different databases, which FLUSHALL
// and SWAPDB remove together.
func place(db int, hash uint64) uint64 {
	return (hash + 17*uint64(db)) % uint64(len(removals{}))
}

func (r *removals) note(db int, hash, seq uint64) {
	name, at := nameOf(db, hash), &r[place(db, hash)]
	oldest := &at[0]
	for i := range at {
		if at[i].name == name {
			at[i].seq = seq
			return
		}
		if at[i].seq < oldest.seq {
			oldest = &at[i]
		}
	}
	oldest.name, oldest.seq = name, seq
}

// last returns 0 if nothing is known.
func (r *removals) last(db int, hash uint64) uint64 {
	for _, x := range r[place(db, hash)] {
		if x.name == nameOf(db, hash) {
			return x.seq
		}
	}
	return 0
}

// noteAll notes the keys of a database that is about to be emptied or swapped,
// as far as there is room.
func (r *removals) noteAll(db int, ks *keyspace, seq uint64) {
	n := 0
	ks.keys.ascend(0, func(s slot) bool {
		r.note(db, s.hash, seq)
		n++
		return n < capacity
	})
}
