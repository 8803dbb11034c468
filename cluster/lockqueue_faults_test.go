package cluster

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/raftfsm"
	"github.com/lockstep-io/lockstep/store"
)

// A command whose empty result deletes the key hands the lock on, too.
func TestEmptyResultHandsOnALock(t *testing.T) {
	for _, frees := range []string{
		"SINTERSTORE lock none1 none2", "SORT none STORE lock", "ZRANGESTORE lock none 0 -1", "SDIFFSTORE lock none", "SUNIONSTORE lock none",
		"ZUNIONSTORE lock 1 none", "BITOP AND lock none",
	} {
		bubble(t, func(t *testing.T) {
			p := newPair(t)
			p.do("LOCK.ACQUIRE lock a PX 60000")
			_, b := p.wait(p.b, "LOCK.ACQUIRE lock b PX 60000 WAIT 50000")
			p.do(frees)
			p.grantedLock(b)
		})
	}
}

// An entry that only lengthens late leases may delete an expired lock: the next one hands the lock on.
func TestCorrectionHandsOnALock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		p.do("LOCK.ACQUIRE lock a PX 300")
		_, b := p.wait(p.b, "LOCK.ACQUIRE lock b PX 60000 WAIT 50000")
		time.Sleep(200 * ms)
		p.log.decides(400*ms, once(commitSlowly))
		<-p.start("SET other x PX 10000")
		time.Sleep(time.Second)
		p.grantedLock(b)
	})
}

// A lock that expires together with thousands of other keys goes to the first in its queue, although other clients read it all the time, or
// ask for it.
func TestLockExpiresBesideManyKeys(t *testing.T) {
	for _, line := range []string{"GET lock", "LOCK.ACQUIRE lock x PX 1000"} {
		bubble(t, func(t *testing.T) {
			p := newPair(t)
			var lines []string
			for i := range 3000 {
				lines = append(lines, fmt.Sprintf("SET k%d v PX 1000", i))
			}
			p.do(lines...)
			p.do("LOCK.ACQUIRE lock a PX 1000")
			_, b := p.wait(p.b, "LOCK.ACQUIRE lock b PX 60000 WAIT 50000")
			for range 4000 {
				time.Sleep(500 * time.Microsecond)
				if got := p.do(line); strings.HasPrefix(got, "[") {
					t.Fatalf("another client gets %s", got)
				}
			}
			time.Sleep(time.Second)
			p.grantedLock(b)
		})
	}
}

// A client leaves while its lock is on the way, and the link or the leader is lost: its node learns of the lock from the log, and releases it.
func TestLockOfAClientThatLeftInDoubt(t *testing.T) {
	for _, cut := range []bool{true, false} {
		bubble(t, func(t *testing.T) {
			p := newPair(t)
			p.do("LOCK.ACQUIRE lock a PX 60000")
			gone, _ := p.wait(p.b, "LOCK.ACQUIRE lock b PX 6000000 WAIT 50000")
			_, c := p.wait(p.Node, "LOCK.ACQUIRE lock c PX 60000 WAIT 50000")
			p.log.decides(1600*ms, once(commitSlowly))
			release := p.start("DEL lock")
			synctest.Wait()
			if cut {
				p.cut()
				synctest.Wait()
			}
			p.b.Abandon(gone)
			time.Sleep(1700 * ms)
			if cut {
				p.connect()
			}
			<-release
			time.Sleep(3 * time.Second)
			p.grantedLock(c)
		})
	}
}

// A client leaves while its lock is on the way, comes back and renews the lock: its node does not release the lock any more.
func TestRenewedLockIsNotReleased(t *testing.T) {
	for _, forwarded := range []bool{true, false} {
		for _, touch := range []string{"LOCK.RENEW lock c PX 60000", "SET lock c IFEQ c PX 60000", "PEXPIRE lock 60000"} {
			bubble(t, func(t *testing.T) {
				p := newPair(t)
				node := p.Node
				if forwarded {
					node = p.b
				}
				p.do("LOCK.ACQUIRE lock a PX 60000")
				gone, _ := p.wait(node, "LOCK.ACQUIRE lock c PX 60000 WAIT 50000")
				_, last := p.wait(p.Node, "LOCK.ACQUIRE lock d PX 60000 WAIT 50000")
				p.log.decides(40*ms, always(commitSlowly))
				release := p.start("DEL lock")
				synctest.Wait()
				node.Abandon(gone)
				renew := p.start(touch)
				<-release
				if got := <-renew; got != "1" && got != "OK" {
					t.Errorf("%s: %q", touch, got)
				}
				p.log.decides(0, nil)
				time.Sleep(time.Second)
				p.silent(last)
				p.expect("c", "GET lock")
			})
		}
	}
}

// Clients that have left count for no deadlock, even before they are swept out of the queues.
func TestDeadlockWithoutThoseWhoLeft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		p.do("SET l1 X", "SET l2 Y")
		var all []*Blocked
		for range 5000 {
			b, _ := p.block(p.Node, "LOCK.ACQUIRE l1 Y PX 60000 WAIT 500000")
			all = append(all, b)
		}
		synctest.Wait()
		for _, b := range all {
			p.Abandon(b)
		}
		synctest.Wait()
		_, x := p.wait(p.Node, "LOCK.ACQUIRE l2 X PX 60000 WAIT 50000")
		p.silent(x)
	})
}

// Another user's waiting clients count for no deadlock: their owners are texts that this user may have made up.
func TestDeadlockOfOneUserOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t, makeUser)
		p.expect("OK", "MAKEUSER waits")
		v := p.users()
		p.do("LOCK.ACQUIRE app B PX 60000", "SET evil A")
		p.blockAs(p.Node, "LOCK.ACQUIRE evil B PX 1000 WAIT 500000", func(int32) uint64 { return v })
		synctest.Wait()
		_, a := p.wait(p.b, "LOCK.ACQUIRE app A PX 60000 WAIT 50000")
		p.silent(a)
	})
}

// A grant that was undone, because its batch was evaluated again, leaves nothing behind in the request.
func TestGrantThatWasUndone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t, append([]store.Command{makeUser, deleteUser}, badCommands...)...)
		p.expect("OK", "MAKEUSER waits")
		v := p.users()
		p.do("LOCK.ACQUIRE lock a PX 60000")
		p.blockAs(p.Node, "LOCK.ACQUIRE lock "+strings.Repeat("b", 200)+" PX 60000 WAIT 50000", func(int32) uint64 { return v })
		n := 0
		p.log.decides(100*ms, func(e raftfsm.Entry) verdict {
			if n++; n == 2 {
				p.log.set(func(l *fakeLog) { l.verify = func() error { return errDeposed } })
			}
			return commitSlowly
		})
		first := p.start("SET x y")
		synctest.Wait()
		bad := p.start("DEL lock", "PANIC")
		synctest.Wait()
		p.start("DELETEUSER waits")
		synctest.Wait()
		if got := <-first; got != "OK" {
			t.Error(got)
		}
		<-bad
		time.Sleep(time.Second)
	})
}

// never is Config.sentAll of a leader whose other nodes have not sent their clients.
func never() bool { return false }

// A client that came while its node's link was broken waits behind those that came to the leader in the same term before.
func TestBrokenLinkGivesNoBetterPlace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		time.Sleep(300 * ms)
		p.do("LOCK.ACQUIRE lock a PX 600000")
		_, first := p.wait(p.Node, "LOCK.ACQUIRE lock first PX 60000 WAIT 500000")
		time.Sleep(20 * time.Second)
		p.cut()
		synctest.Wait()
		_, late := p.wait(p.b, "LOCK.ACQUIRE lock late PX 60000 WAIT 500000")
		time.Sleep(50 * ms)
		p.connect()
		time.Sleep(300 * ms)
		p.do("LOCK.RELEASE lock a")
		synctest.Wait()
		p.silent(late)
		p.grantedLock(first)
	})
}

// Commands that a new leader holds are not evaluated with an entry that only lengthens leases.
func TestHeldCommandsBesideACorrection(t *testing.T) {
	const clients = 5000
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		p.depose()
		p.cfg.sentAll = never // from the next term on
		p.lead()
		var done []<-chan string
		for i := range clients {
			_, d := p.wait(p.Node, fmt.Sprintf("LOCK.ACQUIRE lock%d c PX 60000 WAIT 500000", i))
			done = append(done, d)
		}
		p.log.decides(250*ms, once(commitSlowly))
		slow := p.start("SET other x PX 10000")
		<-slow
		time.Sleep(600 * time.Second) // beyond the WAIT of all
		lost := 0
		for _, d := range done {
			select {
			case <-d:
			default:
				lost++
			}
		}
		if lost > 0 {
			t.Errorf("%d of %d commands have no reply after 600 s (WAIT 500 s)", lost, len(done))
		}
	})
}

// A command that a new leader holds is evaluated once, even if a batch was stopped for now meanwhile.
func TestHeldCommandOfAStoppedBatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t, scriptCommand, makeUser)
		p.depose()
		p.cfg.sentAll = never // from the next term on
		p.lead()
		p.expect("OK", "MAKEUSER waits")
		v := p.users()
		time.Sleep(190 * ms)
		p.log.decides(5*ms, once(commitSlowly))
		blocker := p.start("SET a b")
		synctest.Wait()
		before := p.start("INCR counter")
		synctest.Wait()
		d := make(chan string, 1)
		w := &blockedClient{origin: p.boot, id: 7}
		w.req = &request{calls: p.call("LOCK.ACQUIRE lock c PX 60000 WAIT 500000"), blockedClient: w, finish: func(r *request) {
			d <- fmt.Sprint(len(r.replies), " replies ", text(r.replies), r.err) // the node's own finish takes r.replies[0]
		}}
		p.routes.get().seq.submit(w.req)
		synctest.Wait()
		calls, long := p.call("SCRIPT 2"), make(chan string, 1)
		calls[0].User, calls[0].Users = store.CallName("waits"), v
		go func() { long <- text(p.Submit(calls, nil)) }()
		<-blocker
		<-before
		<-long
		time.Sleep(time.Second)
		if got := <-d; !strings.HasPrefix(got, "1 replies [") {
			t.Error(got)
		}
	})
}

// A client leaves while its lock is on the way, and has renewed the lock by another connection in the entry that gives it the lock, or right
// behind it.
func TestLockRenewedInTheEntryOfItsGrant(t *testing.T) {
	for _, forwarded := range []bool{false, true} {
		for _, touch := range []string{"LOCK.RENEW lock c PX 60000", "LOCK.RENEW lock c PX 90000", "SET lock c IFEQ c PX 60000"} {
			bubble(t, func(t *testing.T) {
				p := newPair(t)
				node := p.Node
				if forwarded {
					node = p.b
				}
				p.do("LOCK.ACQUIRE lock a PX 60000")
				gone, _ := p.wait(node, "LOCK.ACQUIRE lock c PX 60000 WAIT 50000")
				_, last := p.wait(p.Node, "LOCK.ACQUIRE lock d PX 60000 WAIT 50000")
				p.log.decides(40*ms, always(commitSlowly))
				first := p.start("SET x y")
				synctest.Wait()
				release := p.start("DEL lock")
				synctest.Wait()
				renew := p.start(touch)
				<-first
				synctest.Wait() // the batch with both is in flight
				node.Abandon(gone)
				<-release
				if got := <-renew; got != "1" && got != "OK" {
					t.Errorf("%s: %q", touch, got)
				}
				p.log.decides(0, nil)
				time.Sleep(time.Second)
				p.silent(last)
				p.expect("c", "GET lock")
			})
		}
	}
}

// A client leaves after its node has got the reply, and before its session has read it.
func TestClientLeavesWithItsReply(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		p.do("LOCK.ACQUIRE lock a PX 60000")
		gone, _ := p.wait(p.b, "LOCK.ACQUIRE lock b PX 600000 WAIT 50000")
		_, c := p.wait(p.Node, "LOCK.ACQUIRE lock c PX 60000 WAIT 500000")
		p.do("DEL lock")
		synctest.Wait()
		p.b.Abandon(gone)
		time.Sleep(5 * time.Second)
		p.grantedLock(c)
	})
}
