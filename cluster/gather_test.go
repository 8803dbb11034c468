package cluster

import (
	"fmt"
	"testing"
	"time"

	"lockstep/store"
)

// Those who have just been answered send again, one after the other: they are waited
// for and become one batch.
func TestBatchWaitsForThoseWhoWereAnswered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.lead()
		n.log.decides(ms, always(commitSlowly))
		for range 2 {
			before, _ := n.log.count()
			var all []<-chan string
			for i := range 10 {
				all = append(all, n.start(fmt.Sprintf("SET k%d v", i)))
				time.Sleep(50 * time.Microsecond)
			}
			for _, r := range all {
				if got := <-r; got != "OK" {
					t.Errorf("a client was told %q", got)
				}
			}
			// The first time nobody is expected, so the first one goes alone.
			if proposals, _ := n.log.count(); proposals-before > 2 {
				t.Errorf("%d proposals", proposals-before)
			}
		}
		before, _ := n.log.count()
		n.expect("OK", "SET alone v")
		start := time.Now()
		n.expect("OK", "SET alone v")
		if took := time.Since(start); took > 2*ms {
			t.Errorf("a client alone waited for others: %v", took)
		}
		if proposals, _ := n.log.count(); proposals-before != 2 {
			t.Errorf("%d proposals for two requests, one after the other", proposals-before)
		}
	})
}

// A lock is released: what its last owner sends next, and the try of the one who hears
// of it, become one batch. Where nobody hears of it nobody is waited for.
func TestBatchWaitsForThoseWhoWereTold(t *testing.T) {
	for receivers, want := range []int{3, 2} {
		t.Run(fmt.Sprint(receivers, " receivers"), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n := newTestNode(t)
				n.cfg.Receivers = func(store.PublishKind, string) int { return receivers }
				n.lead()
				n.log.decides(ms, always(commitSlowly))
				before, _ := n.log.count()
				n.expect(fmt.Sprint(receivers), "PUBLISH released lock")
				owner := n.start("SET latch v")
				time.Sleep(200 * time.Microsecond)
				waiter := n.start("SET lock waiter NX PX 30000")
				if a, b := <-owner, <-waiter; a != "OK" || b != "OK" {
					t.Errorf("the owner was told %q, the waiter %q", a, b)
				}
				if proposals, _ := n.log.count(); proposals-before != want {
					t.Errorf("%d proposals, want %d", proposals-before, want)
				}
			})
		})
	}
}

// When those who are waited for do not come, it is not for long, and soon hardly anybody
// is waited for any more.
func TestBatchWaitsInVain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.cfg.Receivers = func(store.PublishKind, string) int { return 10 }
		n.lead()
		n.log.decides(10*ms, always(commitSlowly))
		waits := func() (waits int) {
			for range gatherRetry {
				n.expect("10", "PUBLISH news text")
				start := time.Now()
				n.expect("OK", "SET k v")
				switch took := time.Since(start); {
				case took > 10*ms+gatherLimit:
					t.Errorf("a write took %v", took)
				case took > 10*ms:
					waits++
				}
			}
			return waits
		}
		if first := waits(); first == 0 || first > 5 {
			t.Errorf("of the first %d writes %d waited for others", gatherRetry, first)
		}
		waits() // it learns that it was not by chance
		if later := waits() + waits() + waits(); later == 0 || later > 3 {
			t.Errorf("of %d writes %d waited for others", 3*gatherRetry, later)
		}
	})
}

// Who came just before the wait is not waited for.
func TestWaitingForThoseWhoAreThere(t *testing.T) {
	s := sequencer{expected: 2, queue: []*request{{}}}
	if !s.awaits() || s.want != 2 {
		t.Errorf("one of two is there, and %d are waited for", s.want)
	}
	s.want, s.queue = 0, append(s.queue, &request{})
	if s.awaits() || s.want != 0 {
		t.Errorf("both are there, and %d are waited for", s.want)
	}
}

// What waiting has cost and saved decides how soon it is tried again.
func TestWaitingIsWeighed(t *testing.T) {
	s := sequencer{expected: 50, lastTook: ms}
	for _, x := range []struct {
		waited, came int
		took         time.Duration
		pause        int
	}{
		{10, 40, ms, 0},
		{10, 9, ms / 2, 1},  // less than a quarter of those who were expected
		{30, 15, 3 * ms, 3}, // it saved 15 a batch, and cost 30 three
		{30, 15, ms / 4, 0},
		{30, 15, 3 * ms, 3},
		{30, 15, 3 * ms, 7},
		{10, 40, ms, 0},
		{10, 40, ms, 0},
		{30, 15, 3 * ms, 3},
	} {
		s.gatherPause = 0
		s.learn(x.waited, x.came, x.took)
		if s.gatherPause != x.pause {
			t.Errorf("%+v: the next %d batches wait for nobody", x, s.gatherPause)
		}
	}
}
