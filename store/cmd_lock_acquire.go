package store

import (
	"strconv"
	"strings"

	"lockstep/store/redistext"
)

// The native lock. It has the form of other clients' locks, so that one name excludes all of them: a plain lock is a string whose value is
// the owner, as `SET key owner NX PX` makes it, and a reentrant lock is Redisson's hash of owners and how often each holds the lock.

// acquireCommands are the commands of the native lock.
var acquireCommands = []Command{
	{
		Name: lockAcquire, Arity: -5, Flags: Write | DenyOOM | Fast | Blocking, Group: "lock", Since: "0.2.0",
		Keys:    firstKey(KeyRW | KeyAccess | KeyInsert),
		Summary: "Takes a lock; waits for it in a queue.",
		Usage:   "key owner PX milliseconds [WAIT milliseconds] [REENTRANT] [SESSION]", Run: cmdLockAcquire,
	},
	{
		Name: "lock.renew", Arity: -5, Flags: Write | Fast, Group: "lock", Since: "0.2.0",
		Keys:    firstKey(KeyRW | KeyAccess | KeyUpdate),
		Summary: "Lets the lease of a lock begin anew.",
		Usage:   "key owner PX milliseconds [TOKEN token]", Run: cmdLockRenew,
	},
	{
		Name: "lock.release", Arity: -3, Flags: Write | Fast, Group: "lock", Since: "0.2.0",
		Keys:    firstKey(KeyRW | KeyAccess | KeyDelete),
		Summary: "Releases a lock.",
		Usage:   "key owner [TOKEN token]", Run: cmdLockRelease,
	},
}

// lockOptions are the words of LOCK.ACQUIRE, LOCK.RENEW and LOCK.RELEASE.
type lockOptions struct {
	px, wait, token []byte // the argument behind the word; nil: the word is missing
	holds           []byte // a node that releases a lock for a connection that has ended: how many holds
	atLeast         bool   // a node that renews a lock: the lease does not become shorter
	unchanged       []byte // a node that releases a lock for a client that has left: the number of the write set that granted it
	reentrant       bool
	session         bool // the connection's node renews and releases the lock
}

// lockWords is a set of such words.
type lockWords uint16

const (
	wordPX lockWords = 1 << iota
	wordWait
	wordReentrant
	wordToken
	wordSession
	wordUnchanged
	wordHolds
	wordAtLeast

	acquireWords = wordPX | wordWait | wordReentrant | wordSession
	renewWords   = wordPX | wordToken | wordAtLeast
	releaseWords = wordToken | wordUnchanged | wordHolds
)

// parseLockOptions parses the words behind the owner. ok is false for a word that allowed does not have, one without its argument, and one
// that comes twice.
func parseLockOptions(args [][]byte, allowed lockWords) (o lockOptions, ok bool) {
	for i := 0; i < len(args); i++ {
		var value *[]byte
		switch word := args[i]; {
		case allowed&wordPX != 0 && equalFold(word, "px"):
			value = &o.px
		case allowed&wordWait != 0 && equalFold(word, "wait"):
			value = &o.wait
		case allowed&wordToken != 0 && equalFold(word, "token"):
			value = &o.token
		case allowed&wordUnchanged != 0 && equalFold(word, "unchanged"):
			value = &o.unchanged
		case allowed&wordHolds != 0 && equalFold(word, "holds"):
			value = &o.holds
		case allowed&wordAtLeast != 0 && equalFold(word, "atleast") && !o.atLeast:
			o.atLeast = true
			continue
		case allowed&wordReentrant != 0 && equalFold(word, "reentrant") && !o.reentrant:
			o.reentrant = true
			continue
		case allowed&wordSession != 0 && equalFold(word, "session") && !o.session:
			o.session = true
			continue
		}
		if i++; value == nil || *value != nil || i == len(args) {
			return o, false
		}
		*value = args[i]
	}
	return o, true
}

// lockCall is a parsed call of LOCK.ACQUIRE or LOCK.RENEW.
type lockCall struct {
	lockOptions
	key   []byte
	owner string
	until int64 // the deadline of the lease that it asks for
}

// parseLock parses the arguments of LOCK.ACQUIRE and LOCK.RENEW. They must have a time to live.
func (c *Ctx) parseLock(allowed lockWords) (l lockCall, fault *Reply) {
	o, ok := parseLockOptions(c.Args[3:], allowed)
	if !ok || o.px == nil {
		return l, &syntaxError
	}
	l = lockCall{lockOptions: o, key: c.Args[1], owner: c.Arg(2)}
	if l.owner == "" {
		return l, &noOwner
	}
	when, ok, e := c.expireTime(o.px, unitPX)
	if !ok {
		r := Err(e)
		return l, &r
	}
	l.until = c.DeadlineAt(when)
	return l, nil
}

// lockWait returns how many ms a LOCK.ACQUIRE waits; 0 means that it does not wait.
func lockWait(arg []byte) (ms int64, fault *Reply) {
	if arg == nil {
		return 0, nil
	}
	ms, ok := redistext.ParseInt(arg)
	switch {
	case !ok:
		return 0, &waitNotInteger
	case ms < 0:
		return 0, &timeoutNegative
	}
	return ms, nil
}

var (
	noOwner        = Err(ErrNoOwner)
	waitNotInteger = Err(ErrWaitNotInteger)
	noSession      = Err(ErrNoSession)
	shortSession   = Err(ErrShortSession)
)

// minSessionLease is the least lease of a lock with SESSION, in ms: the node renews such locks once a second.
const minSessionLease = 3000

// SessionLease returns the lease in ms that a call of LOCK.ACQUIRE with SESSION asks for; ok is false without SESSION.
func SessionLease(args [][]byte) (ms int64, ok bool) {
	o, ok := parseLockOptions(args[3:], acquireWords)
	if !ok || !o.session {
		return 0, false
	}
	return redistext.ParseInt(o.px)
}

// notGranted is the reply of a LOCK.ACQUIRE that does not get the lock.
var notGranted = Reply{Kind: NullArray}

func cmdLockAcquire(c *Ctx) Reply {
	l, fault := c.parseLock(acquireWords)
	if fault != nil {
		return *fault
	}
	wait, fault := lockWait(l.wait)
	if fault != nil {
		return *fault
	}
	switch {
	case l.session && (c.InScript || c.InMulti):
		return noSession
	case l.session && l.until-c.now.Lease < minSessionLease:
		return shortSession
	case !c.TokensCounted():
		return noTokens
	}
	e := c.LookupWrite(c.DB, l.key)
	reply, granted := c.acquire(&l, e)
	if granted || reply.IsError() && (c.Ready == nil && !c.Waits || reply.Str != wrongType.Str) {
		return reply
	}
	if wait > 0 {
		c.Wait = &Wait{DB: c.DB, Keys: [][]byte{l.key}, Type: TypeFree, Timeout: wait, Owner: l.owner}
	}
	return notGranted
}

// acquire takes the lock, whose entry is e or nil, if it is free or if the owner may take it once more. The reply of a lock that is
// not granted is an error or none.
func (c *Ctx) acquire(l *lockCall, e *Entry) (reply Reply, granted bool) {
	switch {
	case e == nil && l.reentrant:
		c.HashSet(c.DB, l.key, l.owner, "1")
		c.SetDeadline(c.DB, l.key, l.until)
		c.eventOn(eventHash, "hincrby") // as by Redisson
		c.eventOn(eventGeneric, "expire")
		return c.grantedLock(l, 1), true
	case e == nil:
		c.SetString(c.DB, l.key, l.owner, l.until)
		c.eventOn(eventString, "set")
		c.eventOn(eventGeneric, "expire")
		return c.grantedLock(l, 1), true
	case e.typ == TypeString:
		if l.reentrant && e.str == l.owner {
			return Err(ErrLockPlain), false
		}
	case e.typ != TypeHash:
		return wrongType, false
	case l.reentrant:
		return c.acquireAgain(l, e)
	default:
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
	return List(Int(int64(c.Token(c.DB, c.Txn.Lookup(c.DB, l.key)))), Int(ttl), Int(holds))
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
	default:
		fault = &wrongType
	}
	if token != nil && c.Token(c.DB, e) != uint64(want) {
		holds = 0
	}
	return e, holds, fault
}

func cmdLockRenew(c *Ctx) Reply {
	l, fault := c.parseLock(renewWords)
	if fault != nil {
		return *fault
	}
	e, holds, fault := c.held(l.owner, l.token)
	switch {
	case fault != nil:
		return *fault
	case holds == 0:
		return Zero
	case l.atLeast && e.deadline == 0:
		return One
	case l.atLeast:
		l.until = max(l.until, c.graced(e))
	}
	c.SetDeadline(c.DB, l.key, l.until)
	c.eventOn(eventGeneric, "expire")
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
	n := int64(1)
	if o.holds != nil {
		if n, ok = redistext.ParseInt(o.holds); !ok || n < 1 {
			return notInteger
		}
	}
	e, holds, fault := c.held(owner, o.token)
	switch {
	case fault != nil:
		return *fault
	case holds == 0 || o.unchanged != nil && !c.unchangedSince(e, o.unchanged):
		return Nil
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

// unchangedSince reports whether an entry is as the write set with the number seq has left it, but for a longer lease.
func (c *Ctx) unchangedSince(e *Entry, seq []byte) bool {
	changed := e.changed
	if c.env.Corrected != nil {
		changed = c.env.Corrected(changed)
	}
	return strconv.FormatUint(changed, 10) == string(seq)
}

// unlockChannel is the channel on which Redisson tells the clients that wait for a lock of its release.
func unlockChannel(key string) string {
	if strings.Contains(key, "{") {
		return "redisson_lock__channel:" + key
	}
	return "redisson_lock__channel:{" + key + "}"
}
