package clock

import (
	"sync"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// wallSlack is how far the clocks may drift apart before the offset changes, so that a deadline in Unix time reads back
// unchanged.
const wallSlack = 5 * time.Millisecond

// wallEvery is the least time between two readings of the wall clock. Between them, the lease clock plus the offset serves.
const wallEvery = time.Millisecond

// wallPrompt bounds a reading of the wall clock: if the process stops between the two clocks' readings, the wall clock seems to
// jump.
const wallPrompt = time.Millisecond

// Lease is the lease clock, by which leases expire. Each log entry carries a stamp: the leader's lease time at its evaluation,
// minus the time by which replies may be late (cluster/grants.go). A node's lease clock shows the stamp of the last entry that it
// has applied, plus its monotonic time since. So no jump of a wall clock ends a lease.
//
// Three more rules hold:
//
//   - The entries that a leader applies do not move its own clock, which would stand still under load.
//   - A new leader's clock leaves out the time without a leader, in which no client could renew.
//   - While a deadline is pending, the leader logs the time once a second (stampInterval). That bounds by how much a restart of the
//     whole cluster lengthens a lease.
//
// The wall clock serves only for Unix times that clients send or get.
type Lease struct {
	src Source

	mu      sync.Mutex
	base    int64         // what the lease clock shows, in ms, at the monotonic time in the field at
	at      time.Duration // the monotonic time that belongs to base
	stamp   int64         // the stamp of the last entry that was applied
	stampAt time.Duration // the monotonic time at which that entry was applied
	leading bool          // this node leads, so Applied does not move the clock
	offset  int64         // wall clock minus lease clock, µs
	known   bool          // offset has been set since this node began to lead
	look    time.Duration // the next reading of the wall clock is due at this monotonic time

	lengthened time.Duration // the time without a leader that the clock has left out, over all elections that this node has won
	lately     time.Duration // the part of lengthened that the last of these elections added
	shifted    time.Duration // by how much the wall clock has left the monotonic one, back and forth, while this node led
}

// NewLease returns a clock that shows 1 ms and is a follower's clock.
func NewLease(src Source) *Lease {
	now := src.Monotonic()
	return &Lease{src: src, base: 1, at: now, stamp: 1, stampAt: now}
}

// Applied records the stamp of an entry that this node has just applied. The parameter lease is that stamp.
func (c *Lease) Applied(lease int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stamp, c.stampAt = max(lease, 1), c.src.Monotonic()
	if !c.leading {
		c.base, c.at, c.look = c.stamp, c.stampAt, c.stampAt
	}
}

// Lead makes the clock a leader's. It leaves out the leaderless time or, if that is more, late: the most by which the last
// entry's leases were acknowledged late.
func (c *Lease) Lead(leaderless, late time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.src.Monotonic()
	leaderless = max(leaderless, late)
	passed := max(now-c.at-leaderless, 0)
	if leaderless > 0 { // else this node has led all the time, the last entry granted no lease, and no time is left out
		c.lately = now - c.at - passed
		c.lengthened += c.lately
	}
	c.base, c.at = c.base+passed.Milliseconds(), now
	c.leading, c.known = true, false
}

// Leaderless returns by how much the elections won since the start have lengthened leases: in total, and in the last one.
func (c *Lease) Leaderless() (total, last time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lengthened, c.lately
}

// Shifted returns by how much the wall clock was set, or has drifted away from the monotonic clock, in sum of both directions, while this node
// led.
func (c *Lease) Shifted() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shifted
}

// Follow makes the clock a follower's again. It may step back, if the next leader's clock, whose entries were applied, is behind.
func (c *Lease) Follow() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.base, c.at, c.leading = c.stamp, c.stampAt, false
	c.look = c.at
}

// Now returns the present time on the lease clock and on the wall clock.
func (c *Lease) Now() store.Time {
	now, _ := c.Read()
	return now
}

// Read returns the present time on the lease clock and on the wall clock, and the monotonic time.
func (c *Lease) Read() (now store.Time, mono time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	mono = c.src.Monotonic()
	if !c.known || mono >= c.look {
		mono = c.readWall(mono)
	}
	lease := c.micros(mono)
	return store.Time{Lease: lease / 1000, Wall: lease + c.offset}, mono
}

// micros returns what the lease clock shows at a monotonic time, in µs.
func (c *Lease) micros(mono time.Duration) int64 { return c.base*1000 + (mono - c.at).Microseconds() }

// wallTries is how often readWall tries to read the wall clock promptly while no offset is known.
const wallTries = 100

// readWall compares the clocks, and returns the monotonic time of that. A reading that is not prompt never replaces a known
// offset.
func (c *Lease) readWall(mono time.Duration) time.Duration {
	for try := 1; ; try++ {
		wall, after := c.src.Wall().UnixMicro(), c.src.Monotonic()
		if after-mono <= wallPrompt || !c.known && try == wallTries {
			c.look = mono + wallEvery
			c.compare(wall, c.micros(mono))
			return mono
		}
		mono = after
		if c.known {
			return mono
		}
	}
}

// compare sets an unknown offset, or one that is wrong by more than wallSlack. Both readings are in µs.
func (c *Lease) compare(wall, lease int64) {
	drift := wall - lease - c.offset
	if !c.known || drift > wallSlack.Microseconds() || drift < -wallSlack.Microseconds() {
		if c.known {
			c.shifted += time.Duration(max(drift, -drift)) * time.Microsecond
		}
		// The offset is a whole number of milliseconds, so that both clocks begin a new millisecond at the same time.
		c.offset, c.known = (wall-lease)/1000*1000, true
	}
}
