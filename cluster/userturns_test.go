package cluster

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/clock"
	"github.com/lockstep-io/lockstep/cluster/internal/clustertest"
	"github.com/lockstep-io/lockstep/raftfsm"
	"github.com/lockstep-io/lockstep/store"
)

var makeUser = store.Command{Name: "makeuser", Arity: 2, Flags: store.Write, Run: func(c *store.Ctx) store.Reply {
	u, wrong := store.NewUser(c.Cmd.Table(), string(c.Args[1]), true).WithRules([]string{"on", "nopass", "+@all", "~*"}, true)
	if wrong != "" {
		return store.Err(wrong)
	}
	c.Txn.SetUser(u)
	return store.OK
}}

// dawdle takes 3 ms, too little to be called heavy.
var dawdle = store.Command{Name: "dawdle", Flags: store.Write, Run: func(*store.Ctx) store.Reply {
	time.Sleep(3 * ms)
	return store.OK
}}

// Clients of other users wait for at most two batches of a user who keeps the leader busy with light work from 300 clients.
func TestUsersOfManyPieces(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, by := leaderAnd(t, false, dawdle, makeUser)
		by.expect("OK", "MAKEUSER hog")
		as := func(user, line string) {
			calls := by.call(line)
			calls[0].User = user
			by.Submit(calls, nil)
		}
		stop := make(chan struct{})
		var all sync.WaitGroup
		for range 300 {
			all.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						as("hog", "DAWDLE")
					}
				}
			})
		}
		time.Sleep(200 * ms)
		for i := range 50 {
			at := time.Now()
			as("", "INCR lock")
			if took := time.Since(at); took > 20*ms && (i > 0 || took > 35*ms) { // the batch before the first lock is long
				t.Errorf("lock %d took %v", i, took)
			}
			time.Sleep(7 * ms)
		}
		close(stop)
		all.Wait()
		synctest.Wait()
		if waiting := n.routes.get().seq.users.Waiting(); waiting > 0 {
			t.Errorf("%d requests still wait", waiting)
		}
	})
}

// A client that takes a lock waits for at most two pieces of another user's heavy work, which is run in order all the same.
func TestUsersTakeTurns(t *testing.T) {
	for name, remote := range map[string]bool{"leader": false, "follower": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				_, by := leaderAnd(t, remote, linger, makeUser)
				by.expect("OK", "MAKEUSER hog")
				as := func(user, line string) string {
					calls := by.call(line)
					calls[0].User = user
					return text(by.Submit(calls, nil))
				}
				const pieces = 40
				var all sync.WaitGroup
				var done atomic.Int32
				for i := range pieces {
					all.Go(func() {
						if got := as("hog", "LINGER"); got != "OK" {
							t.Errorf("%q", got)
						}
						if got := int(done.Add(1)) - 1; got != i {
							t.Errorf("piece %d was answered as number %d", i, got)
						}
					})
					synctest.Wait()
				}
				locks := 0
				for begin := time.Now(); done.Load() < pieces; locks++ {
					if time.Since(begin) > 3*pieces*100*ms {
						t.Fatalf("%d pieces of %d were run", done.Load(), pieces)
					}
					at := time.Now()
					if got := as("", "INCR lock"); got == "" || time.Since(at) > 220*ms {
						t.Errorf("a lock took %v", time.Since(at))
					}
					time.Sleep(ms) // otherwise no time would pass in the bubble
				}
				all.Wait()
				if locks < pieces/2 {
					t.Errorf("%d locks beside %d pieces of work", locks, pieces)
				}
			})
		})
	}
}

// A client that takes locks waits for at most two entries of large writes, however many connections send such writes.
func TestLargeWritesTakeTurns(t *testing.T) {
	for _, large := range []string{"SET %d " + strings.Repeat("v", 1<<20), "MULTI SET %d " + strings.Repeat("v", 1<<20)} {
		bubble(t, func(t *testing.T) {
			n := newTestNode(t, makeUser)
			n.lead()
			n.expect("OK", "MAKEUSER hog")
			n.log.decides(200*ms, func(e raftfsm.Entry) verdict {
				if len(e.Writes) > HeavyBytes {
					return commitSlowly
				}
				return commit
			})
			const pieces = 24
			var all sync.WaitGroup
			var done atomic.Int32
			for i := range pieces {
				line, multi := strings.CutPrefix(fmt.Sprintf(large, i), "MULTI ")
				calls := n.call(line)
				if multi {
					calls = n.txn(nil, line)
					calls[0].Txn.Calls[0].User = "hog"
				}
				calls[0].User = "hog"
				all.Go(func() {
					defer done.Add(1)
					if got := text(n.Submit(calls, nil)); got != "OK" && got != "[OK]" {
						t.Errorf("%.40q", got)
					}
				})
			}
			synctest.Wait()
			locks := 0
			for begin := time.Now(); done.Load() < pieces; locks++ {
				if time.Since(begin) > 3*pieces*200*ms {
					t.Fatalf("%d pieces of %d were run", done.Load(), pieces)
				}
				at := time.Now()
				if n.do("SET lock x", "DEL lock"); time.Since(at) > 420*ms {
					t.Errorf("a lock took %v", time.Since(at))
				}
				time.Sleep(ms) // otherwise no time would pass in the bubble
			}
			all.Wait()
			if locks < pieces*50 {
				t.Errorf("%d locks beside %d large writes", locks, pieces)
			}
		})
	}
}

// scribble takes 15 ms and writes 100 KiB.
var scribble = store.Command{Name: "scribble", Arity: 2, Flags: store.Write, Run: func(c *store.Ctx) store.Reply {
	time.Sleep(15 * ms)
	c.SetString(0, c.Args[1], strings.Repeat("x", 100<<10), 0)
	return store.OK
}}

// Between scripts that are heavy only together with their entries, clients that take locks have as much time as a script and its
// entry.
func TestWorkAndItsEntryTakeTurns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t, scribble, makeUser)
		n.lead()
		n.expect("OK", "MAKEUSER hog")
		n.log.decides(15*ms, func(e raftfsm.Entry) verdict {
			if len(e.Writes) > HeavyBytes {
				return commitSlowly
			}
			return commit
		})
		const pieces = 200
		var all sync.WaitGroup
		var begun, done atomic.Int32
		for i := range 24 {
			calls := n.call(fmt.Sprintf("SCRIBBLE %d", i))
			calls[0].User = "hog"
			all.Go(func() {
				for begun.Add(1) <= pieces {
					if got := text(n.Submit(calls, nil)); got != "OK" {
						t.Errorf("%.40q", got)
					}
					done.Add(1)
				}
			})
		}
		synctest.Wait()
		locks := 0
		for begin := time.Now(); done.Load() < pieces; locks++ {
			if time.Since(begin) > 3*pieces*30*ms {
				t.Fatalf("%d pieces of %d were run", done.Load(), pieces)
			}
			n.do("SET lock x", "DEL lock")
			time.Sleep(ms) // otherwise no time would pass in the bubble
		}
		all.Wait()
		if locks < 10*pieces {
			t.Errorf("%d locks beside %d pieces of work", locks, pieces)
		}
	})
}

// A client that takes locks waits for at most two pieces of heavy work, however many users have some.
func TestManyUsersWithHeavyWork(t *testing.T) {
	for name, remote := range map[string]bool{"leader": false, "follower": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				_, by := leaderAnd(t, remote, linger, makeUser)
				const users = 20
				as := func(user, line string) string {
					calls := by.call(line)
					calls[0].User = user
					return text(by.Submit(calls, nil))
				}
				var all sync.WaitGroup
				var done atomic.Int32
				for i := range users {
					user := "hog" + strconv.Itoa(i)
					by.expect("OK", "MAKEUSER "+user)
					for range 2 {
						all.Go(func() {
							if got := as(user, "LINGER"); got != "OK" {
								t.Errorf("%q", got)
							}
							done.Add(1)
						})
					}
				}
				locks, waited := 0, time.Duration(0)
				for begin := time.Now(); done.Load() < 2*users; locks++ {
					if time.Since(begin) > 3*2*users*100*ms {
						t.Fatalf("%d pieces of %d were run", done.Load(), 2*users)
					}
					at := time.Now()
					if got := as("", "INCR lock"); got == "" || time.Since(at) > 220*ms {
						t.Errorf("a lock took %v", time.Since(at))
					}
					waited += time.Since(at)
					time.Sleep(5 * ms)
				}
				all.Wait()
				if mean := waited / time.Duration(locks); mean > 20*ms {
					t.Errorf("%d locks took %v each beside %d pieces of work", locks, mean, 2*users)
				}
			})
		})
	}
}

// The time that it takes to hand a message to many subscribers counts as work of its sender.
func TestMessagesToManyCount(t *testing.T) {
	for receivers, heavy := range map[int]bool{fewMessages: false, 100_000: true} {
		bubble(t, func(t *testing.T) {
			n := newTestNode(t)
			n.cfg.Receivers = func(store.PublishKind, string) int { return receivers }
			n.lead()
			c := n.NewClient(heavyHost)
			n.run(c, false, "PUBLISH channel message")
			if got := n.gate.IsHeavy(c); got != heavy {
				t.Errorf("who has sent a message to %d subscribers counts as heavy: %v", receivers, got)
			}
		})
	}
}

// jumping is a clock whose wall part can be set.
type jumping struct {
	clustertest.Clock
	by *atomic.Int64
}

func (j jumping) Wall() time.Time {
	return j.Clock.Wall().Add(time.Duration(j.by.Load()))
}

// TestNoUserPaysForAWallClockThatIsSet: a user whose light command runs while the wall clock is set is not held back.
func TestNoUserPaysForAWallClockThatIsSet(t *testing.T) {
	for _, by := range []time.Duration{0, -10 * time.Second, 10 * time.Second} {
		bubble(t, func(t *testing.T) {
			var wall atomic.Int64
			step := store.Command{Name: "step", Flags: store.Write, Run: func(c *store.Ctx) store.Reply {
				time.Sleep(2 * ms)
				wall.Add(int64(by))
				return store.OK
			}}
			n := newTestNode(t, step, makeUser)
			n.clock = clock.NewLease(jumping{clustertest.NewClock(), &wall})
			n.lead()
			n.expect("OK", "MAKEUSER app")
			as := func(user, line string) (took time.Duration) {
				calls := n.call(line)
				calls[0].User = user
				begin := time.Now()
				if got := text(n.Submit(calls, nil)); got != "OK" {
					t.Errorf("%s: %s", line, got)
				}
				return time.Since(begin)
			}
			stop := make(chan struct{})
			defer close(stop)
			for range 4 {
				go func() {
					for {
						select {
						case <-stop:
							return
						case <-time.After(5 * ms):
							n.Submit(n.call("SET other v"), nil)
						}
					}
				}()
			}
			n.log.decides(ms, func(raftfsm.Entry) verdict { return commitSlowly })
			time.Sleep(100 * ms)
			as("app", "STEP")
			worst, late, begin := time.Duration(0), 0, time.Now()
			for time.Since(begin) < 5*time.Second {
				took := as("app", "SET lock me PX 1000")
				if worst = max(worst, took); took > 20*ms {
					late++
				}
				time.Sleep(3 * ms)
			}
			t.Logf("the wall clock is set by %v: SET takes %v at most, %d took more than 20 ms", by, worst, late)
			if worst > 100*ms {
				t.Errorf("the wall clock is set by %v: SET takes %v", by, worst)
			}
		})
	}
}

// TestHeavyWorkEndsWithClientsThatAreCutOff: the leader does not run the waiting work of cut-off clients, its own or a follower's.
func TestHeavyWorkEndsWithClientsThatAreCutOff(t *testing.T) {
	for name, remote := range map[string]bool{"leader": false, "follower": true} {
		t.Run(name, func(t *testing.T) {
			var runs atomic.Int32
			counted := linger
			counted.Run = func(c *store.Ctx) store.Reply {
				runs.Add(1)
				return linger.Run(c)
			}
			bubble(t, func(t *testing.T) {
				_, by := leaderAnd(t, remote, counted, makeUser)
				by.expect("OK", "MAKEUSER hog")
				work := func() []Call {
					calls := by.call("LINGER")
					calls[0].User = "hog"
					return calls
				}
				stop := make(chan struct{})
				defer close(stop)
				go func() { // others, for whom heavy work waits
					for {
						by.Submit(by.call("INCR lock"), nil)
						select {
						case <-stop:
							return
						case <-time.After(ms):
						}
					}
				}()
				by.Submit(work(), nil)
				var clients []*Client
				var all sync.WaitGroup
				for i := range 30 {
					c := by.NewClient(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}))
					clients = append(clients, c)
					all.Go(func() { by.ask(c, i%2 == 0, work()) })
				}
				time.Sleep(250 * ms)
				before, at := runs.Load(), time.Now()
				for _, c := range clients {
					c.Gone()
				}
				all.Wait()
				if more, took := runs.Load()-before, time.Since(at); more > 2 || took > 300*ms {
					t.Errorf("%d pieces of work were run of clients that had been cut off; they ended after %v", more, took)
				}
			})
		})
	}
}
