package cluster

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// TestLockReplacedInTheSameEntry: an owner is told OK late only if the entry that granted the lock has not replaced it.
func TestLockReplacedInTheSameEntry(t *testing.T) {
	for name, others := range map[string][]string{
		"SWAPDB":           {"SWAPDB 0 1"},
		"DEL, SET":         {"DEL lock", "SET lock you-of-database-1 NX PX 60000"},
		"RENAME":           {"RENAME yours lock"},
		"FLUSHDB, SET":     {"FLUSHDB", "SET lock you-of-database-1 NX PX 60000"},
		"nothing of these": nil,
	} {
		bubble(t, func(t *testing.T) {
			p := newLinked(t)
			p.do("SET lock you-of-database-1 NX PX 60000")
			p.do("MOVE lock 1")
			p.do("SET yours you-of-database-1 NX PX 60000")
			p.log.decides(40*ms, inTurn(commitSlowly, applyLater))
			p.log.set(func(l *fakeLog) { l.barrier = func() error { return errDeposed } })
			before := p.startMany(p.Node, "SET before them")
			synctest.Wait()
			mine := p.startMany(p.b, "SET lock me NX PX 5000")
			synctest.Wait()
			p.startMany(p.Node, append(others, "SET behind them")...)
			synctest.Wait()
			<-before
			time.Sleep(10 * ms)
			p.loseLeader()
			owner := "you-of-database-1"
			if others == nil {
				owner = "me"
			}
			told := <-mine
			p.expect(owner, "GET lock")
			if (told == "OK") != (owner == "me") {
				t.Errorf("%s: told %q, and the lock is that of %s", name, told, owner)
			}
		})
	}
}

// TestLateLeaseAndLaterWriteOfItsBatch: a lock whose reply is late lives for its whole lease, even if its batch has written it again.
func TestLateLeaseAndLaterWriteOfItsBatch(t *testing.T) {
	for later, told := range map[string]string{"INCR lock": "OK 6", "PEXPIREAT lock 946684804500 GT": "OK 1", "APPEND lock 1": "OK 2"} {
		for _, older := range []bool{false, true} {
			bubble(t, func(t *testing.T) {
				n := newTestNode(t)
				n.lead()
				if older {
					n.peers.Update() // one member may be of version 0.1.0
				}
				n.log.decides(2*time.Second, once(commitSlowly))
				n.expect(told, "SET lock 5 NX PX 4000", later)
				n.log.decides(0, nil)
				time.Sleep(3990 * ms)
				if got := n.do("EXISTS lock"); got != "1" {
					t.Errorf("%s, older %v: the lock is gone before its lease is over", later, older)
				}
			})
		}
	}
}

// TestFailedCallAsksForNoLease: a failed call that asked for a lease does not make a lease of the next call's deadline.
func TestFailedCallAsksForNoLease(t *testing.T) {
	fails := store.Command{Name: "fails", Flags: store.Write, Run: func(c *store.Ctx) store.Reply {
		c.SetString(0, []byte("x"), "v", c.DeadlineIn(1000))
		panic("a bug")
	}}
	bubble(t, func(t *testing.T) {
		n := newTestNode(t, fails)
		n.lead()
		n.do("FAILS")
		n.log.decides(2*time.Second, once(commitSlowly))
		n.expect("OK", "SET unix v PXAT 946684804000")
		n.expect("946684804000", "PEXPIRETIME unix")
	})
}
