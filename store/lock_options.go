package store

import "github.com/lockstep-io/lockstep/store/redistext"

// lockWord is a word behind the owner in LOCK.ACQUIRE, LOCK.RENEW and LOCK.RELEASE.
type lockWord uint8

const (
	wordPX lockWord = iota
	wordWait
	wordToken
	wordLimit
	wordPermits
	wordMaxHold
	wordDelay
	wordUnchanged // a node that releases a lock for a client that has left: the number of the write set that granted it
	wordHolds     // a node that releases a lock for a connection that has ended: how many holds
	// The words from here on have no argument.
	wordReentrant
	wordShared
	wordSession // the connection's node renews and releases the lock
	wordAtLeast // a node that renews a lock: the lease does not become shorter
	wordQueue   // the client gets a ticket while it waits
	wordLapse   // a node that releases a lock for a connection that has ended: the delay of the lock begins
)

var lockWordNames = [...]string{wordPX: "px", wordWait: "wait", wordToken: "token", wordLimit: "limit", wordPermits: "permits", wordMaxHold: "maxhold",
	wordDelay: "delay", wordUnchanged: "unchanged", wordHolds: "holds", wordReentrant: "reentrant", wordShared: "shared", wordSession: "session",
	wordAtLeast: "atleast", wordQueue: "queue", wordLapse: "lapse"}

// lockWords is a set of words, one bit each.
type lockWords uint16

const (
	acquireWords lockWords = 1<<wordPX | 1<<wordWait | 1<<wordReentrant | 1<<wordShared | 1<<wordLimit | 1<<wordPermits | 1<<wordSession |
		1<<wordMaxHold | 1<<wordDelay | 1<<wordQueue
	renewWords   lockWords = 1<<wordPX | 1<<wordToken | 1<<wordAtLeast
	releaseWords lockWords = 1<<wordToken | 1<<wordUnchanged | 1<<wordHolds | 1<<wordLapse
)

// lockOptions are the words of a call.
type lockOptions struct {
	words lockWords
	args  [wordReentrant][]byte // the arguments behind the words
}

func (o *lockOptions) has(w lockWord) bool { return o.words>>w&1 != 0 }

// parseLockOptions parses the words behind the owner. ok is false for a word that allowed does not have, one without its argument, and one
// that comes twice.
func parseLockOptions(args [][]byte, allowed lockWords) (o lockOptions, ok bool) {
	for i := 0; i < len(args); i++ {
		w := lockWord(0)
		for int(w) < len(lockWordNames) && !equalFold(args[i], lockWordNames[w]) {
			w++
		}
		if int(w) == len(lockWordNames) || allowed>>w&1 == 0 || o.has(w) {
			return o, false
		}
		o.words |= 1 << w
		if w >= wordReentrant {
			continue
		}
		if i++; i == len(args) {
			return o, false
		}
		o.args[w] = args[i]
	}
	return o, true
}

// lockCall is a parsed call of LOCK.ACQUIRE or LOCK.RENEW.
type lockCall struct {
	lockOptions
	key   []byte
	owner string
	until int64 // the deadline of the lease that it asks for

	mode    lockMode
	permits int64
	delay   int64 // ms
	most    int64 // the latest deadline that renewals may set; 0: no limit
}

// parseLock parses the arguments of LOCK.ACQUIRE and LOCK.RENEW. They must have a time to live.
func (c *Ctx) parseLock(allowed lockWords) (l lockCall, fault *Reply) {
	o, ok := parseLockOptions(c.Args[3:], allowed)
	if !ok || !o.has(wordPX) {
		return l, &syntaxError
	}
	l = lockCall{lockOptions: o, key: c.Args[1], owner: c.Arg(2)}
	if l.owner == "" {
		return l, &noOwner
	}
	if l.until, fault = c.lockDeadline(o.args[wordPX]); fault != nil {
		return l, fault
	}
	return l, c.parseMode(&l)
}

// lockDeadline returns the deadline of a lease of so many ms.
func (c *Ctx) lockDeadline(ms []byte) (at int64, fault *Reply) {
	when, ok, e := c.expireTime(ms, unitPX)
	if !ok {
		r := Err(e)
		return 0, &r
	}
	return c.DeadlineAt(when), nil
}

// Bounds of a lock whose holders have leases of their own: each write to it names the lock and a holder.
const (
	MaxLockName = 1024      // bytes of the name, and of an owner
	maxDelay    = 3_600_000 // ms
)

// parseMode parses the words SHARED, LIMIT, PERMITS, MAXHOLD and DELAY.
func (c *Ctx) parseMode(l *lockCall) (fault *Reply) {
	l.permits = 1
	switch {
	case l.has(wordShared) && l.has(wordLimit):
		return &sharedAndLimit
	case l.has(wordPermits) && !l.has(wordLimit):
		return &permitsWithoutLimit
	case l.has(wordShared):
		l.mode = lockShared
	case l.has(wordLimit):
		n, ok := redistext.ParseInt(l.args[wordLimit])
		if !ok || n < 1 || n > maxPermits {
			return &badLimit
		}
		l.mode = limitOf(n)
		if l.has(wordPermits) {
			if l.permits, ok = redistext.ParseInt(l.args[wordPermits]); !ok || l.permits < 1 || l.permits > n {
				return &badPermits
			}
		}
	}
	if l.has(wordDelay) {
		var ok bool
		if l.delay, ok = redistext.ParseInt(l.args[wordDelay]); !ok || l.delay < 0 || l.delay > maxDelay {
			return &badDelay
		}
	}
	if l.has(wordMaxHold) {
		if l.most, fault = c.lockDeadline(l.args[wordMaxHold]); fault != nil {
			return fault
		}
		l.until = min(l.until, l.most)
	}
	if (l.typed() || l.has(wordWait)) && (len(l.key) > MaxLockName || len(l.owner) > MaxLockName) {
		return &longLockName
	}
	return nil
}

// typed reports whether the call asks for a lock of type lock.
func (l *lockCall) typed() bool {
	return l.mode != lockExclusive || l.has(wordMaxHold) || l.delay > 0
}

// lockWait returns how many ms a LOCK.ACQUIRE waits; 0 means that it does not wait.
func lockWait(o *lockOptions) (ms int64, fault *Reply) {
	if !o.has(wordWait) {
		return 0, nil
	}
	ms, ok := redistext.ParseInt(o.args[wordWait])
	switch {
	case !ok:
		return 0, &waitNotInteger
	case ms < 0:
		return 0, &timeoutNegative
	}
	return ms, nil
}

// minSessionLease is the least lease of a lock with SESSION, in ms: the node renews such locks once a second.
const minSessionLease = 3000

// SessionLease returns the lease in ms that a call of LOCK.ACQUIRE with SESSION asks for; ok is false without SESSION.
func SessionLease(args [][]byte) (ms int64, ok bool) {
	o, ok := parseLockOptions(args[3:], acquireWords)
	if !ok || !o.has(wordSession) {
		return 0, false
	}
	return redistext.ParseInt(o.args[wordPX])
}

// TakesTicket reports whether a call of a blocking command ends with a ticket when it has to wait (QUEUE).
func TakesTicket(cmd *Command, args [][]byte) bool {
	if cmd.Name != lockAcquire {
		return false
	}
	o, ok := parseLockOptions(args[3:], acquireWords)
	return ok && o.has(wordQueue)
}

// Ticket is the reply of a LOCK.ACQUIRE with a ticket: no token, for how many ms it waits, and no holds.
func Ticket(args [][]byte) Reply {
	o, _ := parseLockOptions(args[3:], acquireWords)
	ms, _ := lockWait(&o)
	return List(Zero, Int(ms), Zero)
}

var (
	noOwner             = Err(ErrNoOwner)
	waitNotInteger      = Err(ErrWaitNotInteger)
	noSession           = Err(ErrNoSession)
	shortSession        = Err(ErrShortSession)
	sharedAndLimit      = Err(ErrSharedAndLimit)
	permitsWithoutLimit = Err(ErrPermitsWithoutLimit)
	badLimit            = Err(ErrLockLimit)
	badPermits          = Err(ErrLockPermits)
	badDelay            = Err(ErrLockDelay)
	longLockName        = Err(ErrLockName)
	queueWithoutWait    = Err(ErrQueueWait)
	queueAndSession     = Err(ErrQueueSession)
)
