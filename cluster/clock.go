package cluster

import (
	"sync"
	"time"

	"lockstep/store"
)

// TimeSource is where time comes from. This file is the only one that asks
// the operating system; everywhere else time is an argument.
type TimeSource interface {
	// Monotonic never runs back and does not follow the wall clock.
	Monotonic() time.Duration
	// Wall is the time of day.
	Wall() time.Time
}

// SystemTime is the machine's clock.
type SystemTime struct{ start time.Time }

// NewSystemTime returns the machine's clock, its monotonic part at zero.
func NewSystemTime() *SystemTime { return &SystemTime{start: time.Now()} }

// Monotonic returns the time since the source was made.
func (s *SystemTime) Monotonic() time.Duration { return time.Since(s.start) }

// Wall returns the time of day.
func (s *SystemTime) Wall() time.Time { return time.Now() }

// raftTime is the time for Raft, which reads the clock of the machine.
type raftTime struct{ TimeSource }

// At converts the time at which Raft heard of something to the monotonic clock. Raft's times have a
// monotonic part, so no jump of the wall clock, here or elsewhere, makes a difference.
func (t raftTime) At(at time.Time) time.Duration { return t.Monotonic() - time.Since(at) }

// wallSlack is how far the wall clock may drift from the lease clock before
// conversions follow it. Within it the offset is kept, so that a deadline set
// by Unix time reads back unchanged.
const wallSlack = 5 * time.Millisecond

// wallEvery is how long one reading of the wall clock serves: every request asks for the time.
const wallEvery = time.Millisecond

// leaseClock decides expiry. It is the last stamp applied plus the monotonic
// time that has passed here since, so a wall clock that jumps never ends a
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
type leaseClock struct {
	src TimeSource

	mu      sync.Mutex
	base    int64         // lease ms …
	at      time.Duration // … at this monotonic time
	stamp   int64         // last stamp applied …
	stampAt time.Duration // … at this monotonic time
	leading bool          // own entries do not move a leader's clock
	offset  int64         // wall minus lease, µs
	known   bool          // offset has been set
	look    time.Duration // monotonic time of the next look at the wall clock

	lengthened time.Duration // the time without a leader that lead has left out in all …
	lately     time.Duration // … and in the last election
}

func newLeaseClock(src TimeSource) *leaseClock {
	now := src.Monotonic()
	return &leaseClock{src: src, base: 1, at: now, stamp: 1, stampAt: now}
}

// applied tells the clock the stamp of an entry that was just applied here.
func (c *leaseClock) applied(lease int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stamp, c.stampAt = max(lease, 1), c.src.Monotonic()
	if !c.leading {
		c.base, c.at, c.look = c.stamp, c.stampAt, c.stampAt
	}
}

// lead makes the clock a leader's clock. It goes on from the last stamp, without the time in which there
// was no leader, because no client could renew a lease then. If the last entry granted leases, only the
// leader that proposed it knows how late it acknowledged them: by at most promptly, or it would have
// added another entry.
func (c *leaseClock) lead(leaderless time.Duration, granted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.src.Monotonic()
	if granted {
		leaderless = max(leaderless, promptly)
	}
	passed := max(now-c.at-leaderless, 0)
	if leaderless > 0 { // else this node has led all the time, and its last entry granted nothing
		c.lately = now - c.at - passed
		c.lengthened += c.lately
	}
	c.base, c.at = c.base+passed.Milliseconds(), now
	c.leading, c.known = true, false
}

// leaderless returns by how much the elections that this node has won since it
// started have lengthened leases, and by how much the last of them has.
func (c *leaseClock) leaderless() (total, last time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lengthened, c.lately
}

// follow makes the clock a follower's clock again. It goes back to the last stamp, as on every other
// node: entries of the next leader, whose clock may be behind this one, may have been applied while this
// node still thought it led.
func (c *leaseClock) follow() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.base, c.at, c.leading = c.stamp, c.stampAt, false
	c.look = c.at
}

// now returns the present by both clocks.
func (c *leaseClock) now() store.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	mono := c.src.Monotonic()
	leaseMicros := c.base*1000 + (mono - c.at).Microseconds()
	if !c.known || mono >= c.look {
		c.look = mono + wallEvery
		c.compare(c.src.Wall().UnixMicro(), leaseMicros)
	}
	return store.Time{Lease: leaseMicros / 1000, Wall: leaseMicros + c.offset}
}

// compare makes the conversion follow a wall clock that has drifted too far.
func (c *leaseClock) compare(wall, lease int64) {
	drift := wall - lease - c.offset
	if !c.known || drift > wallSlack.Microseconds() || drift < -wallSlack.Microseconds() {
		// Whole milliseconds: then both clocks tick over together.
		c.offset, c.known = (wall-lease)/1000*1000, true
	}
}

// lateness remembers, for the write sets of the present leader, how long after its evaluation each was
// acknowledged. A lease counts from the reply, so the leader extends the deadlines that a slow write set
// has set by that time. It keeps recent write sets one by one, and of older ones the worst of each block.
type lateness struct {
	first  uint64 // write sets before it belong to an earlier leader
	recent [1 << 14]uint16
	blocks [1 << 12]uint16
	last   uint64
	worst  uint16 // of all
}

const latenessBlock = 1 << 10

func (l *lateness) reset(next uint64) { *l = lateness{first: next, last: next} }

// record notes that write set seq was acknowledged late by ms milliseconds.
func (l *lateness) record(seq uint64, ms int64) {
	late := uint16(min(max(ms, 0), 1<<16-1))
	for s := l.last + 1; s < seq && s+uint64(len(l.recent)) > seq; s++ {
		l.recent[s%uint64(len(l.recent))] = 0
	}
	l.recent[seq%uint64(len(l.recent))] = late
	block := seq / latenessBlock
	if l.last/latenessBlock != block {
		l.blocks[block%uint64(len(l.blocks))] = 0
	}
	slot := &l.blocks[block%uint64(len(l.blocks))]
	*slot = max(*slot, late)
	l.worst = max(l.worst, late)
	l.last = seq
}

// of returns by how much deadlines set by write set seq are extended.
func (l *lateness) of(seq uint64) int64 {
	switch {
	case seq < l.first || seq > l.last:
		return 0
	case seq+uint64(len(l.recent)) > l.last:
		return int64(l.recent[seq%uint64(len(l.recent))])
	case seq/latenessBlock+uint64(len(l.blocks)) > l.last/latenessBlock:
		return int64(l.blocks[seq/latenessBlock%uint64(len(l.blocks))])
	default:
		return int64(l.worst)
	}
}
