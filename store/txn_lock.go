package store

// hold makes an owner a holder of the lock at a key, or changes what it holds (see setHolder).
func (t *Txn) hold(db int, key []byte, mode lockMode, h holder, leased bool) {
	k := bytesToString(key)
	t.ws.takes()
	t.ws.begin(opHold, db)
	t.ws.newer = true
	t.ws.hold(k, mode, &h, leased)
	t.deadLock = nil
	setHolder(t, db, k, mode, h, leased)
}

// drop removes a holder of the lock at a key. Clients that wait for the lock may get it now.
func (t *Txn) drop(db int, key []byte, owner string) { t.dropBy(opDrop, db, key, owner) }

// dropLapsed is drop for a holder whose time is over.
func (t *Txn) dropLapsed(db int, key []byte, owner string) { t.dropBy(opLapse, db, key, owner) }

func (t *Txn) dropBy(o op, db int, key []byte, owner string) {
	k := bytesToString(key)
	t.ws.begin(o, db)
	t.ws.newer = true
	t.ws.str(k)
	t.ws.str(owner)
	dropHolder(t, db, k, owner)
	t.noteFree(db, string(key))
}

// lapseHolder takes the lock from a holder, which keeps its place for its delay. Its owner may take the lock again, and may be waiting for it.
func (t *Txn) lapseHolder(db int, key []byte, mode lockMode, h holder, leased bool) {
	h.holds = 0
	t.hold(db, key, mode, h, leased)
	t.noteFree(db, string(key))
}

// tell marks that the holders of the lock at a key have been asked to release it.
func (t *Txn) tell(db int, key []byte) {
	k := bytesToString(key)
	t.ws.begin(opTell, db)
	t.ws.newer = true
	t.ws.str(k)
	t.ws.int(int64(t.tokens.last))
	tellHolders(t, db, k, t.tokens.last)
}

// ended reports whether a holder has lost its place.
func (t *Txn) ended(h *holder) bool { return t.past(h.end(), h.leased) }

// holding reports whether a holder holds the lock, and not only keeps its place. If a reply may say that it does not, use foundHolding.
func (t *Txn) holding(h *holder) bool {
	return h != nil && h.holds > 0 && !t.past(h.deadline, h.leased)
}

// foundHolding returns the holder of a lock with a name, if it holds the lock, or nil. It records for ExpireSeen that the time of a holder is
// over: a next leader whose clock is behind must not find it again.
func (t *Txn) foundHolding(db int, e *Entry, owner string) *holder {
	h := e.holder(owner)
	if t.holding(h) {
		return h
	}
	if h != nil && h.holds > 0 && len(t.seenHolders) < maxSeen {
		t.seenHolders = append(t.seenHolders, LeasedKey{DB: db, Key: e.key, Owner: h.owner})
	}
	return nil
}

// expireSeenHolders is ExpireSeen for holders.
func (t *Txn) expireSeenHolders(bytes int) {
	from := t.ws.Size()
	for _, x := range t.seenHolders {
		e := t.peek(x.DB, x.Key)
		if h := e.holder(x.Owner); h != nil && t.ws.Size()-from+h.written(x.Key) <= bytes {
			t.settle(x.DB, e, h)
		}
	}
	t.seenHolders = t.seenHolders[:0]
}

// settle removes a holder that has lost its place, and lapses one whose lease is over.
func (t *Txn) settle(db int, e *Entry, h *holder) {
	switch key := stringBytes(e.key); {
	case t.ended(h):
		t.dropLapsed(db, key, h.owner)
	case h.holds > 0 && t.past(h.deadline, h.leased):
		t.lapseHolder(db, key, e.Lock().mode, *h, false)
	}
}

const (
	// lookAtHolders is how many holders of a lock settleDue looks at in one call.
	lookAtHolders = 100
	// deadHolders is how many holders a lock may have that lockDead looks at.
	deadHolders = 10_000
	// settleBytes is how many bytes a command writes to settle holders, in addition to its own writes.
	settleBytes = 8 << 10
)

// written is the size of a write that settles a holder, roughly.
func (h *holder) written(key string) int { return len(key) + len(h.owner) + 64 }

// lockDead reports whether all holders of a lock have lost their places. It returns false if these are very many: then settleDue removes them
// one part after the other.
func (t *Txn) lockDead(e *Entry) bool {
	l := e.Lock()
	if e == t.deadLock {
		return true
	}
	if !t.ended(l.first()) || !t.ended(l.last()) || l.Len() > deadHolders {
		return false
	}
	dead := true
	l.byNext.Scan(func(h *holder) bool {
		dead = t.ended(h)
		return dead
	})
	if dead {
		t.deadLock = e
	}
	return dead
}

// settleDue settles the holders of a lock whose time is over, as far as the given bytes suffice, but not all if they are many. It returns the
// entry of the key as it is then.
func (t *Txn) settleDue(db int, e *Entry, bytes int) *Entry {
	var due []*holder
	looked := 0
	e.Lock().byNext.Scan(func(h *holder) bool {
		if h.next() >= t.now.Lease {
			return false
		}
		if t.past(h.next(), h.leased) {
			due = append(due, h)
		}
		looked++
		return looked < lookAtHolders
	})
	from, key := t.ws.Size(), e.key
	for _, h := range due {
		if t.ws.Size()-from+h.written(key) > bytes {
			break
		}
		t.settle(db, e, h)
		if e = t.peek(db, key); e == nil {
			return nil
		}
	}
	return e
}

// lengthenHolder is Lengthen for the lease of one holder.
func (t *Txn) lengthenHolder(k LeasedKey, e *Entry, seq uint64, ms int64) {
	h := e.holder(k.Owner)
	if h == nil || h.leased != seq || t.now.Lease-h.end() > max(ms, 0) {
		return
	}
	longer := *h
	longer.told = addSaturating(h.told, ms)
	longer.deadline = max(h.deadline, longer.told)
	t.hold(k.DB, stringBytes(k.Key), e.Lock().mode, longer, true)
}

// promised returns the time until which the owner may believe that it holds the lock.
//
// MAXHOLD does not move: a renewal that it cuts short tells the owner the time until then. A late reply makes the deadline later, but the
// lateness of several replies does not add up: otherwise the lock would not end while they are late.
func (t *Txn) promised(h *holder) int64 { return max(h.deadline, t.gracedAt(h.told, h.leased)) }

// renewHolder is Renew for the lease of one holder.
func (t *Txn) renewHolder(k LeasedKey, e *Entry, seq, token uint64, at int64) (until int64, alive bool) {
	h := t.foundHolding(k.DB, e, k.Owner)
	if h == nil || h.token > max(seq, token) {
		return 0, false
	}
	until = k.Deadline
	if h.most != 0 {
		until = min(until, h.most)
	}
	until = addSaturating(until, max(t.now.Lease-at, 0))
	if h.deadline >= k.Deadline {
		longer := *h
		longer.told = until
		until = max(t.promised(h), until)
		longer.deadline = until
		t.hold(k.DB, stringBytes(k.Key), e.Lock().mode, longer, true)
	}
	return until, true
}

// holder returns a holder of a key of type lock, or nil.
func (e *Entry) holder(owner string) *holder {
	if e == nil || e.typ != TypeLock {
		return nil
	}
	return e.Lock().get(owner)
}

// until returns the latest time at which the key may expire, and the number of the write set that set it; 0 means never.
func (e *Entry) until() (at int64, leased uint64) {
	if e.typ != TypeLock {
		return e.deadline, e.leased
	}
	l := e.Lock()
	last, looked := l.last(), 0
	l.byNext.Descend(last, func(h *holder) bool { // if they are more, PTTL may be too short while the last of them has no delay
		if h.end() > last.end() {
			last = h
		}
		looked++
		return looked < lookAtHolders
	})
	return last.end(), last.leased
}
