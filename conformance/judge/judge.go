// Package judge decides from the replies to clients whether the servers kept the locks. No lock may be lost, held by two owners or
// shortened, and no command may be executed twice.
//
// The judge never asks the servers what is right. It uses the acknowledgements and a single clock: that of this process.
package judge

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// Fault is something that must not happen.
type Fault string

const (
	LockLost     Fault = "acknowledged locks lost"
	TwoHolders   Fault = "double holders"
	LeaseShort   Fault = "leases that ended early"
	RanTwice     Fault = "duplicate executions"
	WriteLost    Fault = "acknowledged writes lost"
	WrongToken   Fault = "tokens that did not rise, or changed"
	ClientError  Fault = "errors at clients"
	StateDiffers Fault = "unequal states"
)

// Faults are all faults, in the order of a report.
var Faults = []Fault{LockLost, TwoHolders, LeaseShort, RanTwice, WriteLost, WrongToken, ClientError, StateDiffers}

// maxTold is how many faults are reported in full.
const maxTold = 20

// Judge collects faults and counts what was checked.
type Judge struct {
	tell func(format string, args ...any) // gets each fault when it is found

	mu      sync.Mutex
	found   map[Fault]int
	told    []string
	counted map[string]int
}

// New returns a judge that passes each fault to the function tell when it finds the fault.
func New(tell func(string, ...any)) *Judge {
	return &Judge{tell: tell, found: map[Fault]int{}, counted: map[string]int{}}
}

// Fault records a fault.
func (j *Judge) Fault(f Fault, format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.found[f]++
	if len(j.told) < maxTold {
		j.told = append(j.told, string(f)+": "+fmt.Sprintf(format, args...))
		j.tell("%s FAULT %s", time.Now().UTC().Format(time.RFC3339Nano), j.told[len(j.told)-1])
	}
}

// Count adds n to the number of checks of one kind.
func (j *Judge) Count(what string, n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.counted[what] += n
}

// Found returns how often each fault was found, and the full texts of the first ones.
func (j *Judge) Found() (map[Fault]int, []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return maps.Clone(j.found), slices.Clone(j.told)
}

// Counted returns the numbers that Count has added up.
func (j *Judge) Counted() map[string]int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return maps.Clone(j.counted)
}

// Holders records who holds each lock. Take follows a grant, and Drop precedes a release. So another owner at Take is a second holder.
type Holders struct {
	j  *Judge
	mu sync.Mutex
	by map[string]string
}

// NewHolders returns a Holders without entries.
func NewHolders(j *Judge) *Holders { return &Holders{j: j, by: map[string]string{}} }

// Take records that a lock was granted.
func (h *Holders) Take(key, owner string) {
	h.mu.Lock()
	other, held := h.by[key]
	h.by[key] = owner
	h.mu.Unlock()
	if held {
		h.j.Fault(TwoHolders, "%s was granted to %s while %s held it", key, owner, other)
	}
}

// Drop removes the entry of an owner. If the entry names another owner, it stays: Take has already reported that both held the
// lock.
func (h *Holders) Drop(key, owner string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.by[key] == owner {
		delete(h.by, key)
	}
}

// Tokens has the last token of each lock, and for which hold of the lock it was told.
type Tokens struct {
	j    *Judge
	mu   sync.Mutex
	told map[string]told
}

type told struct {
	hold  string
	token int64
}

// NewTokens returns a Tokens without entries.
func NewTokens(j *Judge) *Tokens { return &Tokens{j: j, told: map[string]told{}} }

// Is judges a token: it is the same during one hold, and larger than those of earlier holds. It is told before the release, so the holds
// come in their order.
func (t *Tokens) Is(key, hold string, token int64) {
	t.mu.Lock()
	before := t.told[key]
	t.told[key] = told{hold, token}
	t.mu.Unlock()
	t.j.Count("tokens compared", 1)
	if before.hold == hold && token != before.token || before.hold != hold && token <= before.token {
		t.j.Fault(WrongToken, "%s: %s has the token %d, and %s had %d", key, hold, token, before.hold, before.token)
	}
}

// Counter bounds the value of a counter that only one client changes. Low and High differ after an unknown outcome.
type Counter struct {
	Name      string
	Low, High int64
	Down      bool // the last change made the value smaller
}

// Changed judges the reply to a change of the value by delta.
func (c *Counter) Changed(j *Judge, delta, got int64) {
	c.Low, c.High, c.Down = c.Low+delta, c.High+delta, delta < 0
	c.Is(j, got)
}

// Maybe records a change by delta whose outcome is unknown.
func (c *Counter) Maybe(delta int64) {
	if c.Down = delta < 0; c.Down {
		c.Low += delta
	} else {
		c.High += delta
	}
}

// Is judges the present value.
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

// Elements are the elements that clients appended to one list.
type Elements struct {
	Name  string
	Acked map[string]bool
	Maybe map[string]bool
}

// NewElements returns the Elements of a list to which nothing was appended yet.
func NewElements(name string) *Elements {
	return &Elements{Name: name, Acked: map[string]bool{}, Maybe: map[string]bool{}}
}

// Are judges the contents of the whole list: every acknowledged element must be there, none twice, and none that nobody appended.
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
	Sent       time.Time // when the client sent its request
	Granted    time.Time // when the client received the reply
}

// underway is how long a grant may be on its way: a lease counts from the leader's answer, which no client sees.
const underway = 100 * time.Millisecond

// From returns the earliest instant from which the lease may count.
func (l *Lease) From() time.Time {
	if early := l.Granted.Add(-underway); early.After(l.Sent) {
		return early
	}
	return l.Sent
}

// Owned judges the owner that a read of the lock returned. The argument "at" is the instant at which the reply came.
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

// rounding is how much may be missing of a remaining time, because a lease begins and ends at whole milliseconds.
const rounding = time.Millisecond

// Remains judges the result of PTTL, in milliseconds. The argument "at" is the instant at which the reply came.
func (l *Lease) Remains(j *Judge, pttl int64, at time.Time) {
	if least := l.TTL - at.Sub(l.From()) - rounding; time.Duration(pttl)*time.Millisecond < least.Truncate(time.Millisecond) {
		j.Fault(LeaseShort, "%s: %d ms remain, at least %v must", l.Key, pttl, least)
	}
}
