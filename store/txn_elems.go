package store

import "math"

// The writes to lists, sets and sorted sets. The key must have no other type. Elements of lists must not share memory with reused buffers.

// PushHead adds an element at the head of a list. It creates a missing key.
func (t *Txn) PushHead(db int, key []byte, value string) { t.push(opPushHead, db, key, value) }

// PushTail adds an element at the tail of a list. It creates a missing key.
func (t *Txn) PushTail(db int, key []byte, value string) { t.push(opPushTail, db, key, value) }

func (t *Txn) push(o op, db int, key []byte, value string) {
	k := bytesToString(key)
	t.ws.begin(o, db)
	t.ws.str(k)
	t.ws.str(value)
	listPush(t, db, k, o == opPushHead, value)
}

// ListSet replaces the element at an index. The index must exist.
func (t *Txn) ListSet(db int, key []byte, i int, value string) {
	k := bytesToString(key)
	t.ws.begin(opListSet, db)
	t.ws.str(k)
	t.ws.int(int64(i))
	t.ws.str(value)
	listEdit(t, db, k, int64(i), 1, func(l *Deque) { l.set(i, value) })
}

// ListInsert inserts value into an existing list at index i.
func (t *Txn) ListInsert(db int, key []byte, i int, value string) {
	k := bytesToString(key)
	t.ws.begin(opListInsert, db)
	t.ws.str(k)
	t.ws.int(int64(i))
	t.ws.str(value)
	listEdit(t, db, k, int64(i), 0, func(l *Deque) { l.insert(i, value) })
}

// ListRemove removes the n elements from index i on, which must exist. It deletes the key with its last
// element.
func (t *Txn) ListRemove(db int, key []byte, i, n int) {
	if n == 0 {
		return
	}
	k := bytesToString(key)
	t.ws.begin(opListRemove, db)
	t.ws.str(k)
	t.ws.int(int64(i))
	t.ws.int(int64(n))
	listEdit(t, db, k, int64(i), int64(n), func(l *Deque) { l.remove(i, n) })
}

// SetAdd adds a member to a set. It creates a missing key.
func (t *Txn) SetAdd(db int, key []byte, name string) {
	t.member(opSetAdd, db, key, name)
	setAdd(t, db, bytesToString(key), name)
}

// SetRemove removes an existing member from a set. It deletes the key with its last member.
func (t *Txn) SetRemove(db int, key []byte, name string) {
	t.member(opSetRemove, db, key, name)
	setRemove(t, db, bytesToString(key), name)
}

// ScoreSet adds a member to a sorted set or changes its score. It creates a missing key. The score
// must not be NaN.
func (t *Txn) ScoreSet(db int, key []byte, name string, score float64) {
	if symfonyToken(name) {
		t.ws.takes()
	}
	t.scoreSet(opScoreSet, db, key, name, score)
}

// ScoreSetLarge is ScoreSet, but first converts the set to its large form.
func (t *Txn) ScoreSetLarge(db int, key []byte, name string, score float64) {
	t.scoreSet(opScoreSetLarge, db, key, name, score)
}

func (t *Txn) scoreSet(o op, db int, key []byte, name string, score float64) {
	t.member(o, db, key, name)
	t.ws.int(int64(math.Float64bits(score)))
	scoreSet(t, db, bytesToString(key), name, score, o == opScoreSetLarge)
}

// ScoreRemove removes an existing member from a sorted set. It deletes the key with its last
// member.
func (t *Txn) ScoreRemove(db int, key []byte, name string) {
	t.member(opScoreRemove, db, key, name)
	scoreRemove(t, db, bytesToString(key), name)
}

func (t *Txn) member(o op, db int, key []byte, name string) {
	t.ws.begin(o, db)
	t.ws.str(bytesToString(key))
	t.ws.str(name)
}

// HashSet sets a field of a hash. value must not share memory with a buffer that is used again.
func (t *Txn) HashSet(db int, key []byte, field, value string) {
	if ofRedisson(field) || ofRedisson(value) {
		t.ws.takes()
	}
	t.member(opHashSet, db, key, field)
	t.ws.str(value)
	hashSet(t, db, bytesToString(key), field, value)
}

// HashDelete deletes an existing field of a hash. It deletes the key with its last field.
func (t *Txn) HashDelete(db int, key []byte, field string) {
	t.member(opHashDelete, db, key, field)
	hashDelete(t, db, bytesToString(key), field)
}
