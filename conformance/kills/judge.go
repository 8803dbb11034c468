package kills

import (
	"fmt"
	"sync"
	"time"
)

// fault is something that must not be.
type fault string

const (
	lockLost     fault = "acknowledged locks lost"
	twoHolders   fault = "double holders"
	leaseShort   fault = "leases that ended early"
	ranTwice     fault = "duplicate executions"
	writeLost    fault = "acknowledged writes lost"
	clientError  fault = "errors at clients"
	stateDiffers fault = "unequal states"
)

// faults in the order of the report.
var faults = []fault{lockLost, twoHolders, leaseShort, ranTwice, writeLost, clientError, stateDiffers}

// maxTold is how many faults are told word for word.
const maxTold = 20

// judge collects faults and counts what was looked at.
type judge struct {
	tell func(format string, args ...any) // each fault, as it is found

	mu      sync.Mutex
	found   map[fault]int
	told    []string
	counted map[string]int
}

func newJudge(tell func(string, ...any)) *judge {
	return &judge{tell: tell, found: map[fault]int{}, counted: map[string]int{}}
}

// fault notes that something was wrong.
func (j *judge) fault(f fault, format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.found[f]++
	if len(j.told) < maxTold {
		j.told = append(j.told, string(f)+": "+fmt.Sprintf(format, args...))
		j.tell("%s FAULT %s", time.Now().UTC().Format(time.RFC3339Nano), j.told[len(j.told)-1])
	}
}

// count counts operations and what was judged of them.
func (j *judge) count(what string, n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.counted[what] += n
}

// holders knows which client holds each lock, as the clients believe. A client
// takes a lock here after it was granted, and drops it before it releases, so two
// entries at once are two holders for certain.
type holders struct {
	j  *judge
	mu sync.Mutex
	by map[string]string
}

func newHolders(j *judge) *holders { return &holders{j: j, by: map[string]string{}} }

func (h *holders) take(key, owner string) {
	h.mu.Lock()
	other, held := h.by[key]
	h.by[key] = owner
	h.mu.Unlock()
	if held {
		h.j.fault(twoHolders, "%s was granted to %s while %s held it", key, owner, other)
	}
}

// drop ends a hold. Another holder's entry stays: both have been reported.
func (h *holders) drop(key, owner string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.by[key] == owner {
		delete(h.by, key)
	}
}

// counter is what a value changed by one client must be: one number, or a range
// if the fate of a change is unknown.
type counter struct {
	name      string
	low, high int64
	down      bool // the last change was downwards
}

// changed judges the reply to a change by delta.
func (c *counter) changed(j *judge, delta, got int64) {
	c.low, c.high, c.down = c.low+delta, c.high+delta, delta < 0
	c.is(j, got)
}

// maybe notes a change by delta that nobody knows the fate of.
func (c *counter) maybe(delta int64) {
	if c.down = delta < 0; c.down {
		c.low += delta
	} else {
		c.high += delta
	}
}

// is judges the value.
func (c *counter) is(j *judge, got int64) {
	below, above := writeLost, ranTwice
	if c.down {
		below, above = above, below
	}
	switch {
	case got < c.low:
		j.fault(below, "%s is %d and must be at least %d", c.name, got, c.low)
	case got > c.high:
		j.fault(above, "%s is %d and must be at most %d", c.name, got, c.high)
	}
	c.low, c.high = got, got
}

// elements are what was appended to one list.
type elements struct {
	name  string
	acked map[string]bool
	maybe map[string]bool
}

func newElements(name string) *elements {
	return &elements{name: name, acked: map[string]bool{}, maybe: map[string]bool{}}
}

// are judges the whole list.
func (e *elements) are(j *judge, list []string) {
	seen := map[string]int{}
	for _, x := range list {
		seen[x]++
		switch {
		case seen[x] == 2:
			j.fault(ranTwice, "%s has %s more than once", e.name, x)
		case !e.acked[x] && !e.maybe[x]:
			j.fault(ranTwice, "%s has %s, which nobody appended", e.name, x)
		}
	}
	for x := range e.acked {
		if seen[x] == 0 {
			j.fault(writeLost, "%s has not %s, which was acknowledged", e.name, x)
		}
	}
}

// lease is a lock with a time to live that its owner does not renew.
type lease struct {
	key, owner string
	ttl        time.Duration
	sent       time.Time // when it was asked for
	granted    time.Time // when the reply was here
}

// underway is how long a reply may be on its way from the leader through the
// client's node and two busy processors. A lease counts from when the leader
// has answered, which no client sees.
const underway = 100 * time.Millisecond

// from is what the lease counts from at least.
func (l *lease) from() time.Time {
	if early := l.granted.Add(-underway); early.After(l.sent) {
		return early
	}
	return l.sent
}

// owned judges what a read of the lock said, of which the reply came at a time.
func (l *lease) owned(j *judge, owner any, at time.Time) (judged bool) {
	if at.Sub(l.from()) >= l.ttl {
		return false
	}
	if owner != l.owner {
		j.fault(leaseShort, "%s: owner %v, not %s, %v after it was granted for %v; it was asked for %v before that",
			l.key, owner, l.owner, at.Sub(l.granted), l.ttl, l.granted.Sub(l.sent))
	}
	return true
}

// rounding is what a remaining time may lack because both ends are whole
// milliseconds.
const rounding = time.Millisecond

// remains judges what PTTL said, of which the reply came at a time.
func (l *lease) remains(j *judge, pttl int64, at time.Time) {
	if least := l.ttl - at.Sub(l.from()) - rounding; time.Duration(pttl)*time.Millisecond < least.Truncate(time.Millisecond) {
		j.fault(leaseShort, "%s: %d ms remain, at least %v must", l.key, pttl, least)
	}
}
