package cluster

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// Locks that several owners may hold, each with a lease of its own, and the clients that wait for them.

// Owners that would share a lock do not overtake one that waits for it alone. Those behind it get the lock together.
func TestSharedLockHasAnOrder(t *testing.T) {
	for _, form := range []string{"SHARED", "LIMIT 2"} {
		bubble(t, func(t *testing.T) {
			p := newPair(t)
			one, all := form, "" // what the others and w ask for
			if form == "LIMIT 2" {
				all = "LIMIT 2 PERMITS 2"
			}
			p.tokenIn(p.do("LOCK.ACQUIRE lock a PX 60000 " + one))
			_, w := p.wait(p.b, "LOCK.ACQUIRE lock w PX 60000 WAIT 50000 "+all)
			_, b := p.wait(p.Node, "LOCK.ACQUIRE lock b PX 60000 WAIT 50000 "+one)
			_, c := p.wait(p.b, "LOCK.ACQUIRE lock c PX 60000 WAIT 50000 "+one)
			if got := p.do("LOCK.ACQUIRE lock d PX 60000 " + one); got != "" {
				t.Errorf("%s: a client that does not wait overtakes: %q", form, got)
			}
			p.expect("0", "LOCK.RELEASE lock a")
			p.grantedLock(w)
			p.silent(b)
			before, _ := p.log.count()
			p.expect("0", "LOCK.RELEASE lock w")
			p.grantedLock(b)
			p.grantedLock(c)
			if after, _ := p.log.count(); after != before+1 {
				t.Errorf("%s: %d entries, want one", form, after-before)
			}
		})
	}
}

// When the client that others may not overtake leaves the queue, in whatever way, they get the lock at once.
func TestOthersFollowAClientThatLeaves(t *testing.T) {
	for name, leave := range map[string]func(p *pair, w *Blocked){
		"its wait is over":     func(p *pair, _ *Blocked) { time.Sleep(800 * ms) },
		"its connection ended": func(p *pair, w *Blocked) { p.b.Abandon(w); synctest.Wait() },
		"another also comes": func(p *pair, w *Blocked) {
			p.b.Abandon(w)
			_, d := p.block(p.Node, "LOCK.ACQUIRE lock d PX 60000 WAIT 50000 SHARED")
			p.grantedLock(d)
		},
		"its node is gone": func(p *pair, _ *Blocked) { p.cut(); time.Sleep(6 * time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := newPair(t)
				p.tokenIn(p.do("LOCK.ACQUIRE lock a PX 60000 SHARED"))
				w, _ := p.wait(p.b, "LOCK.ACQUIRE lock w PX 60000 WAIT 700")
				_, b := p.wait(p.Node, "LOCK.ACQUIRE lock b PX 60000 WAIT 50000 SHARED")
				_, c := p.wait(p.Node, "LOCK.ACQUIRE lock c PX 60000 WAIT 50000 SHARED")
				p.silent(b)
				leave(p, w)
				p.grantedLock(b)
				p.grantedLock(c)
			})
		})
	}
	bubble(t, func(t *testing.T) {
		p := newPair(t, makeUser, deleteUser)
		p.expect("OK", "MAKEUSER waits")
		v := p.users()
		p.tokenIn(p.do("LOCK.ACQUIRE lock a PX 60000 SHARED"))
		p.blockAs(p.b, "LOCK.ACQUIRE lock w PX 60000 WAIT 50000", func(int32) uint64 { return v })
		_, b := p.wait(p.Node, "LOCK.ACQUIRE lock b PX 60000 WAIT 50000 SHARED")
		p.expect("OK", "DELETEUSER waits")
		p.grantedLock(b)
	})
}

// The lease of one holder ends, or its session, or its delay: the first client in the queue gets its place, though others hold the lock.
func TestPlaceOfOneHolderIsHandedOn(t *testing.T) {
	for frees, sleep := range map[string]time.Duration{
		"": 1100 * ms, "LOCK.RELEASE lock a": 0, "LOCK.RELEASE lock a LAPSE": 600 * ms,
	} {
		bubble(t, func(t *testing.T) {
			p := newPair(t)
			p.tokenIn(p.do("LOCK.ACQUIRE lock a PX 500 LIMIT 2 DELAY 500"))
			p.tokenIn(p.do("LOCK.ACQUIRE lock b PX 60000 LIMIT 2"))
			_, c := p.wait(p.b, "LOCK.ACQUIRE lock c PX 60000 WAIT 50000 LIMIT 2")
			if frees != "" {
				p.expect("0", frees)
			}
			if sleep > 0 {
				time.Sleep(sleep / 2)
				p.silent(c)
				time.Sleep(sleep)
			}
			p.grantedLock(c)
		})
	}
}

// An owner that shares its exclusive lock from now on lets in those that wait to share it.
func TestDowngradeHandsOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		token := p.tokenIn(p.do("LOCK.ACQUIRE lock a PX 60000"))
		_, b := p.wait(p.b, "LOCK.ACQUIRE lock b PX 60000 WAIT 50000 SHARED")
		if again := p.tokenIn(p.do("LOCK.ACQUIRE lock a PX 60000 SHARED")); again != token {
			t.Errorf("token %d after %d", again, token)
		}
		p.grantedLock(b)
	})
}

// A holder's lease counts from the reply, however late it is.
func TestHolderHasItsWholeTime(t *testing.T) {
	for _, form := range []string{"SHARED", "LIMIT 1", "MAXHOLD 1000", "DELAY 1"} {
		line := "LOCK.ACQUIRE lock me PX 1000 " + form
		for name, grant := range map[string]func(p *pair) string{
			"a slow log": func(p *pair) string {
				p.log.decides(2*time.Second, once(commitSlowly))
				return p.doOn(p.b, line)
			},
			"a log that is slow to say so": func(p *pair) string {
				p.log.decides(900*ms, once(returnSlowly))
				return p.do(line)
			},
			"the link broke, and the log was slow": func(p *pair) string { return p.keepLinked().brokenLink(commitSlowly, line) },
			"no link for a while":                  func(p *pair) string { return p.noLink(900*ms, line) },
			"the leader was lost":                  func(p *pair) string { return p.keepLinked().lostLeader(applyLater, line) },
			"from the queue": func(p *pair) string {
				p.do("LOCK.ACQUIRE lock a PX 60000")
				_, b := p.wait(p.b, line+" WAIT 50000")
				p.log.decides(600*ms, once(commitSlowly))
				p.do("DEL lock")
				return <-b
			},
			"from the queue, the leader was lost": func(p *pair) string {
				p.do("LOCK.ACQUIRE lock a PX 60000")
				_, b := p.wait(p.b, line+" WAIT 50000")
				p.log.decides(600*ms, once(commitSlowly))
				release := p.start("DEL lock")
				synctest.Wait()
				p.cut()
				time.Sleep(700 * ms)
				p.connect()
				<-release
				return <-b
			},
		} {
			t.Run(form+", "+name, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					p := newPair(t)
					if got := grant(p); !strings.HasSuffix(got, " 1000 1]") {
						t.Fatalf("told %q", got)
					}
					time.Sleep(999 * ms)
					p.expect("1 ", "LOCK.CHECK lock "+p.do("LOCK.TOKEN lock OWNER me")+" OWNER me", "LOCK.ACQUIRE lock you PX 60000")
					time.Sleep(2 * time.Second)
					p.expect("0", "EXISTS lock")
				})
			})
		}
	}
}

// A holder's lease that is over before its owner can be told of it is not granted, though others hold the lock.
func TestHolderIsNotToldWhenOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		p.tokenIn(p.do("LOCK.ACQUIRE lock other PX 600000 SHARED"))
		reply := p.startNoLink(1900*ms, "LOCK.ACQUIRE lock me PX 1000 SHARED")
		time.Sleep(1500 * ms)
		p.do("SET x y")
		if got := <-reply; got != "-INDETERMINATE" {
			t.Errorf("told %q", got)
		}
	})
}

// A client leaves while it becomes a holder: its node removes its hold, and no other's.
func TestHolderThatLeft(t *testing.T) {
	for _, renews := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			p := newPair(t)
			p.do("LOCK.ACQUIRE lock a PX 60000")
			gone, _ := p.wait(p.b, "LOCK.ACQUIRE lock b PX 600000 WAIT 50000 SHARED")
			_, c := p.wait(p.Node, "LOCK.ACQUIRE lock c PX 600000 WAIT 50000 SHARED")
			p.log.decides(40*ms, always(commitSlowly))
			release := p.start("DEL lock")
			synctest.Wait()
			p.b.Abandon(gone)
			if renews {
				p.start("LOCK.RENEW lock b PX 600000")
			}
			p.start("LOCK.RENEW lock c PX 600000")
			<-release
			p.log.decides(0, nil)
			time.Sleep(time.Second)
			p.grantedLock(c)
			want := "0"
			if renews {
				want = "1"
			}
			p.expect(want+" 1", "LOCK.RENEW lock b PX 600000", "LOCK.RENEW lock c PX 600000")
		})
	}
}

// A circle of owners may lead over a lock that is shared, and over a client that waits before another. Permits of which others may come free
// are no reason to refuse.
func TestDeadlockOverASharedLock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		p.do("LOCK.ACQUIRE r a PX 60000 SHARED", "LOCK.ACQUIRE r x PX 60000 SHARED", "LOCK.ACQUIRE l b PX 60000")
		_, a := p.wait(p.b, "LOCK.ACQUIRE l a PX 60000 WAIT 50000")
		_, b := p.block(p.Node, "LOCK.ACQUIRE r b PX 60000 WAIT 50000")
		p.got(b, "-DEADLOCK")
		_, w := p.wait(p.b, "LOCK.ACQUIRE r w PX 60000 WAIT 50000")
		_, b = p.block(p.Node, "LOCK.ACQUIRE r b PX 60000 WAIT 50000 SHARED") // b waits for w, w for a, and a for b
		p.got(b, "-DEADLOCK")
		p.silent(a)
		p.silent(w)
		_, own := p.block(p.b, "LOCK.ACQUIRE r x PX 60000 WAIT 50000 SHARED")
		p.got(own, "-DEADLOCK")
	})
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		p.do("LOCK.ACQUIRE s a PX 60000 LIMIT 2", "LOCK.ACQUIRE s x PX 60000 LIMIT 2", "LOCK.ACQUIRE l b PX 60000")
		p.wait(p.b, "LOCK.ACQUIRE l a PX 60000 WAIT 50000")
		_, b := p.wait(p.Node, "LOCK.ACQUIRE s b PX 60000 WAIT 50000 LIMIT 2")
		p.silent(b)
		_, own := p.block(p.b, "LOCK.ACQUIRE s x PX 60000 WAIT 50000 LIMIT 2")
		p.got(own, "-DEADLOCK")
	})
}

// The order of those that share a lock and those that do not stays when the leader changes.
func TestSharedLockThroughAChangeOfLeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		p.tokenIn(p.do("LOCK.ACQUIRE lock a PX 600000 SHARED"))
		_, w := p.wait(p.b, "LOCK.ACQUIRE lock w PX 60000 WAIT 500000")
		_, b := p.wait(p.Node, "LOCK.ACQUIRE lock b PX 60000 WAIT 500000 SHARED")
		_, c := p.wait(p.b, "LOCK.ACQUIRE lock c PX 60000 WAIT 500000 SHARED")
		p.cfg.sentAll = never // from the next term on, as the other node's clients come later
		p.changeLeader()
		time.Sleep(time.Second)
		p.silent(w)
		p.silent(b)
		p.silent(c)
		p.expect("0", "LOCK.RELEASE lock a")
		p.grantedLock(w)
		p.expect("0", "LOCK.RELEASE lock w")
		p.grantedLock(b)
		p.grantedLock(c)
	})
}

// The leases that requests were given keep the owners of their holders on the way to another node.
func TestGrantsNameTheirHolders(t *testing.T) {
	g := grants{seq: 7, token: 9, at: 5, list: []grant{{0, store.LeasedKey{DB: 1, Key: "k", Deadline: 5}}, {2, store.LeasedKey{Key: "l", Owner: "o", Deadline: 6}}}}
	got, err := readGrants(appendGrants(nil, g))
	if err != nil || len(got.list) != 2 || got.list[0] != g.list[0] || got.list[1] != g.list[1] {
		t.Errorf("%+v, %v", got, err)
	}
}

// A command that is sent again, because its client has given up waiting for the first reply, closes no circle: it waits behind the first.
func TestLockAskedForTwice(t *testing.T) {
	for _, form := range []string{"", " SHARED"} {
		bubble(t, func(t *testing.T) {
			p := newPair(t)
			p.do("LOCK.ACQUIRE k r PX 60000" + form)
			p.wait(p.b, "LOCK.ACQUIRE k w PX 60000 WAIT 50000")
			_, again := p.wait(p.b, "LOCK.ACQUIRE k w PX 60000 WAIT 50000")
			p.silent(again)
		})
	}
}

// A former holder that waits gets its lock back when its session has ended or its lease is over, though the delay runs for all others.
func TestFormerHolderIsServed(t *testing.T) {
	for _, lapses := range []bool{true, false} {
		bubble(t, func(t *testing.T) {
			p := newPair(t)
			p.do("LOCK.ACQUIRE k b PX 60000")
			_, one := p.wait(p.b, "LOCK.ACQUIRE k a PX 5000 WAIT 500000 DELAY 600000")
			_, two := p.wait(p.b, "LOCK.ACQUIRE k a PX 5000 WAIT 500000 DELAY 600000")
			p.do("LOCK.RELEASE k b")
			p.grantedLock(one)
			p.silent(two)
			if lapses {
				p.expect("0", "LOCK.RELEASE k a LAPSE")
			} else {
				time.Sleep(6 * time.Second)
			}
			p.grantedLock(two)
		})
	}
}

// A lease with MAXHOLD has its whole time from the reply, though it is renewed at its end.
func TestMaxHoldHasItsWholeTime(t *testing.T) {
	for _, again := range []string{"", "LOCK.RENEW lock me PX 1000", "LOCK.RENEW lock me PX 1000 ATLEAST", "LOCK.ACQUIRE lock me PX 1000 REENTRANT"} {
		for _, at := range []time.Duration{500 * ms, 960 * ms} {
			bubble(t, func(t *testing.T) {
				p := newPair(t)
				p.log.decides(45*ms, once(commitSlowly))
				p.do("LOCK.ACQUIRE lock me PX 1000 MAXHOLD 1000")
				time.Sleep(at)
				if again != "" {
					p.do(again)
				}
				time.Sleep(998*ms - at)
				if got := p.do("LOCK.ACQUIRE lock you PX 60000"); got != "" {
					t.Errorf("%q after %v: another gets the lock early: %s", again, at, got)
				}
			})
		}
	}
}

// Many holders that only keep their places do not make a search for deadlocks long.
func TestDeadlockSearchCountsLapsedHolders(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		for i := range 20 {
			var lines []string
			for j := range 200 {
				lines = append(lines, fmt.Sprintf("LOCK.ACQUIRE big o%d PX 1 LIMIT 100000 DELAY 3600000", 200*i+j))
			}
			p.do(lines...)
		}
		time.Sleep(time.Second)
		s := p.routes.get().seq
		x := search{s: s, wait: &store.Wait{Owner: "me"}, seen: map[string]bool{}}
		p.fsm.View(func(st *store.Store, _ uint64) {
			now := s.node.clock.Now()
			x.txn = st.Begin(now, 1<<40, store.Env{})
			x.lock(&waitsFor{owner: "me"}, waitKey{key: "big", free: true}, x.wait, nil, nil)
		})
		if x.steps > deadlockSteps {
			t.Errorf("%d steps", x.steps)
		}
	})
}

// Clients may leave while the leader sweeps: afterwards nothing is left to do, and the leader rests.
func TestSweepBesideClientsThatLeave(t *testing.T) {
	const clients = 500
	ws := newBlockedClients()
	wait := &store.Wait{Keys: [][]byte{[]byte("k")}, Type: store.TypeFree, Owner: "o"}
	var list []*blockedClient
	for range clients {
		w := &blockedClient{req: &request{finish: func(*request) {}}}
		w.state.Store(blockedTaken)
		ws.joined = append(ws.joined, w)
		ws.join(w, wait, 0)
		w.release()
		list = append(list, w)
	}
	ws.settle()
	over := make(chan struct{})
	go func() {
		defer close(over)
		for _, w := range list {
			w.cancel(quitNow)
		}
	}()
	for gone := false; !gone; {
		select {
		case <-over:
			gone = true
		default:
		}
		ws.sweep()
	}
	for ws.buried.Load() > 0 {
		ws.sweep()
	}
	if ws.left.Load() {
		t.Error("the leader would sweep for ever")
	}
}

// Clients that were dropped in a batch that is evaluated again, before they were swept, are swept later.
func TestSweepAfterARollback(t *testing.T) {
	ws := newBlockedClients()
	wait := &store.Wait{Keys: [][]byte{[]byte("k")}, Type: store.TypeFree, Owner: "o"}
	for i := range 10_000 {
		w := &blockedClient{req: &request{finish: func(*request) {}}}
		w.state.Store(blockedTaken)
		ws.joined = append(ws.joined, w)
		ws.join(w, wait, 0)
		w.release()
		if i == 4999 {
			ws.settle()
		}
	}
	ws.drop(everyBlockedClient)
	ws.rollback()
	for ws.buried.Load() > 0 {
		ws.sweep()
	}
	if len(ws.queues) > 0 {
		t.Errorf("%d queues are left", len(ws.queues))
	}
}
