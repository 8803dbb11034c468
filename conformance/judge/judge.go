// Package judge decides from the replies to clients whether the servers kept the locks: no lock
// lost, held by two owners or shortened, no command executed twice.
//
// It never asks the servers what is right. It uses the acknowledgements and one clock, that of this
// process.
package judge

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// Fault is something that must not be.
type Fault string

const (
	LockLost     Fault = "acknowledged locks lost"
	TwoHolders   Fault = "double holders"
	LeaseShort   Fault = "leases that ended early"
	RanTwice     Fault = "duplicate executions"
	WriteLost    Fault = "acknowledged writes lost"
	ClientError  Fault = "errors at clients"
	StateDiffers Fault = "unequal states"
)

// Faults in the order of a report.
var Faults = []Fault{LockLost, TwoHolders, LeaseShort, RanTwice, WriteLost, ClientError, StateDiffers}

// maxTold is how many faults are told word for word.
const maxTold = 20

// Judge collects faults and counts what was looked at.
type Judge struct {
	tell func(format string, args ...any) // each fault, as it is found

	mu      sync.Mutex
	found   map[Fault]int
	told    []string
	counted map[string]int
}

// New returns a judge that tells each fault as it is found.
func New(tell func(string, ...any)) *Judge {
	return &Judge{tell: tell, found: map[Fault]int{}, counted: map[string]int{}}
}

// Fault notes that something was wrong.
func (j *Judge) Fault(f Fault, format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.found[f]++
	if len(j.told) < maxTold {
		j.told = append(j.told, string(f)+": "+fmt.Sprintf(format, args...))
		j.tell("%s FAULT %s", time.Now().UTC().Format(time.RFC3339Nano), j.told[len(j.told)-1])
	}
}

// Count counts operations and what was judged of them.
func (j *Judge) Count(what string, n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.counted[what] += n
}

// Found returns how often each fault was found, and the first ones word for word.
func (j *Judge) Found() (map[Fault]int, []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return maps.Clone(j.found), slices.Clone(j.told)
}

// Counted returns what was looked at.
func (j *Judge) Counted() map[string]int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return maps.Clone(j.counted)
}

// Holders knows which client holds each lock, as the clients believe. A client
// takes a lock here after it was granted, and drops it before it releases, so two
// entries at once are two holders for certain.
type Holders struct {
	j  *Judge
	mu sync.Mutex
	by map[string]string
}

// NewHolders returns holders of no lock.
func NewHolders(j *Judge) *Holders { return &Holders{j: j, by: map[string]string{}} }

// Take notes that a lock was granted.
func (h *Holders) Take(key, owner string) {
	h.mu.Lock()
	other, held := h.by[key]
	h.by[key] = owner
	h.mu.Unlock()
	if held {
		h.j.Fault(TwoHolders, "%s was granted to %s while %s held it", key, owner, other)
	}
}

// Drop ends a hold. Another holder's entry stays: both have been reported.
func (h *Holders) Drop(key, owner string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.by[key] == owner {
		delete(h.by, key)
	}
}

// Counter is what a value changed by one client must be: one number, or a range
// if the fate of a change is unknown.
type Counter struct {
	Name      string
	Low, High int64
	Down      bool // the last change was downwards
}

// Changed judges the reply to a change by delta.
func (c *Counter) Changed(j *Judge, delta, got int64) {
	c.Low, c.High, c.Down = c.Low+delta, c.High+delta, delta < 0
	c.Is(j, got)
}

// Maybe notes a change by delta that nobody knows the fate of.
func (c *Counter) Maybe(delta int64) {
	if c.Down = delta < 0; c.Down {
		c.Low += delta
	} else {
		c.High += delta
	}
}

// Is judges the value.
func (c *Counter) Is(j *Judge, got int64) {
	below, above := WriteLost, RanTwice
	if c.Down {
		below, above = above, below
	}
	switch {
	case got < c.Low:
		j.Fault(below, "%s is %d and must be at least %d", c.Name, got, c.Low)
	case got > c.High:
		j.Fault(above, "%s is %d and must be at most %d", c.Name, got, c.High)
	}
	c.Low, c.High = got, got
}

// Elements are what was appended to one list.
type Elements struct {
	Name  string
	Acked map[string]bool
	Maybe map[string]bool
}

// NewElements returns a list that nothing was appended to.
func NewElements(name string) *Elements {
	return &Elements{Name: name, Acked: map[string]bool{}, Maybe: map[string]bool{}}
}

// Are judges the whole list.
func (e *Elements) Are(j *Judge, list []string) {
	seen := map[string]int{}
	for _, x := range list {
		seen[x]++
		switch {
		case seen[x] == 2:
			j.Fault(RanTwice, "%s has %s more than once", e.Name, x)
		case !e.Acked[x] && !e.Maybe[x]:
			j.Fault(RanTwice, "%s has %s, which nobody appended", e.Name, x)
		}
	}
	for x := range e.Acked {
		if seen[x] == 0 {
			j.Fault(WriteLost, "%s has not %s, which was acknowledged", e.Name, x)
		}
	}
}

// Lease is a lock with a time to live that its owner does not renew.
type Lease struct {
	Key, Owner string
	TTL        time.Duration
	Sent       time.Time // when it was asked for
	Granted    time.Time // when the reply was here
}

// underway is how long a reply may be on its way from the leader through the
// client's node and two busy processors. A lease counts from when the leader
// has answered, which no client sees.
const underway = 100 * time.Millisecond

// From is what the lease counts from at least.
func (l *Lease) From() time.Time {
	if early := l.Granted.Add(-underway); early.After(l.Sent) {
		return early
	}
	return l.Sent
}

// Owned judges the owner that a read of the lock returned. at is when the reply came.
func (l *Lease) Owned(j *Judge, owner any, at time.Time) (judged bool) {
	if at.Sub(l.From()) >= l.TTL {
		return false
	}
	if owner != l.Owner {
		j.Fault(LeaseShort, "%s: owner %v, not %s, %v after it was granted for %v; it was asked for %v before that",
			l.Key, owner, l.Owner, at.Sub(l.Granted), l.TTL, l.Granted.Sub(l.Sent))
	}
	return true
}

// rounding is what a remaining time may lack because both ends are whole
// milliseconds.
const rounding = time.Millisecond

// Remains judges what PTTL returned. at is when the reply came.
func (l *Lease) Remains(j *Judge, pttl int64, at time.Time) {
	if least := l.TTL - at.Sub(l.From()) - rounding; time.Duration(pttl)*time.Millisecond < least.Truncate(time.Millisecond) {
		j.Fault(LeaseShort, "%s: %d ms remain, at least %v must", l.Key, pttl, least)
	}
}
