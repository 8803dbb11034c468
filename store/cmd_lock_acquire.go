package store

import (
	"strconv"

	"github.com/lockstep-io/lockstep/store/redistext"
)

// The native lock. It has the form of other clients' locks, so that one name excludes all of them: a plain lock is a string whose value is
// the owner, as `SET key owner NX PX` makes it, and a reentrant lock is Redisson's hash of owners and how often each holds the lock. With
// SHARED, LIMIT, MAXHOLD or DELAY it is of type lock (Lock), and excludes the others because the key exists.

// acquireCommands are the commands of the native lock.
var acquireCommands = []Command{
	{
		Name: lockAcquire, Arity: -5, Flags: Write | DenyOOM | Fast | Blocking, Group: "lock", Since: "0.2.0", Newer: true,
		Keys:    firstKey(KeyRW | KeyAccess | KeyInsert),
		Summary: "Takes a lock; waits for it in a queue.",
		Usage: "key owner PX milliseconds [WAIT milliseconds] [REENTRANT] [SHARED] [LIMIT limit [PERMITS permits]] [SESSION] " +
			"[MAXHOLD milliseconds] [DELAY milliseconds] [QUEUE]", Run: cmdLockAcquire,
	},
	{
		Name: "lock.renew", Arity: -5, Flags: Write | Fast, Group: "lock", Since: "0.2.0", Newer: true,
		Keys:    firstKey(KeyRW | KeyAccess | KeyUpdate),
		Summary: "Lets the lease of a lock begin anew.",
		Usage:   "key owner PX milliseconds [TOKEN token]", Run: cmdLockRenew,
	},
	{
		Name: "lock.release", Arity: -3, Flags: Write | Fast, Group: "lock", Since: "0.2.0", Newer: true,
		Keys:    firstKey(KeyRW | KeyAccess | KeyDelete),
		Summary: "Releases a lock.",
		Usage:   "key owner [TOKEN token]", Run: cmdLockRelease,
	},
	{
		Name: "lock.revoke", Arity: 4, Flags: Write | Fast, Group: "lock", Since: "0.2.0", Newer: true,
		Keys:    firstKey(KeyRW | KeyUpdate),
		Summary: "Asks the holders of a lock to release it.",
		Usage:   "key REASON text", Run: cmdLockRevoke,
	},
}

// notGranted is the reply of a LOCK.ACQUIRE that does not get the lock.
var notGranted = Reply{Kind: NullArray}

func cmdLockAcquire(c *Ctx) Reply {
	l, fault := c.parseLock(acquireWords)
	if fault != nil {
		return *fault
	}
	wait, fault := lockWait(&l.lockOptions)
	if fault != nil {
		return *fault
	}
	switch {
	case l.has(wordQueue) && wait == 0:
		return queueWithoutWait
	case l.has(wordQueue) && l.has(wordSession):
		return queueAndSession
	case l.has(wordSession) && (c.InScript || c.InMulti):
		return noSession
	case l.has(wordSession) && l.until-c.now.Lease < minSessionLease:
		return shortSession
	case !c.TokensCounted():
		return noTokens
	}
	e := c.LookupWrite(c.DB, l.key)
	reply, granted := c.acquire(&l, e)
	if granted && l.has(wordQueue) && (c.Ready != nil || c.Waits) {
		c.Publish(Channel, grantedChannel(c.DB, l.owner), grantedMessage(l.key, reply.Elems))
	}
	if granted || reply.IsError() && (c.Ready == nil && !c.Waits || reply.Str != wrongType.Str) {
		return reply
	}
	if wait == 0 {
		c.missed(e)
		c.askedInVain(e, l.owner)
	} else {
		c.Wait = &Wait{DB: c.DB, Keys: [][]byte{l.key}, Type: TypeFree, Timeout: wait, Owner: l.owner, Shared: l.mode == lockShared, Ticket: l.has(wordQueue)}
	}
	return notGranted
}

// acquire takes the lock, whose entry is e or nil, if it is free or if the owner may take it once more. The reply of a lock that is
// not granted is an error or none.
func (c *Ctx) acquire(l *lockCall, e *Entry) (reply Reply, granted bool) {
	reentrant := l.has(wordReentrant)
	switch {
	case e == nil && l.typed():
		return c.join(l), true
	case e == nil && reentrant:
		c.HashSet(c.DB, l.key, l.owner, "1")
		c.Mark(c.DB, l.key, formLock)
		c.SetDeadline(c.DB, l.key, l.until)
		c.eventOn(eventHash, "hincrby") // as by Redisson
		c.eventOn(eventGeneric, "expire")
		return c.grantedLock(l, 1), true
	case e == nil:
		c.SetLock(c.DB, l.key, l.owner, l.until)
		c.eventOn(eventString, "set")
		c.eventOn(eventGeneric, "expire")
		return c.grantedLock(l, 1), true
	case e.typ == TypeLock:
		return c.acquireLock(l, e)
	case e.typ != TypeString && e.typ != TypeHash:
		return wrongType, false
	case l.typed():
		return c.share(l, e)
	case e.typ == TypeString && reentrant && e.str == l.owner:
		return Err(ErrLockPlain), false
	case e.typ == TypeHash && reentrant:
		return c.acquireAgain(l, e)
	case e.typ == TypeHash:
		holds, fault := e.holds(l.owner)
		if holds > 0 {
			return Err(ErrLockReentrant), false
		}
		return orNone(fault), false
	}
	return Reply{}, false
}

// acquireAgain takes a reentrant lock once more, if the owner holds it already. The lease does not become shorter.
func (c *Ctx) acquireAgain(l *lockCall, e *Entry) (reply Reply, granted bool) {
	holds, fault := e.holds(l.owner)
	if fault != nil || holds == 0 {
		return orNone(fault), false
	}
	if holds == maxHolds {
		return Err(ErrOverflow), false
	}
	c.HashSet(c.DB, l.key, l.owner, strconv.FormatInt(holds+1, 10))
	c.eventOn(eventHash, "hincrby")
	if e.deadline == 0 {
		l.until = 0 // the lock has no end
		return c.grantedLock(l, holds+1), true
	}
	l.until = max(l.until, c.graced(e))
	c.SetDeadline(c.DB, l.key, l.until)
	c.eventOn(eventGeneric, "expire")
	return c.grantedLock(l, holds+1), true
}

// maxHolds is how often an owner may hold a reentrant lock.
const maxHolds = 1<<53 - 1

func orNone(fault *Reply) Reply {
	if fault == nil {
		return Reply{}
	}
	return *fault
}

// grantedLock is the reply of LOCK.ACQUIRE: the token, the time to live in ms or -1, and how often the owner holds the lock.
func (c *Ctx) grantedLock(l *lockCall, holds int64) Reply {
	ttl := int64(-1)
	if l.until != 0 {
		ttl = max(l.until-c.now.Lease, 0)
	}
	return List(Int(int64(c.tokenOf(c.Txn.Lookup(c.DB, l.key), l.owner))), Int(ttl), Int(holds))
}

// holds returns how often an owner holds a reentrant lock. A hash with the field mode is Redisson's read-write lock, which counts in another
// way. But an owner may be called mode, too: then the field has its holds.
func (e *Entry) holds(owner string) (n int64, fault *Reply) {
	text, ok := e.Fields().Get(owner)
	if !ok {
		return 0, nil
	}
	if _, other := e.Fields().Get("mode"); other && owner != "mode" {
		return 0, &otherLock
	}
	n, ok = redistext.ParseInt(stringBytes(text))
	if !ok || n < 1 || n > maxHolds {
		return 0, &otherLock
	}
	return n, nil
}

var otherLock = Err(ErrLockOther)

// held looks up the lock at Args[1] for RENEW and RELEASE, and returns how often its owner holds it: 0 if the owner does not hold it, or
// if the lock has another token.
func (c *Ctx) held(owner string, token []byte) (e *Entry, holds int64, fault *Reply) {
	want := int64(0)
	if token != nil {
		if want, fault = parseToken(token); fault != nil {
			return nil, 0, fault
		}
		if !c.TokensCounted() {
			return nil, 0, &noTokens
		}
	}
	e = c.LookupWrite(c.DB, c.Args[1])
	switch {
	case e == nil:
		return nil, 0, nil
	case e.typ == TypeString:
		holds = Flag(e.str == owner).Int
	case e.typ == TypeHash:
		holds, fault = e.holds(owner)
	case e.typ == TypeLock:
		if h := c.foundHolding(c.DB, e, owner); h != nil {
			holds = h.holds
		}
	default:
		fault = &wrongType
	}
	if token != nil && c.tokenOf(e, owner) != uint64(want) {
		holds = 0
	}
	return e, holds, fault
}

func cmdLockRenew(c *Ctx) Reply {
	l, fault := c.parseLock(renewWords)
	if fault != nil {
		return *fault
	}
	e, holds, fault := c.held(l.owner, l.args[wordToken])
	switch {
	case fault != nil:
		return *fault
	case holds == 0:
		return Zero
	case e.typ == TypeLock:
		return c.renewHold(&l, e)
	case !l.has(wordAtLeast):
		c.renewLock(&l)
	case e.deadline != 0:
		l.until = max(l.until, c.graced(e))
		c.renewLock(&l)
	}
	return renewed(e.form&formTold != 0)
}

func (c *Ctx) renewLock(l *lockCall) {
	c.SetDeadline(c.DB, l.key, l.until)
	c.eventOn(eventGeneric, "expire")
}

// renewed is the reply of LOCK.RENEW; asked means that the owner should release the lock.
func renewed(asked bool) Reply {
	if asked {
		return Int(2)
	}
	return One
}

// cmdLockRelease replies how often the owner still holds the lock, or nil if the owner did not hold it.
func cmdLockRelease(c *Ctx) Reply {
	o, ok := parseLockOptions(c.Args[3:], releaseWords)
	if !ok {
		return syntaxError
	}
	key, owner := c.Args[1], c.Arg(2)
	if owner == "" {
		return noOwner
	}
	if o.words == 0 && c.env.GiveUp != nil {
		c.env.GiveUp(c.DB, bytesToString(key), owner) // before the lock is free: it must not go to who has just released it
	}
	n := int64(1)
	if o.has(wordHolds) {
		if n, ok = redistext.ParseInt(o.args[wordHolds]); !ok || n < 1 {
			return notInteger
		}
	}
	e, holds, fault := c.held(owner, o.args[wordToken])
	switch {
	case fault != nil:
		return *fault
	case holds == 0 || o.has(wordUnchanged) && !c.unchangedSince(e, owner, o.args[wordUnchanged]):
		return Nil
	case e.typ == TypeLock:
		return c.releaseHold(e, e.holder(owner), n, o.has(wordLapse))
	case holds > n:
		c.HashSet(c.DB, key, owner, strconv.FormatInt(holds-n, 10))
		c.eventOn(eventHash, "hincrby")
		return Int(holds - n)
	}
	reentrant := e.typ == TypeHash
	if reentrant && e.Fields().Len() > 1 {
		c.HashDelete(c.DB, key, owner)
		c.eventOn(eventHash, "hdel")
		return Zero
	}
	c.Delete(c.DB, key)
	c.eventOn(eventGeneric, "del")
	if reentrant {
		c.Publish(Channel, unlockChannel(bytesToString(key)), "0")
	}
	return Zero
}

// unchangedSince reports whether a lock is as the write set with the number seq has left it, but for a longer lease. Of a lock with holders,
// only the owner's hold counts.
func (c *Ctx) unchangedSince(e *Entry, owner string, seq []byte) bool {
	changed := e.changed
	if h := e.holder(owner); h != nil {
		changed = h.changed
	}
	if c.env.Corrected != nil {
		changed = c.env.Corrected(changed)
	}
	return strconv.FormatUint(changed, 10) == string(seq)
}

// unlockChannel is the channel on which Redisson tells the clients that wait for a lock of its release.
func unlockChannel(key string) string {
	return "redisson_lock__channel:" + braced(key)
}
