package store

// expire deletes a key that has expired.
func (t *Txn) expire(db int, key string) {
	t.ws.begin(opExpire, db)
	t.ws.str(key)
	t.remove(db, key)
	t.lapse(lapsedKey{db, key})
	t.notify(eventExpired, "expired", db, key)
}

// lookAtDue limits ExpireDue to lookAtDue*limit keys of each database: any number of keys may be in their grace.
const lookAtDue = 20

// ExpireDue deletes up to limit keys, of at most longest bytes, whose deadline and grace have passed, until the deletions take the given
// bytes. It settles the holders of locks whose time is over.
func (t *Txn) ExpireDue(limit, bytes, longest int) (deleted int) {
	from := t.ws.Size()
	var due []*Entry
	for db := range t.views {
		ks := t.views[db].base
		if ks == nil || deleted >= limit {
			continue
		}
		due = due[:0]
		looked := 0
		ks.deadlines.before(t.now.Lease, func(e *Entry) bool {
			if len(e.key) <= longest && (t.dead(e) || e.typ == TypeLock) { // a key that stays, such as one in its grace, does not count towards the limit
				due = append(due, e)
			}
			looked++
			return deleted+len(due) < limit && looked < lookAtDue*limit
		})
		for _, x := range due {
			if t.ws.Size()-from >= bytes {
				return deleted
			}
			switch e := t.peek(db, x.key); {
			case e == nil:
			case t.dead(e):
				t.expire(db, x.key)
				deleted++
			case e.typ == TypeLock:
				t.settleDue(db, e, bytes-(t.ws.Size()-from))
			}
		}
	}
	return deleted
}

// maxSeen is the largest number of expired keys that a Txn records for ExpireSeen.
const maxSeen = 1 << 13

// swapSeen lets the record for ExpireSeen follow the exchange of two databases.
func (t *Txn) swapSeen(a, b int) {
	swap := func(db *int) {
		switch *db {
		case a:
			*db = b
		case b:
			*db = a
		}
	}
	for i := range t.seen {
		swap(&t.seen[i].db)
	}
	for i := range t.seenHolders {
		swap(&t.seenHolders[i].DB)
	}
}

// ExpireSeen deletes the keys that foundDead has recorded, as far as bytes suffices: a next leader whose clock is behind must not find them
// again.
func (t *Txn) ExpireSeen(bytes int) {
	from := t.ws.Size()
	for _, x := range t.seen {
		if t.ws.Size()-from+len(x.key) > bytes {
			continue
		}
		if e := t.peek(x.db, x.key); e != nil && t.dead(e) {
			t.expire(x.db, x.key)
		}
	}
	t.seen = t.seen[:0]
	t.expireSeenHolders(bytes - (t.ws.Size() - from))
}
