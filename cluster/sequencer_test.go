package cluster

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lockstep/raftfsm"
	"lockstep/store"
)

func TestReadsAndRefusedLocksProposeNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.lead()
		n.expect("OK", "SET lock owner-1 NX PX 30000")
		proposals, verified := n.log.count()
		if proposals != 2 || verified != 0 {
			t.Errorf("%d proposals and %d checks after the term's first entry and a write, want 2 and 0", proposals, verified)
		}
		n.expect("owner-1", "GET lock")
		n.expect("nil", "SET lock owner-2 NX PX 30000")
		n.expect("owner-1 1 nil", "GET lock", "EXISTS lock", "GET nothing")
		n.expect("0", "DEL nothing")
		proposals, verified = n.log.count()
		if proposals != 2 || verified != 4 {
			t.Errorf("%d proposals and %d checks after four batches that wrote nothing, want 2 and 4", proposals, verified)
		}
	})
}

// What waits while an entry is in flight becomes one batch.
func TestBatchesGrowWithTheLoad(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.lead()
		n.log.delay = 10 * ms
		n.log.decide = func(raftfsm.Entry) verdict { return commitSlowly }
		first := n.start("INCR first")
		synctest.Wait()
		var rest []<-chan string
		for i := range 50 {
			rest = append(rest, n.start("INCR counter", fmt.Sprintf("SET k%d v", i)))
		}
		if got := <-first; got != "1" {
			t.Errorf("first: %q", got)
		}
		seen := map[string]bool{}
		for _, r := range rest {
			seen[<-r] = true
		}
		if len(seen) != 50 || !seen["1 OK"] || !seen["50 OK"] {
			t.Errorf("replies %v", seen)
		}
		if proposals, _ := n.log.count(); proposals != 3 {
			t.Errorf("%d proposals, want 3: the term's first, the first request, all the others", proposals)
		}
	})
}

// once makes a log decide v for the first write of a request, and commit
// everything else.
func once(v verdict) func(raftfsm.Entry) verdict {
	var done atomic.Bool
	return func(e raftfsm.Entry) verdict {
		if len(e.Writes) > 0 && done.CompareAndSwap(false, true) {
			return v
		}
		return commit
	}
}

// Whatever becomes of the first proposal, the client is told the truth and the
// request is executed once.
func TestFateOfAProposal(t *testing.T) {
	for _, test := range []struct {
		name    string
		verdict verdict
		want    string // the reply
		value   string // of the counter afterwards
	}{
		{"committed", commit, "1", "1"},
		{"refused, so tried again", refuse, "1", "1"},
		{"unknown, then it took effect", applyLater, "1", "1"},
		{"unknown, then superseded, so tried again", supersedeLater, "1", "1"},
		{"evaluated on a state that is gone, so tried again", overtake, "1", "1"},
		{"never heard of again", forget, "-INDETERMINATE", "nil"},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n := newTestNode(t)
				n.log.decide = once(test.verdict)
				n.lead()
				start := time.Now()
				n.expect(test.want, "INCR counter")
				took := time.Since(start)
				if test.verdict == forget {
					// The entry of the node's next term has taken its place …
					if took > n.cfg.FailoverWait {
						t.Errorf("took %v", took)
					}
				} else if took > 100*ms {
					t.Errorf("took %v", took)
				}
				n.log.decide = nil
				n.expect(test.value, "GET counter")
			})
		})
	}
}

// A proposal that hangs must not hold its clients for ever, and whatever
// becomes of it later, they have had their answer.
func TestWatchdog(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.lead()
		n.log.delay = 10 * time.Second
		n.log.decide = once(commitSlowly)
		start := time.Now()
		n.expect("-INDETERMINATE -INDETERMINATE", "INCR counter", "GET counter")
		if took := time.Since(start); took != n.cfg.FailoverWait {
			t.Errorf("told after %v, want %v", took, n.cfg.FailoverWait)
		}
		n.expect("2", "INCR counter") // waits for the first, which took effect
		if took := time.Since(start); took < 10*time.Second {
			t.Errorf("the second batch went past the first after %v", took)
		}
	})
}

func TestReadsAreAskedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.lead()
		n.expect("OK", "SET k v")
		failures := 3
		n.log.verify = func() error {
			if failures--; failures >= 0 {
				return errDeposed
			}
			return nil
		}
		n.expect("v", "GET k")
		if failures != -1 {
			t.Errorf("%d failures left", failures)
		}
	})
}

// A leader that was deposed and elected again between evaluation and check has
// not applied what its predecessor wrote: the check alone would let it answer
// a stale read.
func TestReadsSurviveReelection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.lead()
		n.expect("OK", "SET lock old-owner")
		other := newTestNode(t)
		other.lead()
		n.log.verify = func() error {
			n.log.verify = nil
			n.log.term += 2
			var e raftfsm.Entry
			n.fsm.View(func(s *store.Store, seq uint64) {
				txn := s.Begin(store.Time{Lease: 1}, seq+1, store.Env{})
				txn.SetString(0, []byte("lock"), "new-owner", 0)
				e = raftfsm.Entry{Prev: seq, Lease: 1, Proposer: 99, Writes: txn.Writes().Bytes()}
			})
			// In this node's log, not applied yet: a barrier would do that.
			n.log.limbo = append(n.log.limbo, limboEntry{e.Append(nil), true})
			return nil
		}
		n.expect("new-owner", "GET lock")
	})
}

// Without a leader a request waits; when one is found in time it is executed,
// else the client is told that it was not.
func TestRequestsWaitForALeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		start := time.Now()
		n.expect("-CLUSTERDOWN -CLUSTERDOWN", "INCR counter", "GET counter")
		if took := time.Since(start); took != n.cfg.FailoverWait {
			t.Errorf("gave up after %v, want %v", took, n.cfg.FailoverWait)
		}
		waiting := n.start("INCR counter")
		time.Sleep(n.cfg.FailoverWait - time.Second)
		n.lead()
		if got := <-waiting; got != "1" {
			t.Errorf("got %q, want 1", got)
		}
	})
}

// Requests that wait when leadership goes were not executed: the next leader
// has them again.
func TestLeadershipLostWithAQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.lead()
		n.log.delay = 100 * ms
		n.log.decide = func(raftfsm.Entry) verdict { return commitSlowly }
		first := n.start("INCR counter")
		synctest.Wait()
		second := n.start("INCR counter")
		synctest.Wait()
		n.depose() // while the first is in flight
		if got := <-first; got != "1" {
			t.Errorf("first: %q", got)
		}
		time.Sleep(time.Second)
		n.log.decide = nil
		n.lead()
		if got := <-second; got != "2" {
			t.Errorf("second: %q", got)
		}
	})
}

// stopper counts the times that a script is told to stop.
type stopper struct {
	aborted atomic.Int64
	abort   chan struct{}
}

func (s *stopper) Kill() store.Reply { return store.OK }

func (s *stopper) Abort() {
	s.aborted.Add(1)
	select {
	case s.abort <- struct{}{}:
	default:
	}
}

// A node that is deposed while it evaluates stops the script, and nothing of
// the batch takes effect here.
func TestLeadershipLostWhileEvaluating(t *testing.T) {
	bubble(t, func(t *testing.T) {
		stop := &stopper{abort: make(chan struct{})}
		runs := 0
		n := newTestNode(t, store.Command{Name: "script", Flags: store.Scripting, Run: func(c *store.Ctx) store.Reply {
			if runs++; runs == 1 {
				<-stop.abort
			}
			c.SetString(0, []byte("script"), "ran", 0)
			return store.OK
		}})
		n.cfg.Scripts = stop
		n.lead()
		n.log.decide = func(e raftfsm.Entry) verdict {
			if n.routes.get().seq == nil || runs == 1 {
				return refuse
			}
			return commit
		}
		script := n.start("SCRIPT")
		synctest.Wait()
		behind := n.start("INCR counter")
		synctest.Wait()
		n.depose()
		synctest.Wait()
		if stop.aborted.Load() == 0 {
			t.Error("the script was not stopped")
		}
		runs++
		n.lead()
		if a, b := <-script, <-behind; a != "OK" || b != "1" {
			t.Errorf("got %q and %q, want OK and 1", a, b)
		}
		n.expect("ran", "GET script")
	})
}
