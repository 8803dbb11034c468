package tally

import (
	"sync/atomic"
	"time"
)

// End is why an owner holds a lock no more.
type End int

// The reasons.
const (
	Released End = iota
	Expired
	Forced
	Replaced // the key was overwritten
	Moved    // the key has got another name, under which a new lock has begun
)

// Outcome is what became of a client's wait for a lock.
type Outcome int

// The outcomes.
const (
	Got      Outcome = iota
	TimedOut         // WAIT was over
	Refused          // an error
	Left             // the client has left, or was unblocked
)

// Names of the values above, for labels.
var (
	Ends     = [...]string{"released", "expired", "forced", "replaced", "moved"}
	Outcomes = [...]string{"granted", "timeout", "error", "left"}
)

// OtherKind is the kind of locks whose kind the node does not know.
const OtherKind = "other"

// Locks counts what happens to locks, by kind. Its size does not depend on what clients do.
type Locks struct {
	kinds []string
	each  []LockKind
}

// LockKind is the counts of one kind of locks.
type LockKind struct {
	Granted, Renewed, Missed atomic.Uint64
	Ended                    [len(Ends)]atomic.Uint64
	Waited                   [len(Outcomes)]atomic.Uint64
	Waiting                  atomic.Int64
	Held, Wait               *Histogram
}

// NewLocks returns counts of these kinds and of OtherKind.
func NewLocks(kinds []string) *Locks {
	l := &Locks{kinds: append(append([]string(nil), kinds...), OtherKind)}
	l.each = make([]LockKind, len(l.kinds))
	for i := range l.each {
		l.each[i].Held, l.each[i].Wait = New(Human), New(Human)
	}
	return l
}

// of returns the counts of a kind.
func (l *Locks) of(kind string) *LockKind {
	for i, name := range l.kinds {
		if name == kind {
			return &l.each[i]
		}
	}
	return &l.each[len(l.each)-1]
}

// Granted notes that an owner has got a lock.
func (l *Locks) Granted(kind string) { l.of(kind).Granted.Add(1) }

// Renewed notes that an owner has got a later end of its lease.
func (l *Locks) Renewed(kind string) { l.of(kind).Renewed.Add(1) }

// Missed notes that a client wanted a lock that another one had.
func (l *Locks) Missed(kind string) { l.of(kind).Missed.Add(1) }

// Ended notes that an owner holds a lock no more. A negative time is unknown.
func (l *Locks) Ended(kind string, how End, held time.Duration) {
	k := l.of(kind)
	k.Ended[how].Add(1)
	if held >= 0 {
		k.Held.Took(held)
	}
}

// Waits notes that a client begins to wait for a lock. Waited must follow.
func (l *Locks) Waits(kind string) { l.of(kind).Waiting.Add(1) }

// Waited notes that a client waits no more.
func (l *Locks) Waited(kind string, how Outcome, d time.Duration) {
	k := l.of(kind)
	k.Waiting.Add(-1)
	k.Waited[how].Add(1)
	k.Wait.Took(d)
}

// Each calls fn for each kind.
func (l *Locks) Each(fn func(kind string, k *LockKind)) {
	for i := range l.each {
		fn(l.kinds[i], &l.each[i])
	}
}
