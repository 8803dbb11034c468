package clock

import (
	"sync"
	"time"

	"lockstep/store"
)

// wallSlack is how far the wall clock may drift from the lease clock before the
// offset between the clocks is set anew. A smaller drift leaves the offset alone,
// so that a deadline set by Unix time reads back unchanged.
const wallSlack = 5 * time.Millisecond

// wallEvery is how long one reading of the wall clock serves: every request asks for the time.
const wallEvery = time.Millisecond

// Lease decides expiry. It is the last stamp applied plus the monotonic
// time that has passed here since. So a wall clock that jumps never ends a
// lease, and a new leader goes on where the log stopped.
//
// Three rules follow. A leader's own entries do not move its clock: under load it would stand still. A
// new leader does not count the time without a leader, because no client could renew a lease then; so a
// lease may end late by that time, and never early. While a deadline is pending the leader logs the time
// once a second (stampInterval), which bounds by how much a restart of the whole cluster lengthens a
// lease.
//
// The wall clock serves only what is defined in Unix time. Its offset to the lease clock is kept
// within wallSlack, so that PEXPIRETIME gives back what PEXPIREAT was given.
type Lease struct {
	src Source

	mu      sync.Mutex
	base    int64         // lease ms …
	at      time.Duration // … at this monotonic time
	stamp   int64         // last stamp applied …
	stampAt time.Duration // … at this monotonic time
	leading bool          // own entries do not move a leader's clock
	offset  int64         // wall minus lease, µs
	known   bool          // offset has been set
	look    time.Duration // monotonic time of the next look at the wall clock

	lengthened time.Duration // the time without a leader that Lead has left out in all …
	lately     time.Duration // … and in the last election
}

// NewLease returns the clock of a follower, at 1 ms.
func NewLease(src Source) *Lease {
	now := src.Monotonic()
	return &Lease{src: src, base: 1, at: now, stamp: 1, stampAt: now}
}

// Applied tells the clock the stamp of an entry that was just applied here.
func (c *Lease) Applied(lease int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stamp, c.stampAt = max(lease, 1), c.src.Monotonic()
	if !c.leading {
		c.base, c.at, c.look = c.stamp, c.stampAt, c.stampAt
	}
}

// Lead makes the clock a leader's clock. It goes on from the last stamp, without the time in which there
// was no leader, because no client could renew a lease then. late is the most by which the leader that proposed
// the last entry can have acknowledged its leases late; only that leader knows the true value.
func (c *Lease) Lead(leaderless, late time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.src.Monotonic()
	leaderless = max(leaderless, late)
	passed := max(now-c.at-leaderless, 0)
	if leaderless > 0 { // else this node has led all the time, and its last entry granted nothing
		c.lately = now - c.at - passed
		c.lengthened += c.lately
	}
	c.base, c.at = c.base+passed.Milliseconds(), now
	c.leading, c.known = true, false
}

// Leaderless returns by how much the elections that this node has won since it
// started have lengthened leases, and by how much the last of them has.
func (c *Lease) Leaderless() (total, last time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lengthened, c.lately
}

// Follow makes the clock a follower's clock again. It goes back to the last stamp, as on every other
// node: entries of the next leader, whose clock may be behind this one, may have been applied while this
// node still thought it led.
func (c *Lease) Follow() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.base, c.at, c.leading = c.stamp, c.stampAt, false
	c.look = c.at
}

// Now returns the present by both clocks.
func (c *Lease) Now() store.Time {
	now, _ := c.Read()
	return now
}

// Read returns the present by both clocks, and by the monotonic one.
func (c *Lease) Read() (now store.Time, mono time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	mono = c.src.Monotonic()
	leaseMicros := c.base*1000 + (mono - c.at).Microseconds()
	if !c.known || mono >= c.look {
		c.look = mono + wallEvery
		c.compare(c.src.Wall().UnixMicro(), leaseMicros)
	}
	return store.Time{Lease: leaseMicros / 1000, Wall: leaseMicros + c.offset}, mono
}

// compare sets the offset anew if it is not known, or if the wall clock has drifted beyond wallSlack.
func (c *Lease) compare(wall, lease int64) {
	drift := wall - lease - c.offset
	if !c.known || drift > wallSlack.Microseconds() || drift < -wallSlack.Microseconds() {
		// Whole milliseconds: then both clocks tick over together.
		c.offset, c.known = (wall-lease)/1000*1000, true
	}
}
