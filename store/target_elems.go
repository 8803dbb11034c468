package store

import "math"

// collect returns the entry of a key that gets an element, or nil for another type. An absent entry is new; the caller puts it.
func collect(t target, db int, key string, typ Type, make func() collection) (e *Entry, absent bool) {
	e = t.mutable(db, key)
	if e == nil {
		return Entry{key: ownKey(key), typ: typ}.holding(make()), true
	}
	if e.typ != typ {
		return nil, false
	}
	return e, false
}

// changed stamps an entry after a change of its elements, puts it if absent, and removes it if empty.
func changed(t target, db int, e *Entry, absent bool, before int64) {
	t.stamp(e, false)
	if absent {
		t.grant(e, true)
		t.put(db, e)
		return
	}
	t.grow(db, e.elems.size()-before)
	if e.elems.Len() == 0 {
		t.remove(db, e.key)
	}
}

// The functions below return false and do nothing if the write is impossible, as it may be in a corrupt log. Commands check this before.

// listPush adds an element at one end of a list.
func listPush(t target, db int, key string, head bool, value string) bool {
	e, absent := collect(t, db, key, TypeList, func() collection { return newList() })
	if e == nil {
		return false
	}
	before := e.elems.size()
	e.List().push(head, value)
	changed(t, db, e, absent, before)
	return true
}

// listEdit lets edit change a list. It returns false if that lacks n elements from index i on.
func listEdit(t target, db int, key string, i, n int64, edit func(l *Deque)) bool {
	e := t.mutable(db, key)
	if e == nil || e.typ != TypeList || i < 0 || n < 0 || i > int64(e.elems.Len())-n {
		return false
	}
	before, length := e.elems.size(), e.elems.Len()
	edit(e.List())
	if left := e.elems.Len(); left > 0 && left < length {
		moved := length - left
		if keepsFew(left, moved) {
			moved = left
		}
		t.finds().wrote(int64(moved) * removedBytes)
	}
	changed(t, db, e, false, before)
	return true
}

// setAdd adds a member to a set.
func setAdd(t target, db int, key, name string) bool {
	e, absent := collect(t, db, key, TypeSet, func() collection { return &MemberSet{} })
	if e == nil {
		return false
	}
	before := e.elems.size()
	e.Members().add(name, t.form())
	changed(t, db, e, absent, before)
	return true
}

// setRemove removes a member from a set.
func setRemove(t target, db int, key, name string) bool {
	e := t.mutable(db, key)
	if e == nil || e.typ != TypeSet {
		return e == nil
	}
	before := e.elems.size()
	e.Members().remove(name)
	changed(t, db, e, false, before)
	return true
}

// scoreSet adds a member to a sorted set or changes the member's score. If large is true, it first converts the set
// to the large form.
func scoreSet(t target, db int, key, name string, score float64, large bool) bool {
	if math.IsNaN(score) {
		return false
	}
	e, absent := collect(t, db, key, TypeSortedSet, func() collection { return &SortedSet{} })
	if e == nil {
		return false
	}
	before := e.elems.size()
	if large && e.Scores().Compact() {
		e.Scores().grow()
	}
	e.Scores().set(name, score, t.form(), t.finds())
	changed(t, db, e, absent, before)
	return true
}

// scoreRemove removes a member from a sorted set.
func scoreRemove(t target, db int, key, name string) bool {
	e := t.mutable(db, key)
	if e == nil || e.typ != TypeSortedSet {
		return e == nil
	}
	before := e.elems.size()
	e.Scores().remove(name, t.finds())
	changed(t, db, e, false, before)
	return true
}

// applyList decodes a write to a list completely before it changes anything.
func applyList(t target, o op, d *decoder, db int) {
	key := d.Str()
	var i, n int64
	if o == opListSet || o == opListInsert || o == opListRemove {
		i = d.int()
	}
	if o == opListRemove {
		if n = d.int(); !d.Bad {
			d.Bad = !listEdit(t, db, key, i, n, func(l *Deque) { l.remove(int(i), int(n)) })
		}
		return
	}
	value := d.Str()
	if d.Bad {
		return
	}
	value = string([]byte(value))
	switch o {
	case opPushHead, opPushTail:
		d.Bad = !listPush(t, db, key, o == opPushHead, value)
	case opListSet:
		d.Bad = !listEdit(t, db, key, i, 1, func(l *Deque) { l.set(int(i), value) })
	case opListInsert:
		d.Bad = !listEdit(t, db, key, i, 0, func(l *Deque) { l.insert(int(i), value) })
	}
}

// applyMember decodes a write to a set or sorted set completely before it changes anything.
func applyMember(t target, o op, d *decoder, db int) {
	key, name := d.Str(), d.Str()
	score := 0.0
	if o == opScoreSet || o == opScoreSetLarge {
		score = math.Float64frombits(uint64(d.int()))
	}
	if d.Bad {
		return
	}
	switch o {
	case opSetAdd:
		d.Bad = !setAdd(t, db, key, name)
	case opSetRemove:
		d.Bad = !setRemove(t, db, key, name)
	case opScoreSet, opScoreSetLarge:
		d.Bad = !scoreSet(t, db, key, name, score, o == opScoreSetLarge)
	case opScoreRemove:
		d.Bad = !scoreRemove(t, db, key, name)
	}
}
