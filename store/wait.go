package store

import (
	"bytes"
	"math"
	"math/big"

	"github.com/lockstep-io/lockstep/store/redistext"
)

// How a command waits. A command that finds no element sets Ctx.Wait, and returns the reply for transactions and scripts, which cannot
// wait. Elsewhere the caller drops the reply and keeps the Wait. When Txn.TakeReady reports one of Wait.Keys, or all, the caller runs the
// command again with Ctx.Ready, and the command may set Ctx.Wait again. After Wait.Timeout the caller replies WaitTimedOut.

// Wait describes what a blocking command waits for.
type Wait struct {
	DB      int
	Keys    [][]byte // the arguments that are keys
	Type    Type     // the type that a key must get, or TypeFree
	Timeout int64    // ms from the start of the command; 0 means no timeout
	Owner   string   // the owner that waits for a lock; "" if Type is not TypeFree
	Shared  bool     // it will share the lock
	Ticket  bool     // its client has a ticket (QUEUE)
}

// WaitTimedOut is the reply to a command whose wait has timed out.
var WaitTimedOut = Reply{Kind: NullArray}

// ReadyKey is a key that became a list or a sorted set, or was deleted (TypeFree).
type ReadyKey struct {
	DB   int
	Key  string
	Type Type
}

// NoteFree says whether clients wait for locks: then TakeReady also returns deleted keys.
func (t *Txn) NoteFree(on bool) { t.freeing = on }

// mostFreed is how many keys TakeReady returns at most, roughly: if more are deleted, any key may be ready.
const mostFreed = 10_000

// noteFree notes that a key was deleted, if clients wait for locks.
func (t *Txn) noteFree(db int, key string) {
	switch {
	case !t.freeing:
	case len(t.ready) >= mostFreed:
		t.swapped = true
	default:
		t.ready = append(t.ready, ReadyKey{db, key, TypeFree})
	}
}

// TakeReady returns keys that became lists or sorted sets; all means any key. Serve blocked clients only after a whole command, transaction
// or script.
func (t *Txn) TakeReady() (keys []ReadyKey, all bool) {
	keys, all = t.ready, t.swapped
	t.ready, t.swapped = nil, false
	return keys, all
}

// wait sets Ctx.Wait: the command waits until one of the keys gets the type t, or until the timeout.
func (c *Ctx) wait(keys [][]byte, t Type, timeout int64) {
	c.Wait = &Wait{DB: c.DB, Keys: keys, Type: t, Timeout: timeout}
}

// firstOf returns the first key that exists; with Ctx.Ready, only that key counts. ok is false for another type, which a waiting client
// skips.
func (c *Ctx) firstOf(keys [][]byte, t Type) (key []byte, e *Entry, ok bool) {
	for _, k := range keys {
		if c.Ready != nil && !bytes.Equal(k, c.Ready) {
			continue
		}
		c.work(keySteps)
		if e := c.LookupWrite(c.DB, k); e != nil {
			if e.typ != t && (c.Ready != nil || c.Waits) {
				continue
			}
			return k, e, e.typ == t
		}
	}
	return nil, nil, true
}

// Waits reports whether a call of a blocking command may wait. LOCK.ACQUIRE without WAIT does not.
func Waits(cmd *Command, args [][]byte) bool {
	if cmd.Name != lockAcquire {
		return true
	}
	ms, ok := WaitTimeout(cmd, args)
	return ok && ms > 0
}

// TakesLock reports whether a blocking command waits for a lock, and so takes a lease.
func TakesLock(cmd *Command) bool { return cmd.Name == lockAcquire }

// lockAcquire is the name of the command that waits for a lock.
const lockAcquire = "lock.acquire"

// WaitTimeout returns how many ms a blocking command may wait; 0 means no limit. ok is false if the
// timeout is not valid.
func WaitTimeout(cmd *Command, args [][]byte) (ms int64, ok bool) {
	if cmd.Name == lockAcquire {
		o, ok := parseLockOptions(args[3:], acquireWords)
		ms, fault := lockWait(&o)
		return ms, ok && fault == nil
	}
	arg := args[len(args)-1]
	if cmd.Name == "blmpop" || cmd.Name == "bzmpop" {
		arg = args[1]
	}
	ms, fault := parseTimeout(arg)
	return ms, fault == nil
}

var thousand = new(big.Float).SetInt64(1000)

// parseTimeout parses a number of seconds and rounds it up to milliseconds.
func parseTimeout(arg []byte) (ms int64, fault *Reply) {
	seconds, ok := redistext.ParseLongDouble(bytesToString(arg))
	if !ok {
		return 0, &timeoutNotFloat
	}
	if seconds.IsInf() {
		return 0, &timeoutNegative
	}
	exact := new(big.Float).SetPrec(redistext.LongDoublePrec).Mul(seconds, thousand)
	ms, accuracy := exact.Int64()
	if ms == math.MaxInt64 || ms == math.MinInt64 {
		return 0, &timeoutNegative // Redis gives this error, too: its conversion to an integer overflows
	}
	if accuracy == big.Below {
		ms++
	}
	if ms < 0 {
		return 0, &timeoutNegative
	}
	return ms, nil
}

var (
	timeoutNotFloat = Err(ErrTimeoutNotFloat)
	timeoutNegative = Err(ErrTimeoutNegative)
)

// LockOwners calls fn with each owner of the lock at a key, until fn returns false. holds is false for one that only keeps its place.
func (t *Txn) LockOwners(db int, key []byte, fn func(owner string, holds bool) bool) {
	e := t.peek(db, bytesToString(key))
	switch {
	case e == nil || t.dead(e):
	case e.typ == TypeString:
		fn(e.str, true)
	case e.typ == TypeHash:
		e.Fields().Each(func(f Field) bool { return f.Name == "mode" || fn(f.Name, true) })
	case e.typ == TypeLock:
		e.Lock().byOwner.Scan(func(h *holder) bool { return fn(h.owner, t.holding(h)) })
	}
}

// LockShared reports whether the lock at a key is one that others than its holders could hold, too: then a client may wait for those in the
// queue before it. many means that a client that waits need not wait for each of the holders.
func (t *Txn) LockShared(db int, key []byte) (shared, many bool) {
	e := t.peek(db, bytesToString(key))
	if e == nil || e.typ != TypeLock {
		return false, false
	}
	n, limited := e.Lock().mode.limit()
	return e.Lock().mode == lockShared, limited && n > 1
}

// LapsedOwners returns owners of the lock at a key that only keep their places: each may take the lock again. It returns none if the lock has
// many holders.
func (t *Txn) LapsedOwners(db int, key []byte) (owners []string) {
	e := t.peek(db, bytesToString(key))
	if e == nil || e.typ != TypeLock || e.Lock().Len() > lookAtHolders {
		return nil
	}
	e.Lock().byOwner.Scan(func(h *holder) bool {
		if !t.holding(h) {
			owners = append(owners, h.owner)
		}
		return true
	})
	return owners
}

// HoldsLock reports whether an owner holds the lock of type lock at a key.
func (t *Txn) HoldsLock(db int, key []byte, owner string) bool {
	return t.holding(t.peek(db, bytesToString(key)).holder(owner))
}
