package store

import "strings"

// target is what primitive writes change: the committed keyspace, or a Txn. So a command sees exactly what Apply will produce.
type target interface {
	// mutable returns the entry of a key for a change, or nil if the key does not exist.
	mutable(db int, key string) *Entry
	// put adds an entry, whose key must not exist.
	put(db int, e *Entry)
	// remove deletes a key.
	remove(db int, key string)
	// setDeadline changes the deadline of an existing key.
	setDeadline(db int, key string, at int64)
	// grow changes the size of the data after an entry has changed in place; the argument by is the difference in bytes.
	grow(db int, by int64)
	// own returns a key and its value in memory that lives as long as the target.
	own(key, value string) (ownedKey, ownedValue string)
	// give sets the value of a string key; it copies the value if own would.
	give(e *Entry, value string)
	// stamp records that the current write set has changed an entry, and whether it has set the deadline.
	stamp(e *Entry, leased bool)
	// grant gives an entry the next token. fresh means that the key is new, and not that its value was replaced.
	grant(e *Entry, fresh bool)
	// copied counts bytes of a value that are about to be copied for a change.
	copied(bytes int)
	// cloned counts the bytes of a copy of e that is about to be made.
	cloned(e *Entry)
	// form returns the size limits of the compact forms.
	form() *forms
	// finds returns the finder, which searches large compact forms faster than from the start.
	finds() *finder
}

// setString sets a string and a deadline.
func setString(t target, db int, key, value string, deadline int64) {
	e := t.mutable(db, key)
	if e == nil {
		name, value := t.own(key, value)
		e = &Entry{key: name, typ: TypeString, str: value, deadline: deadline}
		t.grant(e, true)
		t.stamp(e, true)
		t.put(db, e)
		return
	}
	becomeString(t, db, e, value)
	t.setDeadline(db, key, deadline)
}

// setLock is setString for a string that is a lock.
func setLock(t target, db int, key, value string, deadline int64) {
	setString(t, db, key, value, deadline)
	addMarks(t, db, key, formLock)
}

// addMarks adds marks to a key.
func addMarks(t target, db int, key string, marks strForm) {
	if e := t.mutable(db, key); e != nil {
		e.form |= marks
	}
}

// becomeString makes the value of an entry a string. The entry must come from target.mutable.
func becomeString(t target, db int, e *Entry, value string) {
	if e.typ != TypeString || e.str != value {
		t.grant(e, false)
	}
	before := e.size()
	t.give(e, value)
	e.typ, e.form = TypeString, e.form&formMarks
	e.drop()
	t.grow(db, e.size()-before)
}

// keepString sets an existing key to a string, but keeps the deadline and its write set. It returns false for a missing key.
func keepString(t target, db int, key, value string) bool {
	e := t.mutable(db, key)
	if e == nil {
		return false
	}
	becomeString(t, db, e, value)
	t.stamp(e, false)
	return true
}

// patchString overwrites a string from an offset on, and keeps the deadline. It returns false for a wrong type or offset.
func patchString(t target, db int, key string, offset int64, patch string) bool {
	e := t.mutable(db, key)
	fresh := e == nil
	if fresh {
		e = &Entry{key: ownKey(key), typ: TypeString}
	}
	if e.typ != TypeString || offset < 0 || offset > maxPatch {
		return false
	}
	before := e.size()
	length := max(int64(len(e.str)), offset+int64(len(patch)))
	t.copied(int(length))
	value := make([]byte, length)
	copy(value, e.str)
	copy(value[offset:], patch)
	if fresh || e.str != bytesToString(value) {
		t.grant(e, fresh)
	}
	if e.paired() {
		e.key = ownKey(e.key)
	}
	e.str, e.form = bytesToString(value), formRaw|e.form&formMarks
	t.stamp(e, false)
	if fresh {
		t.put(db, e)
	} else {
		t.grow(db, e.size()-before)
	}
	return true
}

// formString changes the form of a string, which WATCH does not see. It returns false if that is not possible.
func formString(t target, db int, key string, form strForm) bool {
	e := t.mutable(db, key)
	if e == nil || e.typ != TypeString || form > formText {
		return false
	}
	e.form = form | e.form&formMarks
	return true
}

// hashSet sets a field. It returns false for a key of another type, which only a corrupt log causes.
func hashSet(t target, db int, key, field, value string) bool {
	e := t.mutable(db, key)
	if e == nil {
		e = Entry{key: ownKey(key), typ: TypeHash}.holding(&Hash{})
		e.Fields().set(field, value, t.form(), t.finds())
		t.grant(e, true)
		t.stamp(e, false)
		t.put(db, e)
		return true
	}
	if e.typ != TypeHash {
		return false
	}
	t.grow(db, e.Fields().set(field, value, t.form(), t.finds()))
	t.stamp(e, false)
	return true
}

// hashDelete removes a field, and the key with its last field. It returns false if the key has another
// type.
func hashDelete(t target, db int, key, field string) bool {
	e := t.mutable(db, key)
	if e == nil || e.typ != TypeHash {
		return e == nil
	}
	t.grow(db, e.Fields().remove(field, t.finds()))
	t.stamp(e, false)
	if e.Fields().Len() == 0 {
		t.remove(db, key)
	}
	return true
}

func moveKey(t target, db int, key string, toDB int, name string, keep bool) {
	e := t.mutable(db, key)
	if e == nil {
		return
	}
	t.cloned(e)
	c := e.clone()
	if c.paired() {
		c.key, c.str = ownPair(name, c.str)
	} else {
		c.key = ownKey(name)
	}
	if !keep {
		t.remove(db, key)
	}
	t.remove(toDB, name)
	t.grant(c, true)
	t.stamp(c, false)
	t.put(toDB, c)
}

// committed is the keyspace as the target of Apply.
type committed struct {
	s    *Store
	seq  uint64
	find finder

	first bool // the writes are of version 1 (WriteSet.Version)
}

// mutable first replaces the entry by a copy if a snapshot may still read the entry.
func (t *committed) mutable(db int, key string) *Entry {
	ks := t.s.dbs[db]
	e := ks.get(key)
	switch {
	case e == nil:
	case e.epoch != t.s.epoch:
		t.cloned(e)
		e = e.clone()
		e.epoch = t.s.epoch
		ks.set(e)
	case e.tree():
		t.s.copying(treeCopy)
	}
	return e
}

func (t *committed) put(db int, e *Entry) {
	e.epoch = t.s.epoch
	t.s.dbs[db].set(e)
	t.grow(db, e.size())
}

func (t *committed) remove(db int, key string) {
	ks := t.s.dbs[db]
	if e := ks.get(key); e != nil {
		t.grow(db, -e.size())
		t.s.removals.note(db, ks.remove(e), t.seq)
	}
}

func (t *committed) finds() *finder { return &t.find }

func (t *committed) grow(db int, by int64) { t.s.dbs[db].size += by }

func (t *committed) cloned(e *Entry) { t.s.copying(e.copySize()) }

func (t *committed) copied(bytes int) { t.s.copying(bytes) }

func (t *committed) setDeadline(db int, key string, at int64) {
	if e := t.mutable(db, key); e != nil {
		t.s.dbs[db].setDeadline(e, at)
		t.stamp(e, true)
	}
}

func (t *committed) own(key, value string) (ownedKey, ownedValue string) { return ownPair(key, value) }

func (t *committed) give(e *Entry, value string) {
	if e.paired() {
		e.key, e.str = ownPair(e.key, value)
	} else {
		e.str = strings.Clone(value)
	}
}

func (t *committed) grant(e *Entry, fresh bool) { t.s.tokens.grant(e, t.seq, fresh) }

func (t *committed) stamp(e *Entry, leased bool) {
	e.stamp(t.seq, leased)
	if leased && e.deadline != 0 {
		t.s.leased = t.seq
	}
}

func (e *Entry) stamp(seq uint64, leased bool) {
	e.changed = seq
	if leased {
		e.leased = seq
	}
}
