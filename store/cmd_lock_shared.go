package store

// Locks of type lock: their holders have leases of their own.

// acquireLock takes a lock of type lock, if the others that hold it and those that wait for it leave room.
func (c *Ctx) acquireLock(l *lockCall, e *Entry) (reply Reply, granted bool) {
	lock, h := e.Lock(), e.holder(l.owner)
	switch {
	case c.holding(h):
		return c.holdAgain(l, lock, h)
	case h != nil && lock.Len() == 1: // the lock is free for its former holder
	case lock.mode != l.mode && lock.mode != lockExclusive && l.mode != lockExclusive:
		return Err(errLockMode(lock.mode)), false
	case !lock.admits(l, h):
		return Reply{}, false
	case (h == nil || l.permits > h.permits) && c.queued(l.key): // a former holder keeps its place, and so goes before those that wait
		return Reply{}, false
	}
	if h != nil {
		c.dropLapsed(c.DB, l.key, l.owner)
	}
	return c.join(l), true
}

// admits reports whether the owner may become a holder beside the others. own is its former hold, or nil.
func (l *Lock) admits(call *lockCall, own *holder) bool {
	others, used := l.Len(), l.used
	if own != nil {
		others, used = others-1, used-own.permits
	}
	if others == 0 {
		return true
	}
	if n, ok := l.mode.limit(); ok && call.mode == l.mode {
		return call.permits <= n-used
	}
	return l.mode == lockShared && call.mode == lockShared
}

// queued reports whether a call must wait behind the clients that wait for the lock already.
func (c *Ctx) queued(key []byte) bool {
	return c.Ready == nil && c.env.Queued != nil && c.env.Queued(c.DB, key)
}

// join makes the owner a holder.
func (c *Ctx) join(l *lockCall) Reply {
	c.hold(c.DB, l.key, l.mode, holder{owner: l.owner, permits: l.permits, holds: 1, deadline: l.until, told: l.until, delay: l.delay, most: l.most}, true)
	c.eventOn(eventModule, "lock.acquire")
	return c.grantedLock(l, 1)
}

// holdAgain takes a lock once more for an owner that holds it, or makes it a lock that the owner shares. The lease does not become shorter.
func (c *Ctx) holdAgain(l *lockCall, lock *Lock, h *holder) (reply Reply, granted bool) {
	shares := lock.mode == lockExclusive && l.mode == lockShared
	more := *h
	switch {
	case shares && h.holds > 1:
		return Err(ErrLockHolds), false
	case shares:
	case lock.mode == lockShared && l.mode == lockExclusive:
		return Err(ErrLockUpgrade), false
	case lock.mode != l.mode && lock.mode == lockExclusive:
		return Err(ErrLockForm), false
	case lock.mode != l.mode:
		return Err(errLockMode(lock.mode)), false
	case !l.has(wordReentrant):
		return Reply{}, false
	case h.permits != l.permits:
		return Err(ErrLockOtherPermits), false
	case h.holds == maxHolds:
		return Err(ErrOverflow), false
	default:
		more.holds++
	}
	if l.has(wordDelay) {
		more.delay = l.delay
	}
	if l.most != 0 && more.most == 0 {
		more.most = max(l.most, c.promised(h))
	}
	l.until = max(l.until, c.promised(h))
	if c.prolong(&more, l.until) {
		l.until = max(more.most, c.now.Lease)
	}
	c.hold(c.DB, l.key, l.mode, more, true)
	c.eventOn(eventModule, "lock.acquire")
	if shares {
		c.noteFree(c.DB, string(l.key))
	}
	return c.grantedLock(l, more.holds), true
}

// share makes a lock of another form a lock that its owner shares, if the call asks for that. The lease does not become shorter.
func (c *Ctx) share(l *lockCall, e *Entry) (reply Reply, granted bool) {
	holds := Flag(e.typ == TypeString && e.str == l.owner).Int
	if e.typ == TypeHash {
		n, fault := e.holds(l.owner)
		if fault != nil {
			return *fault, false
		}
		holds = n
	}
	switch {
	case holds == 0 || l.mode != lockShared && !l.has(wordReentrant):
		return Reply{}, false
	case l.mode != lockShared:
		return Err(ErrLockForm), false
	case holds > 1 || e.typ == TypeHash && e.Fields().Len() > 1:
		return Err(ErrLockHolds), false
	case e.deadline == 0:
		return Err(ErrLockEndless), false
	}
	l.until = max(l.until, c.graced(e))
	if l.most != 0 {
		l.most = max(l.most, l.until)
	}
	reply = c.join(l)
	c.noteFree(c.DB, string(l.key))
	return reply, true
}

// prolong lets the lease of a holder end at a time, unless MAXHOLD ends it before; ends reports that it does.
func (c *Ctx) prolong(h *holder, until int64) (ends bool) {
	if h.most == 0 || until <= h.most {
		h.deadline, h.told = until, until
		return false
	}
	h.deadline, h.told = max(h.most, c.promised(h)), h.most
	return true
}

// renewHold is LOCK.RENEW for a lock of type lock.
func (c *Ctx) renewHold(l *lockCall, e *Entry) Reply {
	lock, h := e.Lock(), *e.holder(l.owner)
	if l.has(wordAtLeast) {
		l.until = max(l.until, c.promised(&h))
	}
	ends := c.prolong(&h, l.until)
	c.hold(c.DB, l.key, lock.mode, h, true)
	c.eventOn(eventModule, "lock.renew")
	return renewed(h.token <= lock.asked || ends)
}

// releaseHold releases n holds of a holder. After lapses, with its last hold, it keeps its place for its delay.
func (c *Ctx) releaseHold(e *Entry, h *holder, n int64, lapses bool) Reply {
	key, left := c.Args[1], *h
	if left.holds = max(h.holds-n, 0); left.holds > 0 {
		c.hold(c.DB, key, e.Lock().mode, left, false)
		c.eventOn(eventModule, "lock.release")
		return Int(left.holds)
	}
	if lapses && h.delay > 0 {
		left.deadline = min(h.deadline, c.now.Lease)
		left.told = left.deadline
		c.lapseHolder(c.DB, key, e.Lock().mode, left, true)
	} else {
		c.drop(c.DB, key, h.owner)
	}
	c.eventOn(eventModule, "lock.release")
	c.eventIfGone(key)
	return Zero
}

// tokenOf returns the token of an owner of a lock. The holders of a lock of type lock have tokens of their own.
func (c *Ctx) tokenOf(e *Entry, owner string) uint64 {
	if h := e.holder(owner); h != nil {
		return max(h.token, c.tokens.swaps[c.DB])
	}
	return c.Token(c.DB, e)
}

// cmdLockRevoke replies how many holders were told. A holder learns it from the reply of LOCK.RENEW, and from the message.
func cmdLockRevoke(c *Ctx) Reply {
	if !equalFold(c.Args[2], "reason") {
		return syntaxError
	}
	if !c.TokensCounted() {
		return noTokens
	}
	key := c.Args[1]
	e := c.LookupWrite(c.DB, key)
	told := int64(0)
	switch {
	case e == nil:
		return Zero
	case e.typ == TypeLock:
		told = c.countHolding(e.Lock())
	case e.typ == TypeString:
		told = 1
	case e.typ == TypeHash:
		told = int64(e.Fields().Len())
		if _, mode := e.Fields().Get("mode"); mode {
			told-- // Redisson's read-write lock
		}
	default:
		return wrongType
	}
	if told > 0 {
		c.tell(c.DB, key)
		c.judged(LockRevoked, c.kindOf(e), c.Args[3], int(told))
		c.Publish(Channel, eventChannel(c.DB, "revoked"), revokedMessage(key, c.Args[3], c.tokens.last))
	}
	return Int(told)
}

// countHolding returns how many owners hold a lock.
func (c *Ctx) countHolding(l *Lock) (n int64) {
	l.byOwner.Scan(func(h *holder) bool {
		c.work(1)
		n += Flag(c.holding(h)).Int
		return true
	})
	return n
}
