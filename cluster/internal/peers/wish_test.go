package peers

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/fair"
	"github.com/lockstep-io/lockstep/cluster/internal/raftnode"
)

// steady is a clock that a test sets.
type steady struct{ now time.Duration }

func (c *steady) Monotonic() time.Duration    { return c.now }
func (c *steady) Wall() time.Time             { return time.Unix(0, 0) }
func (c *steady) Busy() time.Duration         { return 0 }
func (c *steady) tick(y *Yielder) (to string) { c.now += Period; return y.look(c.now) }
func (c *steady) until(y *Yielder) time.Duration { // how long it takes until y would hand over
	for begun := c.now; ; {
		if c.tick(y) != "" || c.now-begun > time.Hour {
			return c.now - begun
		}
	}
}

// yielder returns a Yielder of n1, whose other members n2 and n3 have applied up to index 7 and have these wishes.
func yielder(t *testing.T, clock *steady, own, second, third Wish) *Yielder {
	w := NewWatcher(t.Context(), Config{ID: "n1", Wish: own, DownAfter: 1000 * time.Hour, Clock: clock, Logger: slog.New(slog.DiscardHandler),
		Overruns: func() []fair.Overrun { return nil }, Raft: func() Raft { return threeMembers{} },
		Leader: func() raftnode.Leadership { return raftnode.Leadership{ID: "n1"} }, Members: func([]raftnode.Member) {}})
	w.Update()
	for id, wish := range map[string]Wish{"n2": second, "n3": third} {
		w.record(Status{ID: id, Applied: 7, Directory: "D", Cluster: "blue", ToldMembers: true, Wish: wish}, true)
	}
	y := &Yielder{Watcher: w, After: 10 * time.Second, Position: func() uint64 { return 7 }}
	y.begin(clock.now)
	return y
}

// TestYield: a leader hands over to the voter that should lead most, after that one has kept up for long enough.
func TestYield(t *testing.T) {
	never := Wish{Never: true}
	first := func(n int) Wish { return Wish{Priority: n} }
	for name, c := range map[string]struct {
		own, second, third Wish
		to                 string
		after              time.Duration
	}{
		"no wishes":              {},
		"own is the first":       {own: first(3), second: first(2), third: first(3)},
		"another is the first":   {own: first(1), second: first(2), third: first(3), to: "n3", after: 10 * time.Second},
		"two are the first":      {own: first(1), second: first(3), third: first(3), to: "n2", after: 10 * time.Second},
		"own never leads":        {own: never, second: first(0), third: first(4), to: "n3"},
		"all never lead":         {own: never, second: never, third: never},
		"the first never leads":  {own: first(1), second: Wish{Never: true, Priority: 9}, third: first(1)},
		"no other leads at all":  {own: Wish{}, second: never, third: never},
		"only one other does so": {own: never, second: never, third: first(0), to: "n3"},
	} {
		clock := &steady{now: time.Minute}
		y := yielder(t, clock, c.own, c.second, c.third)
		begun, to := clock.now, ""
		for to == "" && clock.now-begun < time.Minute {
			to = clock.tick(y)
		}
		if took := clock.now - begun; to != c.to || to != "" && (took < max(c.after, keepUp) || took > c.after+keepUp+2*Period) {
			t.Errorf("%s: to %q after %v, want %q after %v", name, to, took, c.to, c.after)
		}
	}
}

// TestYieldToTheSlow: a leader hands over to no voter that is behind, or silent.
func TestYieldToTheSlow(t *testing.T) {
	clock := &steady{now: time.Minute}
	y := yielder(t, clock, Wish{}, Wish{Priority: 1}, Wish{})
	index := uint64(8)
	y.Position = func() uint64 { return index }
	if took := clock.until(y); took < time.Hour {
		t.Errorf("it hands over to a voter that is behind, after %v", took)
	}
	index = 7
	if took := clock.until(y); took < 10*time.Second || took > 12*time.Second {
		t.Errorf("it hands over %v after the voter has caught up", took)
	}
	y.Watcher.cfg.DownAfter = time.Second
	if took := clock.until(y); took < time.Hour {
		t.Errorf("it hands over to a silent voter, after %v", took)
	}
}

// TestYieldInVain: a voter that does not take over, or cannot keep leading, gets leadership again only after longer and longer pauses.
func TestYieldInVain(t *testing.T) {
	clock := &steady{now: time.Minute}
	y := yielder(t, clock, Wish{}, Wish{Priority: 1}, Wish{})
	clock.until(y)
	for _, want := range []time.Duration{yieldPause, 2 * yieldPause, 4 * yieldPause, 8 * yieldPause, 16 * yieldPause, yieldMost, yieldMost} {
		y.note("n2", clock.now, errors.New("refused"))
		if took := clock.until(y); took < want || took > want+2*Period {
			t.Errorf("after a transfer that failed, the next comes %v later, want %v", took, want)
		}
	}
	clock = &steady{now: time.Minute}
	y = yielder(t, clock, Wish{}, Wish{Priority: 1}, Wish{})
	clock.until(y)
	for _, want := range []time.Duration{yieldPause, 2 * yieldPause, 4 * yieldPause} {
		y.note("n2", clock.now, nil)
		clock.now += 5 * time.Second // n2 leads for so long
		y.begin(clock.now)
		if took := clock.until(y); took < want || took > want+2*Period {
			t.Errorf("after a short term of the other, the next transfer comes %v later, want %v", took, want)
		}
	}
	y.note("n2", clock.now, nil)
	clock.now += 2 * yieldMost
	y.begin(clock.now)
	y.note("n2", clock.now, nil)
	clock.now += time.Hour
	y.begin(clock.now)
	if took := clock.until(y); took > 12*time.Second {
		t.Errorf("after a long term of the other, the next transfer comes %v later", took)
	}
}

// TestLearnerGetsNoVote: a member that keeps up gets its vote when it has said that it wants one.
func TestLearnerGetsNoVote(t *testing.T) {
	clock := &steady{now: time.Minute}
	for _, learner := range []bool{false, true} {
		y := yielder(t, clock, Wish{}, Wish{}, Wish{Learner: learner})
		w := y.Watcher
		w.cfg.Raft = func() Raft { return nonVoter{} }
		p := &Promoter{Watcher: w, Position: func() uint64 { return 7 }, since: map[string]time.Duration{}}
		due := ""
		w.heard["n3"].asked = false
		for range 20 {
			clock.now += Period
			if due = p.look(clock.now); due != "" {
				t.Fatal("a member got its vote before it was known whether it wants one")
			}
		}
		w.heard["n3"].asked = true
		for range 20 {
			clock.now += Period
			if due = p.look(clock.now); due != "" {
				break
			}
		}
		if (due == "n3") == learner {
			t.Errorf("wants no vote: %v; %q gets one", learner, due)
		}
	}
}

// nonVoter is a Raft in which n3 has no vote.
type nonVoter struct{ threeMembers }

func (nonVoter) Members() ([]raftnode.Member, error) {
	list, err := threeMembers{}.Members()
	list[2].Voter = false
	return list, err
}
