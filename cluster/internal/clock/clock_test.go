package clock

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// fakeTime is a TimeSource that a test moves.
type fakeTime struct {
	mu   sync.Mutex
	mono time.Duration
	wall time.Time
	late time.Duration // the next reading of the time of day takes this long
}

func newFakeTime() *fakeTime {
	return &fakeTime{mono: time.Hour, wall: time.UnixMicro(1_700_000_000_000_000)}
}

func (f *fakeTime) Monotonic() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mono
}

func (f *fakeTime) Busy() time.Duration { return f.Monotonic() }

func (f *fakeTime) Wall() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mono, f.wall = f.mono+f.late, f.wall.Add(f.late)
	f.late = 0
	return f.wall
}

// pass lets time pass on both clocks.
func (f *fakeTime) pass(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mono, f.wall = f.mono+d, f.wall.Add(d)
}

// jump sets the time of day only.
func (f *fakeTime) jump(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wall = f.wall.Add(d)
}

func TestLeaseClockIgnoresWallJumps(t *testing.T) {
	src := newFakeTime()
	c := NewLease(src)
	c.Applied(10_000)
	c.Lead(0, 0)
	for _, jump := range []time.Duration{24 * time.Hour, -48 * time.Hour, 4 * time.Millisecond, -4 * time.Millisecond} {
		before := c.Now().Lease
		src.jump(jump)
		if got := c.Now().Lease; got != before {
			t.Errorf("the wall clock jumped by %v and moved the lease clock from %d to %d", jump, before, got)
		}
		src.pass(1500 * time.Millisecond)
		if got := c.Now().Lease; got != before+1500 {
			t.Errorf("after a jump by %v 1.5 s moved the lease clock by %d ms", jump, got-before)
		}
	}
}

// TestWallShift: the clock tells by how much the wall clock was set while this node led, in both directions.
func TestWallShift(t *testing.T) {
	src := newFakeTime()
	c := NewLease(src)
	c.Applied(10_000)
	c.Lead(0, 0)
	c.Now()
	for _, step := range []struct{ jump, want time.Duration }{{0, 0}, {4 * time.Millisecond, 0}, {time.Minute, time.Minute + 4*time.Millisecond}, {-time.Minute, 2*time.Minute + 4*time.Millisecond}} {
		src.jump(step.jump)
		src.pass(time.Second)
		c.Now()
		if got := c.Shifted(); got < step.want-2*time.Millisecond || got > step.want+2*time.Millisecond {
			t.Errorf("after a jump by %v: %v, want %v", step.jump, got, step.want)
		}
	}
	before := c.Shifted()
	c.Follow()
	src.jump(time.Hour)
	c.Lead(0, 0)
	if c.Now(); c.Shifted() != before {
		t.Errorf("what happened while another node led counts: %v", c.Shifted()-before)
	}
}

func TestFollowerClockGoesOnFromTheLastStamp(t *testing.T) {
	src := newFakeTime()
	c := NewLease(src)
	c.Applied(5000)
	src.pass(200 * time.Millisecond)
	c.Applied(5100) // the stamp decides, not what this clock said
	src.pass(300 * time.Millisecond)
	if got := c.Now().Lease; got != 5400 {
		t.Errorf("lease %d, want 5400", got)
	}
	c.Applied(0) // a log without stamps: zero would mean "no deadline"
	if got := c.Now().Lease; got < 1 {
		t.Errorf("lease %d, want 1 or more", got)
	}
}

// A leader's own entries must not slow its clock down. Otherwise the clock would stand still under load, and no lease would
// ever end.
func TestLeaderClockIsNotMovedByItsOwnEntries(t *testing.T) {
	src := newFakeTime()
	c := NewLease(src)
	c.Lead(0, 0)
	start := c.Now().Lease
	for range 10_000 {
		stamp := c.Now().Lease
		src.pass(300 * time.Microsecond)
		c.Applied(stamp)
	}
	if got := c.Now().Lease - start; got != 3000 {
		t.Errorf("3 s of small entries moved the leader's clock by %d ms", got)
	}
}

func TestLeaderlessTimeIsTakenOut(t *testing.T) {
	for _, test := range []struct {
		name               string
		passed, leaderless time.Duration
		late               time.Duration
		want               int64
	}{
		{name: "an election", passed: 1000 * time.Millisecond, leaderless: 700 * time.Millisecond, want: 300},
		{name: "contact lost before the last entry was applied", passed: 100 * time.Millisecond, leaderless: 700 * time.Millisecond, want: 0},
		{name: "nobody led since the start", passed: 5000 * time.Millisecond, leaderless: 1<<63 - 1, want: 0},
		{name: "led all the time", passed: 5000 * time.Millisecond, leaderless: 0, want: 5000},
		{name: "an election after a grant", passed: 1000 * time.Millisecond, leaderless: 700 * time.Millisecond, late: 50 * time.Millisecond, want: 300},
		{name: "a handover after a grant", passed: 1000 * time.Millisecond, leaderless: 3 * time.Millisecond, late: 50 * time.Millisecond, want: 950},
		{name: "a handover right after a grant", passed: 20 * time.Millisecond, leaderless: 3 * time.Millisecond, late: 50 * time.Millisecond, want: 0},
		{name: "leads again after a grant", passed: 1000 * time.Millisecond, leaderless: 0, late: 50 * time.Millisecond, want: 950},
	} {
		src := newFakeTime()
		c := NewLease(src)
		c.Applied(1000)
		src.pass(test.passed)
		c.Lead(test.leaderless, test.late)
		if got := c.Now().Lease - 1000; got != test.want {
			t.Errorf("%s: the clock went on by %d ms, want %d", test.name, got, test.want)
		}
		out := test.passed - time.Duration(test.want)*time.Millisecond
		if total, last := c.Leaderless(); total != out || last != out {
			t.Errorf("%s: %v and %v taken out, want %v", test.name, total, last, out)
		}
	}
}

// A deposed leader takes its successor's time, even if it applied the successor's entries before it knew.
func TestDeposedLeaderTakesItsSuccessorsTime(t *testing.T) {
	src := newFakeTime()
	c := NewLease(src)
	c.Applied(1000)
	c.Lead(0, 0)
	src.pass(3000 * time.Millisecond) // this node was paused; its successor left out 2 s without a leader
	c.Applied(2000)
	src.pass(10 * time.Millisecond)
	c.Follow()
	if got := c.Now().Lease; got != 2010 {
		t.Errorf("lease %d after stepping down, want 2010", got)
	}
	c.Lead(10*time.Millisecond, 0)
	if got := c.Now().Lease; got != 2000 {
		t.Errorf("lease %d after the next election, want 2000", got)
	}
}

// The lease clock of a node never runs ahead of the time that has really
// passed since a stamp, through any change of roles.
func TestLeaseClockNeverRunsAhead(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	src := newFakeTime()
	c := NewLease(src)
	c.Applied(1000)
	stamp, stampAt := int64(1000), src.Monotonic()
	leading := false
	for i := range 10_000 {
		src.pass(time.Duration(r.IntN(5_000_000)))
		switch r.IntN(6) {
		case 0:
			if leading {
				break
			}
			stamp += r.Int64N(20)
			stampAt = src.Monotonic()
			c.Applied(stamp)
		case 1:
			c.Lead(time.Duration(r.IntN(50_000_000)), time.Duration(r.IntN(2))*100*time.Millisecond)
			leading = true
		case 2:
			c.Follow()
			leading = false
		case 3:
			src.jump(time.Duration(r.Int64N(2_000_000_000) - 1_000_000_000))
		}
		if got, limit := c.Now().Lease, stamp+(src.Monotonic()-stampAt).Milliseconds(); got > limit {
			t.Fatalf("step %d: lease %d, but only %d has passed", i, got, limit)
		}
	}
}

// While the wall clock drifts by less than the slack, a deadline given in Unix
// time reads back unchanged.
func TestUnixTimesReadBackUnchanged(t *testing.T) {
	src := newFakeTime()
	src.wall = src.wall.Add(789 * time.Microsecond)
	c := NewLease(src)
	c.Applied(777)
	c.Lead(0, 0)
	s := store.New()
	at := func() *store.Txn { return s.Begin(c.Now(), 1, store.Env{}) }
	const unix = 1_700_000_100_000
	deadline := at().DeadlineAt(unix)
	r := rand.New(rand.NewPCG(1, 2))
	drift := time.Duration(0)
	for range 2000 {
		src.pass(time.Duration(r.IntN(3_000_000)))
		d := time.Duration(r.IntN(200_001) - 100_000) // ±0.1 ms
		if (drift + d).Abs() < 3*time.Millisecond {
			src.jump(d)
			drift += d
		}
		if got := at().UnixAt(deadline); got != unix {
			t.Fatalf("PEXPIREAT %d reads back as %d", int64(unix), got)
		}
		if got := at().DeadlineAt(unix); got != deadline {
			t.Fatalf("the same Unix time became the deadline %d, and then %d", deadline, got)
		}
	}
	// The offset follows a real jump, because Unix time is what the wall clock shows.
	src.jump(time.Hour)
	src.pass(wallEvery)
	if got, want := at().UnixMilli(), src.Wall().UnixMilli(); got < want-1 || got > want {
		t.Errorf("wall %d after a jump, want %d", got, want)
	}
	if off := at().UnixAt(deadline) - (unix + 3_600_000); off < -5 || off > 5 {
		t.Errorf("after a jump by an hour the deadline is %d ms away from where it belongs", off)
	}
}

// naiveLateness does what Lateness does, and keeps every value.
type naiveLateness struct {
	first uint64
	late  map[uint64]int64
	last  uint64
}

func (n *naiveLateness) of(seq uint64) int64 {
	if seq < n.first || seq > n.last {
		return 0
	}
	return n.late[seq]
}

func (n *naiveLateness) blockMax(seq uint64) int64 {
	worst := int64(0)
	for s := seq / latenessBlock * latenessBlock; s < (seq/latenessBlock+1)*latenessBlock; s++ {
		worst = max(worst, n.of(s))
	}
	return worst
}

// A stop of the process between the readings of the two clocks does not move the deadline of a SET PXAT.
func TestLateReadingsOfTheWallClock(t *testing.T) {
	src := newFakeTime()
	c := NewLease(src)
	c.Lead(0, 0)
	ahead := func() int64 { now := c.Now(); return now.Wall/1000 - now.Lease }
	src.late = 30 * time.Millisecond // the first reading, which makes the offset known
	want := src.wall.UnixMilli() - src.mono.Milliseconds() + c.at.Milliseconds() - c.base
	if got := ahead(); got != want {
		t.Errorf("after a first reading that was late the wall clock is %d ms ahead, want %d", got, want)
	}
	for _, late := range []time.Duration{30 * time.Millisecond, time.Second} {
		src.pass(time.Minute)
		src.late = late
		if got := ahead(); got != want {
			t.Errorf("after a reading that was %v late the wall clock is %d ms ahead, want %d", late, got, want)
		}
	}
	src.jump(time.Second)
	if got := ahead(); got != want+1000 {
		t.Errorf("after a jump by 1 s the wall clock is %d ms ahead, want %d", got, want+1000)
	}
}

func TestLatenessAgainstANaiveModel(t *testing.T) {
	for _, first := range []uint64{1, 1000, 123_456} {
		r := rand.New(rand.NewPCG(first, 2))
		l, model := &Lateness{}, &naiveLateness{first: first, late: map[uint64]int64{}}
		l.Reset(first)
		recent := uint64(len(l.recent))
		for seq := first; seq < first+3*recent; seq++ {
			if r.IntN(500) == 0 {
				seq += r.Uint64N(40) // a write set that this leader did not see acknowledged
			}
			late := r.Int64N(20)
			if r.IntN(1000) == 0 {
				late = r.Int64N(90_000)
			}
			l.Record(seq, late)
			model.late[seq], model.last = late, seq
			ask := first - 1 + r.Uint64N(seq-first+5)
			want := model.of(ask)
			if ask >= first && ask+recent <= seq {
				if seq%8 != 0 {
					continue // the model is slow here
				}
				want = model.blockMax(ask) // old write sets: the highest value of the block
			}
			if got := l.Of(ask); got != want {
				t.Fatalf("first %d: write set %d of %d is late by %d, want %d", first, ask, seq, got, want)
			}
		}
	}
}

func TestLatenessOfTheVeryOldAndOfOtherTerms(t *testing.T) {
	l := &Lateness{}
	l.Reset(10)
	if got := l.Of(10); got != 0 {
		t.Errorf("a write set that is not acknowledged: %d", got)
	}
	l.Record(10, 1<<33)
	l.Record(11, -7)
	if a, b := l.Of(10), l.Of(11); a != math.MaxUint32 || b != 0 {
		t.Errorf("late by %d and %d, want the largest value and 0", a, b)
	}
	// Of the oldest write sets Lateness keeps only the highest value of all. A lease that ends late is safe.
	for seq := uint64(12); seq < uint64(len(l.blocks)+20)*latenessBlock; seq++ {
		l.Record(seq, 1)
	}
	if got := l.Of(10); got != math.MaxUint32 {
		t.Errorf("a very old write set is late by %d", got)
	}
	if got := l.Of(uint64(len(l.blocks))*latenessBlock + 10); got != 1 {
		t.Errorf("a block that took the place of an old one is late by %d, want 1", got)
	}
	if got := l.Of(9); got != 0 {
		t.Errorf("a write set of an earlier leader: %d", got)
	}
	l.Reset(l.last + 1)
	if got := l.Of(l.last - 1); got != 0 || l.Worst != 0 {
		t.Errorf("after a reset: %d, worst %d", got, l.Worst)
	}
}

func TestSystemTime(t *testing.T) {
	s := NewSystem()
	a, w := s.Monotonic(), s.Wall()
	if a < 0 || w.Year() < 2020 || s.Monotonic() < a {
		t.Errorf("monotonic %v, wall %v", a, w)
	}
}
