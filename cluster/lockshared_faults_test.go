package cluster

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/raftfsm"
	"github.com/lockstep-io/lockstep/store"
)

// A client that left with its lock comes back, and renews a lease that MAXHOLD does not let grow, or takes the lock again: its old node does
// not release the lock.
func TestFullLeaseIsNotReleased(t *testing.T) {
	for _, touch := range []string{"LOCK.RENEW lock b PX 60000", "LOCK.ACQUIRE lock b PX 60000 REENTRANT"} {
		bubble(t, func(t *testing.T) {
			p := newPair(t)
			p.do("LOCK.ACQUIRE lock a PX 60000")
			gone, _ := p.wait(p.b, "LOCK.ACQUIRE lock b PX 60000 WAIT 50000 MAXHOLD 60000")
			p.log.decides(40*ms, always(commitSlowly))
			release := p.start("DEL lock")
			synctest.Wait()
			p.b.Abandon(gone)
			again := p.start(touch)
			<-release
			p.log.decides(0, nil)
			<-again
			time.Sleep(time.Second)
			if got := p.do("LOCK.ACQUIRE lock c PX 60000"); got != "" {
				t.Errorf("after %s another owner gets the lock: %q", touch, got)
			}
		})
	}
}

// MAXHOLD ends a lock, although each renewal is late.
func TestMaxHoldEndsLateRenewals(t *testing.T) {
	for _, again := range []string{"LOCK.RENEW lock a PX 1000", "LOCK.ACQUIRE lock a PX 1000 REENTRANT"} {
		bubble(t, func(t *testing.T) {
			p := newPair(t)
			p.do("LOCK.ACQUIRE lock a PX 1000 MAXHOLD 5000")
			p.log.decides(100*ms, always(commitSlowly))
			began := time.Now()
			for token := p.do("LOCK.TOKEN lock"); p.do("LOCK.TOKEN lock") == token; p.do(again) {
				if time.Since(began) > 6*time.Second {
					t.Fatalf("%s: MAXHOLD 5000 is not over", again)
				}
			}
		})
	}
}

// A further hold that MAXHOLD cuts short has the time that its reply says, however late the reply is.
func TestFullLeaseHasTheTimeOfItsReply(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		p.do("LOCK.ACQUIRE lock me PX 1000 MAXHOLD 1000")
		time.Sleep(500 * ms)
		p.log.decides(2*time.Second, once(commitSlowly))
		got := p.doOn(p.b, "LOCK.ACQUIRE lock me PX 1000 REENTRANT")
		if !strings.HasSuffix(got, " 500 2]") {
			t.Fatal(got)
		}
		time.Sleep(499 * ms)
		if you := p.do("LOCK.ACQUIRE lock you PX 60000"); you != "" {
			t.Errorf("another owner has the lock: %q", you)
		}
		time.Sleep(3 * time.Second)
		p.expect("0", "EXISTS lock")
	})
}

// A second wait of an owner that has got the lock keeps nobody out.
func TestSecondWaitOfAHolder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		p.do("LOCK.ACQUIRE k x PX 60000")
		_, one := p.wait(p.b, "LOCK.ACQUIRE k a PX 60000 WAIT 500000 SHARED")
		_, two := p.wait(p.b, "LOCK.ACQUIRE k a PX 60000 WAIT 500000 SHARED")
		_, b := p.wait(p.b, "LOCK.ACQUIRE k b PX 60000 WAIT 500000 SHARED")
		p.do("LOCK.RELEASE k x")
		p.grantedLock(one)
		p.grantedLock(b)
		p.tokenIn(p.do("LOCK.ACQUIRE k d PX 60000 SHARED"))
		p.silent(two)
		p.expect("0", "LOCK.RELEASE k a")
		p.grantedLock(two)
	})
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		p.do("LOCK.ACQUIRE k x PX 60000")
		_, one := p.wait(p.b, "LOCK.ACQUIRE k a PX 5000 WAIT 500000 DELAY 600000")
		_, c := p.wait(p.b, "LOCK.ACQUIRE k c PX 5000 WAIT 500000")
		_, two := p.wait(p.b, "LOCK.ACQUIRE k a PX 5000 WAIT 500000 DELAY 600000")
		p.do("LOCK.RELEASE k x")
		p.grantedLock(one)
		time.Sleep(6 * time.Second)
		p.grantedLock(two) // the delay keeps out c, but not the former holder
		p.silent(c)
	})
}

// A client that joins again in its old place, before one that has kept it out, is looked at.
func TestReaderJoinsBeforeAWriter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		p.tokenIn(p.do("LOCK.ACQUIRE lock a PX 600000 SHARED"))
		w, _ := p.wait(p.Node, "LOCK.ACQUIRE lock w PX 60000 WAIT 500000")
		_, b := p.wait(p.b, "LOCK.ACQUIRE lock b PX 60000 WAIT 500000 SHARED")
		p.wait(p.Node, "LOCK.ACQUIRE lock w2 PX 60000 WAIT 500000")
		p.cut()
		synctest.Wait()
		time.Sleep(100 * ms)
		p.Abandon(w)
		time.Sleep(500 * ms)
		p.connect()
		time.Sleep(3 * time.Second)
		p.grantedLock(b)
	})
}

// A release ends the tickets of its owner on the leader, before the lock goes on. Others wait on.
func TestReleaseGivesUpTickets(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		p.do("LOCK.ACQUIRE k a PX 60000")
		_, one := p.wait(p.b, "LOCK.ACQUIRE k b PX 60000 WAIT 500000 QUEUE")
		_, two := p.wait(p.Node, "LOCK.ACQUIRE k b PX 60000 WAIT 500000 QUEUE")
		_, waits := p.wait(p.Node, "LOCK.ACQUIRE k b PX 60000 WAIT 500000")
		p.expect("nil", "LOCK.RELEASE k b TOKEN 5")
		p.silent(one)
		p.expect("nil 0", "LOCK.RELEASE k b", "LOCK.RELEASE k a")
		p.got(one, "")
		p.got(two, "")
		p.grantedLock(waits)
	})
}

// A connection that has given up a ticket goes on.
func TestClientGoesOnAfterItsTicket(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		p.do("LOCK.ACQUIRE k a PX 60000")
		c, done := p.b.NewClient(heavyHost), make(chan string, 1)
		b := &Blocked{Call: p.call("LOCK.ACQUIRE k b PX 60000 WAIT 50000 QUEUE")[0], Client: c, Done: func(r store.Reply) { done <- text([]store.Reply{r}) }}
		p.b.Block(b)
		p.b.Flush()
		synctest.Wait()
		p.expect("nil", "LOCK.RELEASE k b")
		synctest.Wait()
		p.got(done, "")
		if got := text(p.b.SubmitPart(c, p.call("SET x "+strings.Repeat("x", 200_000)), nil)); got != "OK" {
			t.Error(got)
		}
	})
}

// A lease that MAXHOLD cuts has its whole time, although the entry that lengthens it is late, too, and although it is renewed then.
func TestFullLeaseOfASlowDisk(t *testing.T) {
	for _, delays := range [][]time.Duration{{600 * ms, 600 * ms, 600 * ms}, {100 * ms, 700 * ms}, {300 * ms, 45 * ms}} {
		for _, again := range []string{"", "LOCK.RENEW lock me PX 1000 ATLEAST", "LOCK.RENEW lock me PX 1000", "LOCK.ACQUIRE lock me PX 1000 REENTRANT"} {
			bubble(t, func(t *testing.T) {
				p := newPair(t)
				left := delays
				p.log.decides(0, func(raftfsm.Entry) verdict {
					if len(left) > 0 {
						time.Sleep(left[0])
						left = left[1:]
					}
					return commit
				})
				got := p.doOn(p.b, "LOCK.ACQUIRE lock me PX 1000 MAXHOLD 1000")
				if !strings.HasSuffix(got, " 1000 1]") {
					t.Fatal(got)
				}
				left = nil
				began := time.Now()
				if again != "" {
					p.do(again)
				}
				for time.Since(began) < 995*ms {
					if you := p.do("LOCK.ACQUIRE lock you PX 60000"); you != "" {
						t.Fatalf("delays %v, %q: another owner after %v", delays, again, time.Since(began))
					}
					time.Sleep(ms)
				}
			})
		}
	}
}

// A ticket that a request has ended is answered, although the request is put aside.
func TestTicketEndedByARequestThatIsPutAside(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t, badCommands...)
		p.expect("OK", "FILL big 2")
		p.do("LOCK.ACQUIRE k a PX 600000")
		_, one := p.wait(p.b, "LOCK.ACQUIRE k b PX 60000 WAIT 5000 QUEUE")
		goOn := make(chan struct{})
		for range 60 {
			go func() {
				c := p.NewClient(heavyHost)
				p.ask(c, false, p.call("GET big"))
				<-goOn
				c.Encoded()
			}()
		}
		time.Sleep(20 * ms)
		synctest.Wait()
		c := p.NewClient(heavyHost)
		go func() {
			p.SubmitPart(c, p.call("LOCK.RELEASE k b", "GET big"), nil)
			c.Encoded()
		}()
		time.Sleep(50 * ms)
		close(goOn)
		time.Sleep(13 * time.Second)
		synctest.Wait()
		select {
		case <-one:
		default:
			t.Error("never answered")
		}
	})
}

// One owner waits by a bounded number of commands, so those that wait in vain keep nobody out.
func TestManyWaitsOfOneOwner(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		p.do("LOCK.ACQUIRE k x PX 600000")
		for range 1002 {
			p.block(p.Node, "LOCK.ACQUIRE k a PX 60000 WAIT 500000 SHARED QUEUE")
		}
		_, more := p.block(p.Node, "LOCK.ACQUIRE k a PX 60000 WAIT 500000 SHARED")
		p.got(more, "-ERR")
		_, b := p.wait(p.b, "LOCK.ACQUIRE k b PX 60000 WAIT 500000 SHARED")
		p.do("LOCK.RELEASE k x")
		p.grantedLock(b)
	})
}
