package store

// Savepoint is a state of a transaction to which it can roll back.
type Savepoint struct {
	writes  WriteSet
	journal int
	ready   int
	swapped bool
	size    int64
	tokens  tokens
}

// Savepoint marks the current state. Until the savepoint is released or rolled back, the
// transaction records in a journal how to undo each change.
func (t *Txn) Savepoint() Savepoint {
	t.generation++
	t.saved++
	return Savepoint{writes: t.ws, journal: len(t.journal), ready: len(t.ready), swapped: t.swapped, size: t.size, tokens: t.tokens}
}

// Release drops a savepoint and keeps the writes since that savepoint.
func (t *Txn) Release(Savepoint) {
	t.saved--
	if t.saved == 0 {
		clear(t.journal)
		t.journal = t.journal[:0]
	}
}

// Rollback undoes all writes since the savepoint, and drops the savepoint.
func (t *Txn) Rollback(sp Savepoint) {
	for i := len(t.journal) - 1; i >= sp.journal; i-- {
		t.journal[i]()
		t.edits++
		t.journal[i] = nil
	}
	t.journal = t.journal[:sp.journal]
	// Later appends may have moved the buffer, but they never change the bytes that it had at the
	// savepoint.
	buf := t.ws.buf[:len(sp.writes.buf)]
	t.undone += len(t.ws.buf) - len(buf)
	t.ws = sp.writes
	t.ws.buf = buf
	t.size, t.tokens, t.deadLock = sp.size, sp.tokens, nil
	t.ready, t.swapped = t.ready[:min(sp.ready, len(t.ready))], sp.swapped
	t.Release(sp)
}

// TakeUndone returns the number of bytes of writes that were rolled back since the last call.
func (t *Txn) TakeUndone() int {
	undone := t.undone
	t.undone = 0
	return undone
}

// undo adds fn to the journal while a savepoint exists.
func (t *Txn) undo(fn func()) {
	if t.saved > 0 {
		t.journal = append(t.journal, fn)
	}
}

// replace makes e the pending entry of a key (nil means deleted) and records the previous pending entry in the journal.
func (t *Txn) replace(db int, key string, e *Entry) {
	v := &t.views[db]
	if v.over == nil {
		v.over = map[string]*Entry{}
	}
	t.edits++
	if t.saved > 0 {
		over := v.over
		old, had := over[key]
		t.undo(func() {
			if had {
				over[key] = old
			} else {
				delete(over, key)
			}
		})
	}
	v.over[key] = e
}

// A Txn is the target of its own writes.
var _ target = (*Txn)(nil)

// mutable returns the entry of a key for a change, or nil: a copy, if the entry is the store's or a savepoint's.
func (t *Txn) mutable(db int, key string) *Entry {
	v := &t.views[db]
	e, pending := v.over[key]
	if !pending && v.base != nil {
		e = v.base.get(key)
	}
	if e == nil {
		return nil
	}
	if pending && e.epoch == t.generation {
		if e.tree() {
			t.s.copying(treeCopy)
		}
		return e
	}
	t.cloned(e)
	e = e.clone()
	e.epoch = t.generation
	t.replace(db, e.key, e)
	return e
}

func (t *Txn) put(db int, e *Entry) {
	e.epoch = t.generation
	t.revive(db, e.key)
	if old, pending := t.views[db].over[e.key]; pending && old == nil {
		t.noteReplaced(db, e.key)
	}
	t.replace(db, e.key, e)
	t.size += e.size()
	t.noteCreated(db, e.key)
	t.notify(eventNew, "new", db, e.key)
	if e.typ == TypeList || e.typ == TypeSortedSet {
		t.ready = append(t.ready, ReadyKey{db, e.key, e.typ})
	}
}

func (t *Txn) remove(db int, key string) {
	if e := t.peek(db, key); e != nil {
		t.size -= e.size()
		t.replace(db, e.key, nil)
		t.noteFree(db, e.key)
	}
}

func (t *Txn) finds() *finder { return &t.find }

func (t *Txn) grow(_ int, by int64) { t.size += by }

func (t *Txn) copied(bytes int) {
	t.copies += bytes
	t.moved += int64(bytes)
	t.held += bytes
	t.s.copying(bytes)
}

// TakeCopied returns how many bytes of strings were copied since its last call, or since BeginCall.
func (t *Txn) TakeCopied() int {
	copies := t.copies
	t.copies = 0
	return copies
}

func (t *Txn) setDeadline(db int, key string, at int64) {
	if e := t.mutable(db, key); e != nil {
		e.deadline = at
		t.stamp(e, true)
	}
}

// own copies only the key: its buffer is used again in scripts, but never holds a value.
func (t *Txn) own(key, value string) (ownedKey, ownedValue string) { return ownKey(key), value }

func (t *Txn) give(e *Entry, value string) { e.str = value }

func (t *Txn) grant(e *Entry, fresh bool) { t.tokens.grant(e, t.seq, fresh) }

func (t *Txn) stamp(e *Entry, leased bool) { e.stamp(t.seq, leased) }
