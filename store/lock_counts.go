package store

import "slices"

// What is counted of locks for /metrics, by kind.

// LockKinds returns the names of all kinds of locks.
func LockKinds() []string { return slices.Clone(lockKinds) }

// AskedKind returns the kind of lock that a call of LOCK.ACQUIRE asks for; "" if its words are wrong.
func AskedKind(args [][]byte) string {
	o, ok := parseLockOptions(args[min(3, len(args)):], acquireWords)
	switch {
	case !ok:
		return ""
	case o.has(wordShared):
		return kindShared
	case o.has(wordLimit):
		return kindLimit
	case o.has(wordMaxHold) || o.has(wordDelay):
		return kindExclusive
	case o.has(wordReentrant):
		return kindReentrant
	}
	return kindPlain
}

// missed notes that a command wanted a lock that somebody holds: e, if it is a lock.
func (c *Ctx) missed(e *Entry) {
	if c.env.Missed == nil || e == nil {
		return
	}
	if kind := c.kindOf(e); kind != "" {
		c.env.Missed(kind)
	}
}
