package cluster

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/raftfsm"
	"github.com/lockstep-io/lockstep/store"
)

// expired returns how many keys the log has deleted at their deadline.
func (n *testNode) expired() (count uint64) {
	n.fsm.View(func(s *store.Store, _ uint64) { count = s.Expired() })
	return count
}

// The leader deletes an untouched key within 100 ms after its deadline, never before.
func TestActiveExpiry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.lead()
		n.expect("OK OK OK", "SET a v PX 700", "SET b v PX 700", "SET c v PX 1700")
		for _, step := range []struct {
			sleep time.Duration
			want  uint64
		}{{699 * ms, 0}, {100 * ms, 2}, {899 * ms, 2}, {100 * ms, 3}} {
			time.Sleep(step.sleep)
			if got := n.expired(); got != step.want {
				t.Errorf("%d keys deleted, want %d", got, step.want)
			}
		}
		proposals, _ := n.log.count()
		time.Sleep(time.Hour)
		if after, _ := n.log.count(); after != proposals {
			t.Errorf("%d entries in an hour without keys", after-proposals)
		}
	})
}

// While a deadline is pending the leader logs the time once a second; without
// one it logs nothing.
func TestStamps(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.lead()
		n.expect("OK", "SET plain v")
		before, _ := n.log.count()
		time.Sleep(time.Hour)
		if after, _ := n.log.count(); after != before {
			t.Errorf("%d entries in an idle hour without deadlines", after-before)
		}
		n.expect("OK", "SET lock v PX 3600000")
		before, _ = n.log.count()
		time.Sleep(100 * time.Second)
		if after, _ := n.log.count(); after-before < 99 || after-before > 101 {
			t.Errorf("%d stamps in 100 s with a deadline pending", after-before)
		}
		n.log.set(func(l *fakeLog) {
			last := l.proposals[len(l.proposals)-1]
			if age := n.clock.Now().Lease - last.Lease; age > 1001 || len(last.Writes) != 0 {
				t.Errorf("the last stamp is %d ms old and has %d bytes of writes", age, len(last.Writes))
			}
		})
	})
}

// Reads that keep the leader busy all the time must not keep it from logging
// the time.
func TestStampsUnderReads(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.lead()
		n.expect("OK", "SET lock v PX 3600000")
		n.log.set(func(l *fakeLog) { l.verify = func() error { time.Sleep(ms); return nil } })
		stop := make(chan struct{})
		defer close(stop)
		for range 3 { // so many that one always waits
			go func() {
				for {
					select {
					case <-stop:
						return
					default:
						n.Submit(n.call("GET lock"), nil)
					}
				}
			}()
		}
		before, reads := n.log.count()
		time.Sleep(10 * time.Second)
		after, readsAfter := n.log.count()
		if after-before < 9 || after-before > 11 {
			t.Errorf("%d stamps in 10 s of reads (%d batches)", after-before, readsAfter-reads)
		}
	})
}

// alive reports whether a read finds a key.
func (n *testNode) alive(key string) bool { return n.do("EXISTS "+key) == "1" }

// A lease counts from the reply, however long the log took, and is over at most 3 ms after its time.
func TestLeaseCountsFromTheReply(t *testing.T) {
	for _, late := range []time.Duration{0, 3 * ms, 250 * ms, 2000 * ms} {
		t.Run(late.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n := newTestNode(t)
				n.lead()
				time.Sleep(337 * time.Microsecond)
				n.log.decides(late, once(commitSlowly))
				n.expect("OK", "SET lock v NX PX 1000")
				time.Sleep(999*ms + 990*time.Microsecond)
				if !n.alive("lock") {
					t.Error("the lease ended before its time")
				}
				if n.expired() != 0 {
					t.Error("deleted before its time")
				}
				time.Sleep(3 * ms)
				if n.alive("lock") {
					t.Error("the lease did not end")
				}
				time.Sleep(100 * ms)
				if n.expired() != 1 {
					t.Error("not deleted within 100 ms")
				}
			})
		})
	}
}

// The next leader keeps every lease for as long as its predecessor would have.
func TestLeaseCountsFromTheReplyAfterFailover(t *testing.T) {
	t.Run("slow log", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			n := newTestNode(t)
			n.lead()
			n.log.decides(2*time.Second, once(commitSlowly))
			n.expect("OK", "SET lock v NX PX 1000")
			n.expect("OK", "SET later v") // with a stamp that is not late
			n.mustKeep("lock", 999*ms)
		})
	})
	t.Run("slow script", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			n := newTestNode(t, scriptCommand)
			n.lead()
			n.expectTogether([]string{"OK", "OK", "1"}, "SET lock v NX PX 3000", "SCRIPT 95ms", "INCR counter")
			n.mustKeep("lock", 2999*ms)
		})
	})
}

// A slow write lengthens the leases that it has set, and no others, even at the next election.
func TestSlowWriteLengthensNoOtherLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.lead()
		n.expect("OK", "SET other v PX 10000")
		other := time.Now()
		n.log.decides(2*time.Second, once(commitSlowly))
		n.expect("OK OK OK", "SET lock v PX 4000", "SET unix v PXAT 946684811000", "SET moved v PX 4000")
		lock := time.Now()
		n.expect("946684811000", "PEXPIRETIME unix")
		n.log.decides(0, nil)
		n.expect("OK", "RENAME moved now")
		for range 3 {
			n.depose()
			synctest.Wait()
			n.lead()
		}
		time.Sleep(time.Until(lock.Add(3999 * ms)))
		n.expect("1 1", "EXISTS lock", "EXISTS now")
		time.Sleep(4 * latenessKept * ms)
		n.expect("0 0", "EXISTS lock", "EXISTS now")
		time.Sleep(time.Until(other.Add(9999 * ms)))
		n.expect("1", "EXISTS other")
		time.Sleep(4 * latenessKept * ms)
		n.expect("0", "EXISTS other")
	})
}

// On a slow disk, a lease is granted all the same, and lasts for its time from the reply and not much longer.
func TestLeaseOnASlowDisk(t *testing.T) {
	for _, took := range [][]time.Duration{{100 * ms, 100 * ms, 100 * ms}, {400 * ms, 400 * ms, 400 * ms}, {60 * ms, 900 * ms, ms}, {900 * ms, 300 * ms, 500 * ms, ms}} {
		for i := range 4 {
			replaced, parted := i&1 != 0, i&2 != 0
			bubble(t, func(t *testing.T) {
				n := newTestNode(t, badCommands...)
				n.lead()
				writes := 0
				n.log.decides(0, func(raftfsm.Entry) verdict {
					time.Sleep(took[min(writes, len(took)-1)])
					writes++
					return commit
				})
				lock := n.start("SET lock v NX PX 4000")
				synctest.Wait()
				// When leases were lengthened by too much, the next batch takes that back, also if it is evaluated again.
				next := n.start("SET next v")
				synctest.Wait()
				if parted {
					n.start("FILL huge 65")
				}
				if got := <-lock; got != "OK" {
					t.Errorf("whoever took the lock was told %q", got)
				}
				replied := time.Now()
				n.log.decides(0, nil)
				if got := <-next; got != "OK" {
					t.Errorf("the next one was told %q", got)
				}
				if replaced {
					n.depose()
					synctest.Wait()
					n.lead()
				}
				time.Sleep(time.Until(replied.Add(3999 * ms)))
				n.expect("1", "EXISTS lock")
				time.Sleep(4 * latenessKept * ms)
				n.expect("0", "EXISTS lock")
			})
		}
	}
}

// mustKeep deposes the leader and elects it again. It checks that a key lives for d from now, and not 10 s longer.
func (n *testNode) mustKeep(key string, d time.Duration) {
	n.t.Helper()
	replied := time.Now()
	n.depose()
	synctest.Wait()
	n.lead()
	time.Sleep(time.Until(replied.Add(d)))
	if !n.alive(key) {
		n.t.Errorf("%s was gone less than %v after the reply", key, d)
	}
	time.Sleep(10 * time.Second)
	if n.alive(key) {
		n.t.Errorf("%s lives for ever", key)
	}
}

// A new leader serves nobody before it has applied what earlier leaders have written. That time counts as leaderless, too.
func TestTheBarrierTakesNothingFromLeases(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.lead()
		n.expect("OK", "SET lock v PX 1000")
		for range 2 {
			time.Sleep(400 * ms)
			n.log.set(func(l *fakeLog) { l.contact = time.Now(); l.barrier = func() error { return errDeposed } })
			n.depose()
			n.elect()
			time.Sleep(5 * time.Second) // elected, but the barrier does not end
			n.log.set(func(l *fakeLog) { l.barrier = nil })
			time.Sleep(20 * ms)
			if s := n.Status(); !n.alive("lock") || s.LastLeaderless < 5*time.Second {
				t.Fatalf("the lock is there: %v, without a leader: %v", n.alive("lock"), s.LastLeaderless)
			}
		}
		time.Sleep(300 * ms)
		if n.alive("lock") {
			t.Error("the lock outlives its lease by more than the time without a leader")
		}
	})
}

// The time without a leader does not count against a lease; the time under a leader does.
func TestFailoverLengthensLeasesByTheLeaderlessTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.lead()
		n.expect("OK", "SET lock v PX 1000")
		time.Sleep(400 * ms)
		n.depose()
		n.log.set(func(l *fakeLog) { l.contact = time.Now() })
		time.Sleep(5 * time.Second) // nobody leads
		n.lead()
		if s := n.Status(); s.Leaderless != 5*time.Second || s.LastLeaderless != 5*time.Second {
			t.Errorf("%v and %v without a leader, want 5s", s.Leaderless, s.LastLeaderless)
		}
		time.Sleep(590 * ms)
		if !n.alive("lock") {
			t.Error("the time without a leader was counted")
		}
		time.Sleep(20 * ms)
		if n.alive("lock") {
			t.Error("the time before the election was not counted")
		}
	})
}

// An ephemeral node deletes expired keys under load, too.
func TestEphemeralNodeExpiresUnderLoad(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newEphemeralNode(t)
		n.expect("OK", "SET lock v PX 500")
		start := time.Now()
		for n.alive("lock") {
			n.do("INCR counter")
			time.Sleep(130 * time.Microsecond)
			if time.Since(start) > time.Second {
				t.Fatal("the lease has not ended")
			}
		}
		if took := time.Since(start); took < 500*ms || took > 510*ms {
			t.Errorf("the lease ended after %v", took)
		}
		n.expect("OK", "SET lock v PX 500")
		time.Sleep(600 * ms)
		if s := n.Status(); s.Expired != 2 || s.Keys[0] != 1 {
			t.Errorf("%d keys left, %d expired", s.Keys[0], s.Expired)
		}
	})
}

// TTLs up to the largest that clients use neither overflow nor expire.
func TestHugeTTL(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.lead()
		n.expect("OK", "SET lock v NX PX 2700000000000000")
		time.Sleep(time.Hour)
		n.expect("2699999996400000 v", "PTTL lock", "GET lock")
	})
	// However far the only deadline is away, the leader is not kept busy.
	for _, ttl := range []int64{1 << 42, 9_000_000_000_000, 9_223_372_036_854, 10_000_000_000_000, 13_900_000_000_000, 9_200_000_000_000_000_000} {
		bubble(t, func(t *testing.T) {
			n := newTestNode(t)
			n.lead()
			n.expect("OK", fmt.Sprintf("SET lock v NX PX %d", ttl))
			before := n.batches.Load()
			time.Sleep(time.Minute)
			if after := n.batches.Load(); after-before > 62 {
				t.Errorf("TTL %d: %d batches in a minute", ttl, after-before)
			}
		})
	}
}

// The deletion of expired keys with very long names makes no entry too large for the log.
func TestExpiryOfVeryLongNames(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.cfg.Limits.Entry = store.MaxEntry
		n.lead()
		largest := 0
		n.log.decides(0, func(e raftfsm.Entry) verdict {
			largest = max(largest, len(e.Writes))
			return commit
		})
		long := strings.Repeat("x", store.MaxEntry+30_000)
		n.expect("OK", "SET a"+long+" v PX 100")
		n.expect("OK", "SET b"+long+" v PX 100")
		n.log.decides(200*ms, once(commitSlowly))
		blocker := n.start("SET a b")
		synctest.Wait()
		n.log.decides(0, func(e raftfsm.Entry) verdict {
			largest = max(largest, len(e.Writes))
			return commit
		})
		if got := n.do("SET c" + long + " v"); got != "OK" {
			t.Errorf("who comes then is told %.200s", got)
		}
		<-blocker
		if largest > maxEntryBytes {
			t.Errorf("an entry has %d bytes", largest)
		}
		n.expect("0", "EXISTS a"+long)
	})
}

// TestNoLeaseEndsInItsOwnBatch: a lease does not end within the batch that grants it, because its owner has not been told of it
// yet.
func TestNoLeaseEndsInItsOwnBatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t, scriptCommand)
		n.lead()
		got := n.together("SET lock me NX PX 8", "SCRIPT 12ms", "SET lock you NX PX 60000")
		if got[0] == "OK" && got[2] == "OK" {
			t.Errorf("both were told OK at one instant: %q", got)
		}
	})
	bubble(t, func(t *testing.T) { // no other client wants the lock; the lease is over when its owner is told of it
		n := newTestNode(t, scriptCommand)
		n.lead()
		got := n.together("SET lock me NX PX 8", "SCRIPT 12ms", "EXISTS lock")
		t.Log(got, n.do("GET lock"))
		if got[2] != "1" {
			t.Errorf("told %q", got)
		}
	})
}

// TestKeysInGraceHoldUpNoOthers: a key that lives on after its deadline, because the reply to its owner was late, does not keep
// other keys from being deleted.
func TestKeysInGraceHoldUpNoOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.lead()
		n.expect("OK", "SET lock me PX 3500")
		at := strconv.FormatInt(time.Now().Add(3300*ms).UnixMilli(), 10)
		lines := make([]string, 600)
		for i := range lines {
			lines[i] = "SET key-" + strconv.Itoa(i) + " v PXAT " + at
		}
		n.log.decides(2400*ms, once(commitSlowly))
		n.do(lines...)
		time.Sleep(1300 * ms) // until 3.7 s after the lock was set
		before := n.batches.Load()
		if got := n.expired(); got < 1 {
			t.Errorf("nothing has been deleted 200 ms after the deadline of the lock")
		}
		for waited := time.Duration(0); n.expired() == 0; waited += 50 * ms {
			time.Sleep(50 * ms)
			t.Log(waited, n.expired(), n.batches.Load()-before, "batches")
		}
	})
}
