package store

// The version of a key, which WATCH compares, is the number of the last write set that changed it or swapped its database. For a missing
// key it is the write set since which the key is known to be missing.
//
// A node forgets removals, because the state does not contain them. If a missing key comes and goes between WATCH and EXEC, EXEC may
// therefore succeed, unlike in Redis.

// wasAbsent marks the version of a missing key; the other bits are the number of the write set since which
// the key is missing.
const wasAbsent = 1 << 63

// Version returns the version of a key for WATCH. If settled is false, the version does not show further changes by this write set.
func (t *Txn) Version(db int, key []byte) (v uint64, settled bool) {
	if e := t.Lookup(db, key); e != nil {
		v := t.version(db, e)
		return v, v != t.seq
	}
	return wasAbsent | (t.seq - 1), !t.removedHere(db, key, 0) && !t.swappedAway(db, key)
}

// Unchanged reports whether a key is unchanged since it had version v. An expiry since then counts
// as a change.
func (t *Txn) Unchanged(db int, key []byte, v uint64) bool {
	e := t.peek(db, bytesToString(key))
	over := e != nil && t.dead(e)
	if v&wasAbsent == 0 {
		return e != nil && !over && t.version(db, e) == v
	}
	if over && t.version(db, e) > v&^wasAbsent {
		return false // the key was created or changed after version v, and has expired
	}
	return (e == nil || over) && !t.removedHere(db, key, v&^wasAbsent) && !t.swappedAway(db, key) && t.s.removals.last(db, hashOf(bytesToString(key))) <= v&^wasAbsent
}

func (t *Txn) version(db int, e *Entry) uint64 {
	if t.swappedDBs>>db&1 != 0 {
		return t.seq
	}
	return max(e.changed, t.s.swapped[db])
}

// removedHere reports whether a command of this transaction removed a missing key. An expired key must have been changed after the write
// set since.
func (t *Txn) removedHere(db int, key []byte, since uint64) bool {
	x := lapsedKey{db, string(key)}
	if e, pending := t.views[db].over[x.key]; pending && e == nil && !t.hasLapsed(x) {
		return true
	}
	if _, flushed := t.flushed.names[x]; flushed {
		return true
	}
	for _, f := range t.flushed.bases {
		if f.db != db {
			continue
		}
		if e := f.base.get(x.key); e != nil && (!t.dead(e) || t.version(db, e) > since) {
			return true
		}
	}
	return false
}

// flushed is what Flush has removed in a write set.
type flushed struct {
	bases []flushedBase          // the keyspaces that were flushed, with the committed keys
	names map[lapsedKey]struct{} // the pending keys that were flushed
}

type flushedBase struct {
	db   int
	base *keyspace
}

// noteFlushed records the keys of a view that Flush is about to empty.
func (t *Txn) noteFlushed(db int, old view) {
	bases := t.flushed.bases
	if !old.base.empty() {
		t.flushed.bases = append(bases, flushedBase{db, old.base})
	}
	var added []lapsedKey // the names to remove if Flush is undone; empty unless a savepoint exists
	for key, e := range old.over {
		x := lapsedKey{db, key}
		if _, noted := t.flushed.names[x]; noted || e == nil && t.hasLapsed(x) {
			continue
		}
		if t.flushed.names == nil {
			t.flushed.names = map[lapsedKey]struct{}{}
		}
		t.flushed.names[x] = struct{}{}
		if t.saved > 0 {
			added = append(added, x)
		}
	}
	t.undo(func() {
		t.flushed.bases = bases
		for _, x := range added {
			delete(t.flushed.names, x)
		}
	})
}

// swappedAway reports whether a missing key may have left its database by a SWAPDB of this
// transaction: another swapped database has the key or had it.
func (t *Txn) swappedAway(db int, key []byte) bool {
	if t.swappedDBs>>db&1 == 0 {
		return false
	}
	for other := range t.views {
		if t.swappedDBs>>other&1 != 0 && (t.Lookup(other, key) != nil || t.removedHere(other, key, 0)) {
			return true
		}
	}
	return false
}

// lapsedKey is an expired key.
type lapsedKey struct {
	db  int
	key string
}

// hasLapsed reports whether a key has expired in this write set.
func (t *Txn) hasLapsed(x lapsedKey) bool {
	_, lapsed := t.lapsed[x]
	return lapsed
}

// lapse records that a key has expired in this write set.
func (t *Txn) lapse(x lapsedKey) {
	t.noteLapsed(x)
	if t.saved > 0 {
		t.undo(func() { t.forget(x) })
	}
}

// revive drops the record that a key has expired in this write set: the key exists again.
func (t *Txn) revive(db int, key string) {
	x := lapsedKey{db, key}
	if t.forget(x) {
		t.undo(func() { t.noteLapsed(x) })
	}
}

func (t *Txn) noteLapsed(x lapsedKey) {
	if t.lapsed == nil {
		t.lapsed = map[lapsedKey]struct{}{}
	}
	t.lapsed[x] = struct{}{}
}

// forget drops the record of an expired key and reports whether there was one.
func (t *Txn) forget(x lapsedKey) bool {
	_, any := t.lapsed[x]
	delete(t.lapsed, x)
	return any
}

// removals maps a key (nameOf) to the write set that removed it or, for an expiry, last changed it. Each index (place) keeps four.
type removals [256][4]struct{ name, seq uint64 }

// capacity is the number of keys that removals can hold.
const capacity = len(removals{}) * len(removals{}[0])

// nameOf returns one number for a key and its database: the database is above the 48 bits of the hash.
func nameOf(db int, hash uint64) uint64 { return uint64(db)<<48 | hash }

// place returns the index of a key in removals. Databases differ, because FLUSHALL and SWAPDB remove equal names together.
func place(db int, hash uint64) uint64 {
	return (hash + 17*uint64(db)) % uint64(len(removals{}))
}

func (r *removals) note(db int, hash, seq uint64) {
	name, at := nameOf(db, hash), &r[place(db, hash)]
	oldest := &at[0]
	for i := range at {
		if at[i].name == name {
			at[i].seq = max(at[i].seq, seq)
			return
		}
		if at[i].seq < oldest.seq {
			oldest = &at[i]
		}
	}
	if seq > oldest.seq { // false for an expired key whose last change (seq) is older than all four removals
		oldest.name, oldest.seq = name, seq
	}
}

// last returns the number of the write set that note has recorded for a key, or 0 if there is no record of the key.
func (r *removals) last(db int, hash uint64) uint64 {
	for _, x := range r[place(db, hash)] {
		if x.name == nameOf(db, hash) {
			return x.seq
		}
	}
	return 0
}

// noteAll records the keys of a database that is about to be emptied or swapped, but no more keys than removals can hold.
func (r *removals) noteAll(db int, ks *keyspace, seq uint64) {
	n := 0
	ks.keys.ascend(0, func(s slot) bool {
		r.note(db, s.hash, seq)
		n++
		return n < capacity
	})
}

// swappedSince reports whether a database has been swapped by this transaction, or by a write set with a number greater than seq.
func (t *Txn) swappedSince(db int, seq uint64) bool {
	return t.swappedDBs>>db&1 != 0 || t.s.swapped[db] > seq
}
