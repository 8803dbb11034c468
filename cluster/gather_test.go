package cluster

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/fair"
	"github.com/lockstep-io/lockstep/store"
)

// Clients that have just been answered send again, one after the other: the leader waits
// for them, and their requests become one batch.
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
			// At first the leader expects nobody, so the first request is a batch of its own.
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

// The request of those who were told of a released lock joins the batch of the publisher's next request.
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

// When the requests that a batch waits for do not come, it does not wait for long, and soon
// hardly any batch waits any more.
func TestBatchWaitsInVain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.cfg.Receivers = func(store.PublishKind, string) int { return 10 }
		n.lead()
		n.log.decides(10*ms, always(commitSlowly))
		waits := func() (waits int) {
			for range fair.GatherRetry {
				n.expect("10", "PUBLISH news text")
				start := time.Now()
				n.expect("OK", "SET k v")
				switch took := time.Since(start); {
				case took > 10*ms+fair.GatherLimit:
					t.Errorf("a write took %v", took)
				case took > 10*ms:
					waits++
				}
			}
			return waits
		}
		if first := waits(); first == 0 || first > 5 {
			t.Errorf("of the first %d writes %d waited for others", fair.GatherRetry, first)
		}
		waits() // the leader learns that this was not by chance
		if later := waits() + waits() + waits(); later == 0 || later > 3 {
			t.Errorf("of %d writes %d waited for others", 3*fair.GatherRetry, later)
		}
	})
}

// expecting makes a node lead and answer three requests. So its next batch waits for three requests.
func (n *testNode) expecting() {
	n.lead()
	n.expectThree()
}

func (n *testNode) expectThree() {
	n.log.decides(ms, always(commitSlowly))
	alone := n.start("SET a v")
	synctest.Wait()
	three := []<-chan string{n.start("SET b v"), n.start("SET c v")}
	<-alone
	synctest.Wait() // if the third came before the leader has counted, the leader would expect a fourth
	three = append(three, n.start("SET a v"))
	for _, r := range three {
		<-r
	}
	synctest.Wait()
}

// A batch that waits for more requests meanwhile evaluates those that are there.
func TestBatchIsEvaluatedWhileItWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		var evaluated []time.Duration
		start := time.Now()
		n.cfg.Receivers = func(store.PublishKind, string) int {
			evaluated = append(evaluated, time.Since(start))
			return 0
		}
		n.expecting()
		before, _ := n.log.count()
		start = time.Now()
		var all []<-chan string
		for i := range 3 {
			all = append(all, n.start("PUBLISH released lock", fmt.Sprintf("SET k%d v", i)))
			time.Sleep(200 * time.Microsecond)
		}
		for _, r := range all {
			if got := <-r; got != "0 OK" {
				t.Errorf("a client was told %q", got)
			}
		}
		if proposals, _ := n.log.count(); proposals-before != 1 {
			t.Errorf("%d proposals", proposals-before)
		}
		// The second request is not evaluated by itself, because the third comes so soon after it.
		if want := []time.Duration{0, 400 * time.Microsecond, 400 * time.Microsecond}; !slices.Equal(evaluated, want) {
			t.Errorf("evaluated after %v, want %v", evaluated, want)
		}
	})
}

// While a batch waits, another leader writes an entry. So all of the batch is evaluated again.
func TestStateMovesOnWhileABatchWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		evaluated := 0
		n.cfg.Receivers = func(store.PublishKind, string) int {
			evaluated++
			return 0
		}
		n.expecting()
		all := []<-chan string{n.start("INCR counter", "PUBLISH news text")}
		synctest.Wait()
		n.log.set(func(l *fakeLog) {
			l.otherLeader(func(txn *store.Txn) { txn.SetString(0, []byte("counter"), "10", 0) })
		})
		all = append(all, n.start("INCR counter", "PUBLISH news text"), n.start("INCR counter", "PUBLISH news text"))
		var told []string
		for _, r := range all {
			told = append(told, <-r)
		}
		if slices.Sort(told); !slices.Equal(told, []string{"11 0", "12 0", "13 0"}) {
			t.Errorf("the clients were told %v", told)
		}
		if evaluated != 4 {
			t.Errorf("%d requests evaluated, want the first twice and nobody on a state that has moved on", evaluated)
		}
	})
}

// A request that spoils the batch may also come while the batch waits.
func TestBatchIsSpoiledWhileItWaits(t *testing.T) {
	for _, spoiler := range []string{"PANIC", "FILL huge 65"} {
		t.Run(spoiler, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n := newTestNode(t, badCommands...)
				n.expecting()
				before, _ := n.log.count()
				early := n.start("INCR counter")
				synctest.Wait()
				refused := n.start(spoiler)
				synctest.Wait()
				late := n.start("INCR counter")
				if got := <-refused; got != "-ERR" {
					t.Errorf("the client that spoils was told %q", got)
				}
				if got := <-early; got != "1" {
					t.Errorf("who came before it was told %q", got)
				}
				if got := <-late; got != "2" {
					t.Errorf("who came with it was told %q", got)
				}
				if proposals, _ := n.log.count(); proposals-before != 1 {
					t.Errorf("%d proposals, want 1: all but the spoiler are evaluated again together", proposals-before)
				}
			})
		})
	}
}
