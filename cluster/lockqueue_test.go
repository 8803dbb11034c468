package cluster

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/raftfsm"
)

// grantedLock expects that a reply to LOCK.ACQUIRE is there and grants the lock. It returns the token.
func (p *pair) grantedLock(done <-chan string) (token int) {
	p.t.Helper()
	synctest.Wait()
	select {
	case got := <-done:
		return p.tokenIn(got)
	default:
		p.t.Fatal("no reply yet")
	}
	return 0
}

// tokenIn returns the token of a reply that grants a lock.
func (p *pair) tokenIn(reply string) int {
	p.t.Helper()
	words := strings.Fields(strings.Trim(reply, "[]"))
	if len(words) != 3 {
		p.t.Fatalf("not granted: %q", reply)
	}
	token, err := strconv.Atoi(words[0])
	if err != nil {
		p.t.Fatal(err)
	}
	return token
}

// The first client that waits for a lock gets it in the entry of the command that frees it, whatever that command is.
func TestLockIsHandedOn(t *testing.T) {
	for _, frees := range []string{
		"LOCK.RELEASE lock a", "DEL lock", "UNLINK lock", "GETDEL lock", "RENAME lock other", "MOVE lock 3", "FLUSHALL", "FLUSHDB",
		"SWAPDB 0 5", "PEXPIRE lock -1", "SET lock a PXAT 1", "GETEX lock PXAT 1", "RENAME other lock; DEL lock", "DELIFEQ lock a", "DELEX lock IFEQ a",
	} {
		t.Run(frees, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := newPair(t)
				first := p.tokenIn(p.do("LOCK.ACQUIRE lock a PX 60000"))
				p.do("SET other o")
				_, b := p.wait(p.b, "LOCK.ACQUIRE lock b PX 60000 WAIT 50000")
				_, c := p.wait(p.Node, "LOCK.ACQUIRE lock c PX 60000 WAIT 50000")
				before, _ := p.log.count()
				lines := strings.Split(frees, "; ")
				p.do(lines...)
				if after, _ := p.log.count(); after != before+1 {
					t.Errorf("%d entries, want one", after-before)
				}
				second := p.grantedLock(b)
				p.silent(c)
				if second <= first {
					t.Errorf("token %d after %d", second, first)
				}
				p.expect("b", "GET lock")
				p.expect("0", "LOCK.RELEASE lock b TOKEN "+strconv.Itoa(second))
				if third := p.grantedLock(c); third <= second {
					t.Errorf("token %d after %d", third, second)
				}
			})
		})
	}
}

// A lock that a client of another kind holds is handed on, too: by its release, and when its lease ends.
func TestLockOfAnotherKindIsHandedOn(t *testing.T) {
	for holder, frees := range map[string]string{
		"SET lock x NX PX 500": "", "HSET lock uuid:1 1": "HDEL lock uuid:1", "SADD lock m": "SREM lock m", "RPUSH lock e": "LPOP lock", "ZADD lock 1 m": "ZPOPMIN lock",
	} {
		t.Run(holder, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := newPair(t)
				p.do(holder)
				if strings.HasPrefix(holder, "SADD") || strings.HasPrefix(holder, "RPUSH") || strings.HasPrefix(holder, "ZADD") {
					if got := p.do("LOCK.ACQUIRE lock b PX 60000"); got != "-WRONGTYPE" {
						t.Error(got)
					}
					return
				}
				_, b := p.wait(p.b, "LOCK.ACQUIRE lock b PX 60000 WAIT 50000")
				p.silent(b)
				if frees == "" {
					time.Sleep(700 * ms)
				} else {
					p.do(frees)
				}
				p.grantedLock(b)
			})
		})
	}
}

// Clients of all nodes get a lock in the order in which they came, also after another leader was elected or the link broke.
func TestLockQueueKeepsItsOrder(t *testing.T) {
	const clients = 9
	for name, disturb := range map[string]func(p *pair){
		"calm":           func(*pair) {},
		"another leader": func(p *pair) { p.changeLeader() },
		"another link": func(p *pair) {
			p.cut()
			synctest.Wait()
			p.connect()
			time.Sleep(100 * ms)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := newPair(t)
				last := p.tokenIn(p.do("LOCK.ACQUIRE lock holder PX 60000"))
				var done []<-chan string
				for i := range clients {
					node := p.Node
					if i%3 == 0 {
						node = p.b
					}
					_, reply := p.wait(node, fmt.Sprintf("LOCK.ACQUIRE lock c%d PX 60000 WAIT 50000", i))
					done = append(done, reply)
					time.Sleep(ms)
				}
				disturb(p)
				owner := "holder"
				for i, reply := range done {
					p.silent(reply)
					p.expect("0", "LOCK.RELEASE lock "+owner)
					owner = fmt.Sprintf("c%d", i)
					token := p.grantedLock(reply)
					if token <= last {
						t.Errorf("token %d after %d", token, last)
					}
					last = token
				}
			})
		})
	}
}

// A lock that has expired goes to the first client in the queue, even if another client asks for it first.
func TestNobodyOvertakesTheLockQueue(t *testing.T) {
	for _, line := range []string{"SET lock x NX PX 1000", "LOCK.ACQUIRE lock x PX 1000", "SETNX lock x"} {
		bubble(t, func(t *testing.T) {
			p := newPair(t)
			p.do("LOCK.ACQUIRE lock a PX 300")
			_, b := p.wait(p.b, "LOCK.ACQUIRE lock b PX 60000 WAIT 50000")
			// Requests come without a pause, so that no batch begins with the deletion of expired keys alone.
			for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(100 * time.Microsecond) {
				if got := p.do(line); got != "nil" && got != "" && got != "0" {
					t.Fatalf("%s: %q", line, got)
				}
			}
			p.grantedLock(b)
		})
	}
}

// A wait ends with nil at its timeout, wherever its client is, and the next in the queue is served.
func TestLockWaitEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		p.do("LOCK.ACQUIRE lock a PX 60000")
		begun := time.Now()
		_, b := p.wait(p.b, "LOCK.ACQUIRE lock b PX 60000 WAIT 700")
		_, c := p.wait(p.Node, "LOCK.ACQUIRE lock c PX 60000 WAIT 50000")
		if got := <-b; got != "" || time.Since(begun) != 700*ms {
			t.Errorf("%q after %v", got, time.Since(begun))
		}
		p.do("DEL lock")
		p.grantedLock(c)
		p.expect("c", "GET lock")
	})
}

// A client that leaves the queue gets no lock, and one that leaves while it gets the lock does not keep it.
func TestLockOfAClientThatLeft(t *testing.T) {
	for _, forwarded := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			p := newPair(t)
			node := p.Node
			if forwarded {
				node = p.b
			}
			p.do("LOCK.ACQUIRE lock a PX 60000")
			gone, _ := p.wait(node, "LOCK.ACQUIRE lock b PX 60000 WAIT 50000")
			late, _ := p.wait(node, "LOCK.ACQUIRE lock c PX 60000 WAIT 50000")
			_, last := p.wait(p.Node, "LOCK.ACQUIRE lock d PX 60000 WAIT 50000")
			node.Abandon(gone)
			p.log.decides(200*ms, always(commitSlowly))
			release := p.start("DEL lock")
			synctest.Wait()
			node.Abandon(late) // its entry is on the way
			p.silent(last)
			if got := <-release; got != "1" {
				t.Error(got)
			}
			p.log.decides(0, nil)
			time.Sleep(time.Second)
			p.grantedLock(last)
			p.expect("d", "GET lock")
		})
	}
}

// A lease that a client got from the queue counts from the reply, however long the log takes, and also if the reply is in the log alone.
func TestLeaseFromTheLockQueue(t *testing.T) {
	for _, lost := range []bool{false, true} {
		for _, forwarded := range []bool{false, true} {
			if lost && !forwarded {
				continue
			}
			t.Run(fmt.Sprintf("leader lost: %v, forwarded: %v", lost, forwarded), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					p := newPair(t)
					node := p.Node
					if forwarded {
						node = p.b
					}
					p.do("LOCK.ACQUIRE lock a PX 60000")
					_, b := p.wait(node, "LOCK.ACQUIRE lock b PX 1000 WAIT 50000")
					p.log.decides(600*ms, once(commitSlowly))
					release := p.start("DEL lock")
					synctest.Wait()
					if lost {
						p.cut()
						time.Sleep(700 * ms)
						p.connect()
					}
					<-release
					if got := <-b; !strings.HasSuffix(got, " 1000 1]") {
						t.Fatal(got)
					}
					begun := time.Now()
					for p.do("EXISTS lock") == "1" {
						time.Sleep(ms)
					}
					if lasted := time.Since(begun); lasted < 1000*ms {
						t.Errorf("the lease lasted %v from the reply on", lasted)
					}
				})
			})
		}
	}
}

// When the leader is lost while the entry that hands on a lock is in flight, exactly one client gets the lock.
func TestLockHandedOnInDoubt(t *testing.T) {
	for _, fate := range []verdict{applyLater, supersedeLater} {
		for _, forwarded := range []bool{false, true} {
			bubble(t, func(t *testing.T) {
				p := newPair(t)
				node := p.Node
				if forwarded {
					node = p.b
				}
				p.do("LOCK.ACQUIRE lock a PX 60000")
				_, b := p.wait(node, "LOCK.ACQUIRE lock elem PX 60000 WAIT 50000")
				_, c := p.wait(p.Node, "LOCK.ACQUIRE lock c PX 60000 WAIT 50000")
				p.log.set(func(l *fakeLog) { l.barrier = func() error { return errDeposed } })
				p.log.decides(0, func(e raftfsm.Entry) verdict {
					if strings.Contains(string(e.Writes), "elem") {
						return fate
					}
					return commit
				})
				release := p.start("LOCK.RELEASE lock a")
				synctest.Wait()
				p.silent(b)
				p.cut()
				p.depose()
				p.log.decides(0, nil)
				p.log.set(func(l *fakeLog) { l.barrier = nil })
				p.lead()
				p.connect()
				time.Sleep(time.Second)
				p.got(release, "0")
				// If the other node's client has not queued again by then, the next one gets the lock.
				owner := map[int]string{1: "elem", 0: "c"}[len(b)]
				if len(b)+len(c) != 1 || fate == applyLater && owner != "elem" {
					t.Fatalf("%d and %d clients have the lock", len(b), len(c))
				}
				p.expect(owner, "GET lock")
			})
		}
	}
}

// A command that closes a circle of owners is refused at once. The others wait on.
func TestDeadlockIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		p.do("LOCK.ACQUIRE l1 a PX 60000", "LOCK.ACQUIRE l2 b PX 60000 REENTRANT", "LOCK.ACQUIRE l3 c PX 60000")
		_, a := p.wait(p.b, "LOCK.ACQUIRE l2 a PX 60000 WAIT 5000")
		_, b := p.wait(p.Node, "LOCK.ACQUIRE l3 b PX 60000 WAIT 5000")
		_, c := p.block(p.b, "LOCK.ACQUIRE l1 c PX 60000 WAIT 5000")
		p.got(c, "-DEADLOCK")
		p.silent(a)
		p.silent(b)
		_, own := p.block(p.b, "LOCK.ACQUIRE l1 a PX 60000 WAIT 5000")
		p.got(own, "-DEADLOCK")
		p.expect("0", "LOCK.RELEASE l3 c")
		p.grantedLock(b)
		_, c = p.wait(p.b, "LOCK.ACQUIRE l1 c PX 60000 WAIT 5000") // no circle any more: c holds nothing
		p.silent(c)
	})
}

// Clients that wait for elements of a list and clients that wait for a lock at the same name do not disturb each other.
func TestLockQueueBesideAListQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		_, list := p.wait(p.b, "BLPOP other k 0")
		p.do("LOCK.ACQUIRE k a PX 60000")
		_, lock := p.wait(p.b, "LOCK.ACQUIRE k b PX 60000 WAIT 50000")
		p.do("DEL k")
		p.grantedLock(lock)
		_, lock = p.wait(p.Node, "LOCK.ACQUIRE k c PX 60000 WAIT 50000")
		p.do("SET k b")
		p.silent(lock)
		p.expect("1", "RPUSH other x")
		p.got(list, "[other x]")
		p.expect("0", "LOCK.RELEASE k b")
		p.grantedLock(lock)
	})
}

// A node without a log hands on locks, too.
func TestLockQueueWithoutALog(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newEphemeralNode(t)
		p := &pair{testNode: n}
		p.do("LOCK.ACQUIRE lock a PX 60000")
		_, b := p.wait(n.Node, "LOCK.ACQUIRE lock b PX 60000 WAIT 50000")
		p.do("DEL lock")
		p.grantedLock(b)
	})
}

// The refusal names the owners of the circle, in order, and does not let their names spoil the reply.
func TestDeadlockNamesItsOwners(t *testing.T) {
	last := &waitsFor{owner: "c", from: &waitsFor{owner: "b\r\n", from: &waitsFor{owner: strings.Repeat("a", 100), from: &waitsFor{owner: "c"}}}}
	if got, want := string(last.refusal()), "DEADLOCK owner c waits for "+strings.Repeat("a", 64)+"…, which waits for b??, which waits for c"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for range 1000 {
		last = &waitsFor{owner: "x", from: last}
	}
	if got := string(last.refusal()); len(got) > 600 || !strings.HasSuffix(got, "…") {
		t.Error(got)
	}
}

// In a real cluster, clients of all nodes get a lock in the order in which their nodes were told that they wait, through one change of
// leader after the other: the new leader waits for what the other nodes send.
func TestRealRaftLockQueueKeepsItsOrder(t *testing.T) {
	const clients = 60
	inBubble(t, func(c *bubbled) {
		p := &pair{testNode: &testNode{t: t, table: c.cfg[0].Table}}
		leader := c.leader()
		c.do(leader, "LOCK.ACQUIRE lock holder PX 3600000")
		var done []<-chan string
		for i := range clients {
			_, reply := p.wait(c.nodes[i%3], fmt.Sprintf("LOCK.ACQUIRE lock c%d PX 3600000 WAIT 3600000", i))
			done = append(done, reply)
			time.Sleep(20 * ms)
		}
		owner := "holder"
		for i := range clients {
			if i%3 == 0 {
				old := c.leader()
				next := (old + 1 + i/3%2) % 3
				if err := c.nodes[old].Transfer(c.cfg[next].ID); err != nil {
					t.Fatal(err)
				}
				c.until("the next leader", func() bool { return c.nodes[next].routes.get().seq != nil })
				c.do(next, "LOCK.RELEASE lock "+owner) // at once, before the other nodes may have sent their clients
			} else {
				c.do(c.leader(), "LOCK.RELEASE lock "+owner)
			}
			owner = fmt.Sprintf("c%d", i)
			select {
			case reply := <-done[i]:
				p.tokenIn(reply)
			case <-time.After(20 * time.Second):
				t.Fatalf("%d waits, and %s has the lock", i, c.do(c.leader(), "GET lock"))
			}
		}
	})
}

// LOCK.WAITERS lists the clients of all nodes in the order of the queue, and LOCK.INFO counts them; a lock that is forced goes to the first.
func TestLockWaitersAndForce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		p.do("LOCK.ACQUIRE k a PX 60000")
		gone, _ := p.wait(p.b, "LOCK.ACQUIRE k b PX 60000 WAIT 50000")
		time.Sleep(2 * time.Second)
		_, c := p.wait(p.Node, "LOCK.ACQUIRE k c PX 60000 WAIT 50000")
		_, d := p.wait(p.b, "LOCK.ACQUIRE k d PX 60000 WAIT 50000 SHARED")
		p.b.Abandon(gone)
		synctest.Wait()
		want := "[[owner c queue server user default waited 0 shared 0 node ] [owner d queue server user default waited 0 shared 1 node ]]"
		if got := p.doOn(p.b, "LOCK.WAITERS k"); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if got := p.doOn(p.b, "LOCK.INFO k"); !strings.Contains(got, "waiters 2 holders 1") {
			t.Error(got)
		}
		before, _ := p.log.count()
		p.expect("1", "LOCK.FORCE k REASON hangs")
		p.grantedLock(c)
		p.silent(d)
		if after, _ := p.log.count(); after != before+1 {
			t.Errorf("%d entries, want one", after-before)
		}
	})
}
