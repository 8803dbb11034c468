package cluster

import (
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/raftfsm"
	"github.com/lockstep-io/lockstep/store"
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

// The requests that wait while an entry is in flight become one batch.
func TestBatchesGrowWithTheLoad(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.lead()
		n.log.decides(10*ms, always(commitSlowly))
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

// once gives the first entry with writes the verdict v, and commits every other entry.
func once(v verdict) func(raftfsm.Entry) verdict { return inTurn(v) }

// beginsTokens reports whether a write set only lets tokens begin above the time of day.
func beginsTokens(writes []byte) bool { return len(writes) == 9 && writes[0] == 35 }

// inTurn gives each entry with writes the next verdict of the list, but commits an entry by which only tokens begin. When the list is used up, it commits every entry.
func inTurn(list ...verdict) func(raftfsm.Entry) verdict {
	var given atomic.Int64
	return func(e raftfsm.Entry) verdict {
		if len(e.Writes) == 0 || beginsTokens(e.Writes) {
			return commit
		}
		if i := given.Add(1) - 1; i < int64(len(list)) {
			return list[i]
		}
		return commit
	}
}

func always(v verdict) func(raftfsm.Entry) verdict {
	return func(raftfsm.Entry) verdict { return v }
}

// Whatever the fate of the first proposal is, the request is executed once. It is answered when that fate is known.
func TestFateOfAProposal(t *testing.T) {
	for name, v := range map[string]verdict{
		"committed":                              commit,
		"refused, so tried again":                refuse,
		"unknown, then it took effect":           applyLater,
		"unknown, then superseded by another's":  supersedeLater,
		"unknown, then superseded by its own":    forget,
		"evaluated on a state that has moved on": overtake,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n := newTestNode(t)
				n.log.decides(0, once(v))
				n.lead()
				start := time.Now()
				n.expect("1 1", "INCR counter", "EXISTS counter")
				if took := time.Since(start); took > 100*ms {
					t.Errorf("took %v", took)
				}
				n.expect("1", "GET counter")
			})
		})
	}
}

// A node that no longer receives log entries cannot learn the outcome of a proposal: the client gets INDETERMINATE.
func TestFateUnknown(t *testing.T) {
	for name, lines := range map[string][]string{
		"a write":           {"INCR counter"},
		"reads and a write": {"GET counter", "INCR counter"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n := newTestNode(t)
				n.lead()
				n.log.decides(0, always(forget))
				n.log.set(func(l *fakeLog) { l.barrier = func() error { return errDeposed } })
				start := time.Now()
				for _, r := range n.Submit(n.call(lines...), nil) {
					if r.Str != string(ErrIndeterminate) {
						t.Errorf("got %q", r.Str)
					}
				}
				if took := time.Since(start); took != n.cfg.FailoverWait {
					t.Errorf("told after %v, want %v", took, n.cfg.FailoverWait)
				}
			})
		})
	}
}

// A node that closes answers all pending requests at once, because it will learn of no more entries.
func TestCloseAnswersWhatIsPending(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.lead()
		n.log.decides(0, always(forget))
		n.log.set(func(l *fakeLog) { l.barrier = func() error { return errDeposed } })
		pending := n.start("INCR counter")
		synctest.Wait()
		start := time.Now()
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		if got := <-pending; got != "-INDETERMINATE" || time.Since(start) > 0 {
			t.Errorf("got %q after %v", got, time.Since(start))
		}
		n.expect("-CLUSTERDOWN", "INCR counter")
	})
}

// The watchdog answers the clients of a proposal that hangs, whatever the later fate of the proposal.
func TestWatchdog(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		said := &linesOf{count: map[string]int{}}
		n.cfg.Logger = slog.New(said)
		n.lead()
		n.log.decides(10*time.Second, once(commitSlowly))
		start := time.Now()
		n.expect("-INDETERMINATE -INDETERMINATE", "INCR counter", "GET counter")
		if took := time.Since(start); took != n.cfg.FailoverWait {
			t.Errorf("told after %v, want %v", took, n.cfg.FailoverWait)
		}
		n.expect("2", "INCR counter") // waits for the first INCR, which took effect
		if took := time.Since(start); took < 10*time.Second {
			t.Errorf("the second batch went past the first after %v", took)
		}
		if said.of("An entry is not committed: the disk of this leader stalls, or its way to a majority; clients are told INDETERMINATE") != 1 {
			t.Errorf("the log does not say why: %v", said.count)
		}
	})
}

// The next request in the memory of an answered one must not get the earlier answer.
func TestAnswersDoNotGoToTheNextRequest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.lead()
		n.log.decides(10*ms, always(returnSlowly))
		for i := range 50 { // the pool may hand out other memory
			n.expect(strconv.Itoa(i+1), "INCR counter")
		}
	})
}

func TestReadsAreAskedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.lead()
		n.expect("OK", "SET k v")
		failures := 3
		n.log.set(func(l *fakeLog) {
			l.verify = func() error {
				if failures--; failures >= 0 {
					return errDeposed
				}
				return nil
			}
		})
		n.expect("v", "GET k")
		if failures != -1 {
			t.Errorf("%d failures left", failures)
		}
	})
}

// A leader that was deposed and elected again, between a read and the check that it leads, must not answer a stale read.
func TestReadsSurviveReelection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.lead()
		n.expect("OK", "SET lock old-owner")
		n.log.set(func(l *fakeLog) {
			l.verify = func() error {
				l.verify = nil
				l.term += 2
				var e raftfsm.Entry
				n.fsm.View(func(s *store.Store, seq uint64) {
					txn := s.Begin(store.Time{Lease: 1}, seq+1, store.Env{})
					txn.SetString(0, []byte("lock"), "new-owner", 0)
					e = raftfsm.Entry{Prev: seq, Lease: 1, Proposer: 99, Writes: txn.Writes().Bytes()}
				})
				// The entry is in this node's log, but this node has not applied it. Only a barrier would make the node apply
				// it.
				l.limbo = append(l.limbo, limboEntry{e.Append(nil), true})
				return nil
			}
		})
		n.expect("new-owner", "GET lock")
	})
}

// If no leader comes in time, the client learns that the request was not executed.
func TestRequestsWaitForALeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		start := time.Now()
		n.expect("-CLUSTERDOWN -CLUSTERDOWN", "INCR counter", "GET counter")
		// The times are compared in microseconds, because requests of the same instant give up some nanoseconds apart.
		if took := time.Since(start).Truncate(time.Microsecond); took != n.cfg.FailoverWait {
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

// Requests that wait when leadership is lost have not been executed. The next leader gets them.
func TestLeadershipLostWithAQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.lead()
		n.log.decides(100*ms, always(commitSlowly))
		first := n.start("INCR counter")
		synctest.Wait()
		second := n.start("INCR counter")
		synctest.Wait()
		n.depose() // while the first request is in flight
		if got := <-first; got != "1" {
			t.Errorf("first: %q", got)
		}
		time.Sleep(time.Second)
		n.log.decides(0, nil)
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

func (s *stopper) Kill() store.Reply            { return store.OK }
func (s *stopper) KillFunction() store.Reply    { return store.OK }
func (s *stopper) RunningFunction() store.Reply { return store.Nil }
func (s *stopper) BusyError() store.Error       { return store.ErrBusyScript }
func (s *stopper) TimeLimit() time.Duration     { return 0 }
func (s *stopper) Forget()                      {}
func (s *stopper) Settle()                      {}
func (s *stopper) Undo()                        {}

func (s *stopper) Abort() {
	s.aborted.Add(1)
	select {
	case s.abort <- struct{}{}:
	default:
	}
}

// If a node is deposed while it evaluates a batch, it stops the running script. Nothing of the batch takes effect on this node.
func TestLeadershipLostWhileEvaluating(t *testing.T) {
	bubble(t, func(t *testing.T) {
		stop := &stopper{abort: make(chan struct{})}
		var runs atomic.Int64
		n := newTestNode(t, store.Command{Name: "script", Flags: store.Scripting, Run: func(c *store.Ctx) store.Reply {
			if runs.Add(1) == 1 {
				<-stop.abort
			}
			c.SetString(0, []byte("script"), strconv.FormatInt(runs.Load(), 10), 0)
			return store.OK
		}})
		n.cfg.Scripts = stop
		n.lead()
		script := n.start("SCRIPT")
		synctest.Wait()
		behind := n.start("INCR counter")
		synctest.Wait()
		n.log.decides(0, always(refuse))
		n.depose()
		synctest.Wait()
		if stop.aborted.Load() == 0 {
			t.Error("the script was not stopped")
		}
		n.log.decides(0, nil)
		n.lead()
		if a, b := <-script, <-behind; a != "OK" || b != "1" {
			t.Errorf("got %q and %q, want OK and 1", a, b)
		}
		n.expect("2", "GET script")
	})
}
