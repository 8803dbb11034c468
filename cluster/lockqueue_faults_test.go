package cluster

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockstep/raftfsm"
	"lockstep/store"
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
