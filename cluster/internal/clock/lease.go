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

// wallEvery is the least time between two readings of the wall clock. Requests ask for the time more often: between two readings, they
// get the lease clock plus the known offset.
const wallEvery = time.Millisecond

// wallPrompt is how long a reading of the wall clock may take. A busy machine can stop this process between the readings of the two
// clocks, and then the wall clock seems to have jumped.
const wallPrompt = time.Millisecond

// Lease is the lease clock, by which leases expire. Each log entry carries a stamp: the time of its evaluation on the leader's lease
// clock, minus the time by which the leader's replies may be late (cluster/grants.go). The lease clock of a node shows the stamp of the
// last entry that the node has applied, plus the monotonic time that has passed on the node since. So a wall clock that jumps never ends
// a lease, and a new leader's clock goes on from the end of the log.
//
// Three more rules hold:
//
//   - The entries that a leader applies do not move its own clock: their stamps are a little old by then, so under
//     load the clock would stand still.
//   - A new leader's clock leaves out the time without a leader, because no client could renew a lease then. So a
//     lease may end late by that time, and never early.
//   - While a deadline is pending, the leader logs the time once a second (stampInterval). That bounds by how much a
//     restart of the whole cluster lengthens a lease.
//
// The wall clock is used only for times that a client sends or gets as Unix time. Its offset to the lease
// clock changes only when the two have drifted apart by more than wallSlack, so that PEXPIRETIME returns
// the time that PEXPIREAT has set.
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

// Lead makes the clock a leader's clock. The clock goes on from the last stamp and counts the time since, but leaves out the
// time without a leader, because no client could renew a lease then. The parameter leaderless is the length of that time. The
// leader that proposed the last entry may have acknowledged the leases of that entry late. Only that leader knows how late, so
// the parameter late is an upper bound, and Lead leaves out at least late.
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

// Leaderless returns by how much the elections that this node has won since its start have
// lengthened leases: in total, and in the last of these elections.
func (c *Lease) Leaderless() (total, last time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lengthened, c.lately
}

// Follow makes the clock a follower's clock again: like every other follower's clock, it goes on from the last stamp. The clock may step
// back: before the call of Follow, this node may have applied entries of the next leader, whose clock may be behind this one.
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

// readWall compares the wall clock with the lease clock. The parameter mono is the present monotonic time; readWall returns a
// later one if it had to read the clocks again. If an offset is known and the reading is not prompt, the offset stays, and the
// next call tries again.
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

// compare sets offset anew from readings of both clocks in µs. It does so only if offset is not known, or if the clocks have
// drifted apart by more than wallSlack.
func (c *Lease) compare(wall, lease int64) {
	drift := wall - lease - c.offset
	if !c.known || drift > wallSlack.Microseconds() || drift < -wallSlack.Microseconds() {
		// The offset is a whole number of milliseconds, so that both clocks begin a new millisecond at the same time.
		c.offset, c.known = (wall-lease)/1000*1000, true
	}
}
