package cluster

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/call"
	"github.com/lockstep-io/lockstep/cluster/internal/clustertest"
	"github.com/lockstep-io/lockstep/cluster/internal/fair"
	"github.com/lockstep-io/lockstep/raftfsm"
	"github.com/lockstep-io/lockstep/store"
)

var (
	heavyHost = netip.MustParseAddr("192.0.2.1")
	lightHost = netip.MustParseAddr("192.0.2.2")
)

// While other clients take locks, heavy work leaves them nine tenths of the time, however it is submitted. Alone it never waits.
func TestHeavyWorkGivesWay(t *testing.T) {
	clustertest.Slow(t)
	mega := strings.Repeat("x", 1<<20)
	for name, c := range map[string]struct {
		work   []string
		anew   bool // each piece comes by a new connection
		async  bool
		remote bool // the clients are at a follower
	}{
		"large arguments":              {work: []string{"SET k " + mega}},
		"large arguments, event loop":  {work: []string{"SET k " + mega}, async: true},
		"large writes":                 {work: []string{"FILL k 1"}},
		"large writes, event loop":     {work: []string{"FILL k 1"}, async: true},
		"new connections":              {work: []string{"FILL k 1"}, anew: true},
		"large arguments, by follower": {work: []string{"SET k " + mega}, remote: true},
		"large writes, by follower":    {work: []string{"FILL k 1"}, remote: true},
		"long evaluation":              {work: []string{"LINGER"}},
		"large replies":                {work: []string{"FILL k 1", "GET k"}, anew: true},
		"hidden among light commands":  {work: []string{"SET a b", "FILL k 1", "SET a b"}},
		"hidden, by follower":          {work: []string{"EXISTS a", "FILL k 1", "EXISTS a"}, remote: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n, by := leaderAnd(t, c.remote, append(badCommands, linger)...)
				n.log.decides(100*ms, func(e raftfsm.Entry) verdict {
					if len(e.Writes) > HeavyBytes {
						return commitSlowly
					}
					return commit
				})
				client := by.NewClient(heavyHost)
				work := func(d time.Duration) (count int) {
					for end := time.Now().Add(d); time.Now().Before(end); count++ {
						if c.anew {
							client = by.NewClient(heavyHost)
						}
						by.run(client, c.async, c.work...)
						time.Sleep(ms)
					}
					return count
				}
				if got := work(4 * time.Second); got < 36 {
					t.Errorf("alone it was done %d times in 4 s, want 39", got)
				}
				// Heavy work gives way to a rare lock, too, but does not then pause for nine times as long.
				time.Sleep(2 * fair.YieldMemory)
				stop := make(chan struct{})
				var both sync.WaitGroup
				both.Go(func() { n.locks(lightHost, 500*ms, stop) })
				if got := work(4 * time.Second); got < 28 {
					t.Errorf("beside two locks a second it was done %d times in 4 s, want 36", got)
				}
				close(stop)
				both.Wait()
				time.Sleep(2 * fair.YieldMemory)
				var locks, slow int
				stop = make(chan struct{})
				both.Go(func() { locks, slow = n.locks(lightHost, 5*ms, stop) })
				time.Sleep(ms)
				got := work(10 * time.Second)
				close(stop)
				both.Wait()
				if got < 5 || got > 16 {
					t.Errorf("beside locks it was done %d times in 10 s, want 10", got)
				}
				if locks < 1000 || slow > locks/50 {
					t.Errorf("%d locks, of which %d waited", locks, slow)
				}
			})
		})
	}
}

// The reply to a heavy script is held until others have had their time. Without others no reply is held, and light replies never are.
func TestRepliesOfHeavyWorkAreHeld(t *testing.T) {
	clustertest.Slow(t)
	stuff, burn := badCommands[1], linger
	stuff.Name, stuff.Flags = "stuff", store.Write|store.Scripting
	burn.Name, burn.Flags = "burn", store.Scripting
	for name, c := range map[string]struct {
		work   string
		async  bool
		remote bool
		alone  int // least number of runs in 100 ms without other clients
		most   int // most runs in 10 s while others take locks
	}{
		"a script that writes":              {work: "STUFF k 2", alone: 80, most: 54},
		"a script that writes, event loop":  {work: "STUFF k 2", alone: 80, most: 54, async: true},
		"a script that writes, by follower": {work: "STUFF k 2", alone: 80, most: 54, remote: true},
		"a script that writes too much":     {work: "STUFF k 9", alone: 80, most: 16},
		"a script that is refused":          {work: "UNDO 2", alone: 80, most: 54},
		"a long script":                     {work: "BURN", alone: 1, most: 12},
		"a long script, by follower":        {work: "BURN", alone: 1, most: 15, remote: true},
		"a light script":                    {work: "RELEASE k", alone: 80, most: 10001},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n, by := leaderAnd(t, c.remote, stuff, burn, script, badCommands[2])
				work := func(d time.Duration) (count int) {
					for end := time.Now().Add(d); time.Now().Before(end); count++ {
						by.run(by.NewClient(heavyHost), c.async, c.work) // each run has a new connection
						time.Sleep(ms)
					}
					return count
				}
				if got := work(100 * ms); got < c.alone {
					t.Errorf("alone it was done %d times in 100 ms, want %d", got, c.alone)
				}
				var locks, slow int
				stop := make(chan struct{})
				var both sync.WaitGroup
				both.Go(func() { locks, slow = n.locks(lightHost, 5*ms, stop) })
				time.Sleep(50 * ms) // a follower sees only what has been written
				got := work(10 * time.Second)
				close(stop)
				both.Wait()
				if got > c.most || got < c.most/2 {
					t.Errorf("beside locks it was done %d times in 10 s, want %d at most", got, c.most)
				}
				if locks < 1000 || slow > locks/50 {
					t.Errorf("%d locks, of which %d waited", locks, slow)
				}
			})
		})
	}
}

// A client that takes a lock waits for one or two long scripts of a crowd. Without such clients the scripts never pause.
func TestCrowdsGiveWay(t *testing.T) {
	burn := linger
	burn.Name, burn.Flags = "burn", store.Scripting
	for _, remote := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			n, by := leaderAnd(t, remote, burn, script)
			work := func(d time.Duration, anew bool) int64 {
				var count atomic.Int64
				var crowd sync.WaitGroup
				end := time.Now().Add(d)
				for range 40 {
					crowd.Go(func() {
						c := by.NewClient(heavyHost)
						for time.Now().Before(end) {
							if anew {
								c = by.NewClient(heavyHost)
							}
							by.run(c, false, "BURN")
							count.Add(1)
						}
					})
				}
				crowd.Wait()
				return count.Load()
			}
			if got := work(10*time.Second, false); got < 90 {
				t.Errorf("alone they ran %d scripts in 10 s, want 100", got)
			}
			time.Sleep(time.Minute)
			var worst time.Duration
			stop := make(chan struct{})
			var others sync.WaitGroup
			others.Go(func() {
				time.Sleep(10 * time.Second) // until the node knows the clients with long scripts
				for c := n.NewClient(lightHost); ; time.Sleep(5 * ms) {
					select {
					case <-stop:
						return
					default:
					}
					begin := time.Now()
					n.run(c, false, "SET lock me NX PX 10000")
					n.run(c, false, "DEL lock")
					worst = max(worst, time.Since(begin))
				}
			})
			others.Go(func() { n.locks(lightHost, 5*ms, stop) })
			got := work(time.Minute, remote)
			close(stop)
			others.Wait()
			if got < 100 || got > 330 {
				t.Errorf("beside locks they ran %d scripts in a minute, want 300 at most", got)
			}
			if worst > 400*ms {
				t.Errorf("a lock was taken and released in %v", worst)
			}
		})
	}
}

// A client's own earlier light work does not count as work of others.
func TestOwnLightWorkIsNotThatOfOthers(t *testing.T) {
	burn := linger
	burn.Name, burn.Flags = "burn", store.Scripting
	for name, work := range map[string]string{"a script": "BURN", "a heavy command": "LINGER"} {
		bubble(t, func(t *testing.T) {
			n := newTestNode(t, burn, linger)
			n.lead()
			client := n.NewClient(heavyHost)
			for range 3 {
				for range 10 {
					n.run(client, false, "SET a b")
				}
				begin := time.Now()
				n.run(client, false, work, work)
				if took := time.Since(begin); took > 220*ms {
					t.Errorf("alone, 200 ms of %s after light commands took %v", name, took)
				}
				time.Sleep(4 * time.Second)
			}
		})
	}
}

// leaderAnd returns a leader n that another node follows, and the node of the clients.
func leaderAnd(t *testing.T, remote bool, commands ...store.Command) (n, by *testNode) {
	n, other := newTestNode(t, commands...), newTestNode(t, commands...)
	n.lead()
	n.log.set(func(l *fakeLog) { l.copies = []*Node{other.Node} })
	if remote {
		n.carried(other.Node)
		return n, other
	}
	return n, n
}

// run submits commands as a client.
func (n *testNode) run(c *Client, async bool, lines ...string) {
	for calls := n.call(lines...); len(calls) > 0; {
		calls = calls[len(n.ask(c, async, calls)):]
		c.Encoded()
	}
}

// ask submits commands as a client. The replies count as in hand (fair.InHand) until the caller calls c.Encoded.
func (n *testNode) ask(c *Client, async bool, calls []Call) []store.Reply {
	if !async {
		return n.SubmitPart(c, calls, nil)
	}
	done := make(chan struct{})
	p := Submission{Client: c, Calls: calls, Done: func() { close(done) }}
	n.SubmitAsync(&p)
	n.Flush()
	<-done
	return p.Replies
}

// locks takes and releases a lock until stop is closed. It returns how often, and how often both took more than 20 ms.
func (n *testNode) locks(host netip.Addr, every time.Duration, stop chan struct{}) (count, slow int) {
	c := n.NewClient(host)
	for {
		select {
		case <-stop:
			return count, slow
		default:
		}
		begin := time.Now()
		n.run(c, false, "SET lock me NX PX 10000")
		n.run(c, false, "DEL lock")
		count++
		if time.Since(begin) > 20*ms {
			slow++
		}
		time.Sleep(every)
	}
}

// script releases a lock.
var script = store.Command{Name: "release", Arity: 2, Flags: store.Scripting | store.Write, Run: func(c *store.Ctx) store.Reply {
	if c.Lookup(0, c.Args[1]) == nil {
		return store.Zero
	}
	c.Delete(0, c.Args[1])
	return store.One
}}

// A release is not overtaken by a later request for its lock, neither behind a slow batch nor after heavy work of the releasing
// client.
func TestReleaseIsNotOvertaken(t *testing.T) {
	for _, heavy := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			n := newTestNode(t, script, linger)
			n.lead()
			stop := make(chan struct{})
			var other sync.WaitGroup
			other.Go(func() { n.locks(lightHost, 5*ms, stop) })
			time.Sleep(100 * ms)
			one, two := n.NewClient(lightHost), n.NewClient(lightHost)
			if heavy {
				n.run(one, false, "LINGER")
				n.run(one, false, "LINGER")
			} else {
				other.Go(func() { n.run(n.NewClient(heavyHost), false, "LINGER") })
				synctest.Wait()
				time.Sleep(ms)
			}
			other.Go(func() { n.run(one, false, "RELEASE mine") })
			synctest.Wait()
			time.Sleep(10 * ms)
			if got := text(n.SubmitPart(two, n.call("SET mine me NX PX 30000"), nil)); got != "OK" {
				t.Error(got)
			}
			close(stop)
			other.Wait()
			if got := n.do("GET mine"); got != "me" {
				t.Errorf("acknowledged, released by nobody since: %s (heavy: %v)", got, heavy)
			}
		})
	}
}

// Scripts are evaluated in their turn, however many other clients read.
func TestScriptsAreNotStarved(t *testing.T) {
	bubble(t, func(t *testing.T) {
		read := store.Command{Name: "look", Arity: 1, Flags: store.ReadOnly, Run: func(*store.Ctx) store.Reply { time.Sleep(4 * ms); return store.OK }}
		n := newTestNode(t, script, read)
		n.lead()
		stop := make(chan struct{})
		var others sync.WaitGroup
		for range 12 {
			others.Go(func() {
				for c := n.NewClient(heavyHost); ; n.run(c, false, "LOOK") {
					select {
					case <-stop:
						return
					default:
					}
				}
			})
		}
		time.Sleep(time.Second)
		begin := time.Now()
		n.do("RELEASE lock")
		if took := time.Since(begin); took > time.Second {
			t.Errorf("a script waited for %v", took)
		}
		close(stop)
		others.Wait()
	})
}

// A session may keep commands for later instead of submitting them. These commands give way, too: the more bytes they have, the
// longer.
func TestLargeQueriesGiveWay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.lead()
		c, stop := n.NewClient(heavyHost), make(chan struct{})
		var other sync.WaitGroup
		other.Go(func() { n.locks(lightHost, 5*ms, stop) })
		begin := time.Now()
		for range 100 {
			n.GiveWay(c, HeavyBytes, 1)
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("small ones took %v", took)
		}
		for range 10 {
			time.Sleep(10 * ms) // the session reads the arguments
			n.GiveWay(c, 1<<20, 1)()
		}
		if took := time.Since(begin); took < 850*ms || took > 1100*ms {
			t.Errorf("10 MB took %v, want 0.95 s", took)
		}
		close(stop)
		other.Wait()
	})
}

// linger is a command that takes 100 ms.
var linger = store.Command{Name: "linger", Flags: store.Write, Run: func(*store.Ctx) store.Reply {
	time.Sleep(100 * ms)
	return store.OK
}}

// Commands with large arguments are under way at once only within LargeAtOnce, because each is in memory several times.
func TestLargeArgumentsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t, badCommands...)
		n.lead()
		n.log.decides(10*ms, always(commitSlowly))
		waits := func() (sum int) {
			n.routes.get().seq.in.Look(func(q []*request) {
				for _, r := range q {
					sum += call.Size(r.calls) + store.ReplySize*call.Arguments(r.calls)
				}
			})
			return sum
		}
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				n.run(n.NewClient(heavyHost), i%2 == 0, fmt.Sprint("SET k", i, " ", strings.Repeat("x", 3<<20)))
			})
		}
		all.Go(func() { n.run(n.NewClient(heavyHost), false, "SET k "+strings.Repeat("x", fair.LargeAtOnce-100)) })
		for range 20 {
			all.Go(func() { n.run(n.NewClient(heavyHost), false, "EXISTS"+strings.Repeat(" k", 30_000)) })
		}
		for range 100 {
			time.Sleep(ms)
			if got := waits(); got > fair.LargeAtOnce+1<<10 {
				t.Errorf("%d bytes wait", got)
			}
		}
		all.Wait()
		n.expect("21", "DBSIZE")
	})
}

// Large commands that a node answers itself are bounded, too. A request that a session submits for one does not wait again.
func TestLargeCommandsHereAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.lead()
		const size = 3 << 20
		var under, most atomic.Int64
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				c := n.NewClient(heavyHost)
				defer n.GiveWay(c, size, 1)()
				most.Store(max(most.Load(), under.Add(size)))
				time.Sleep(10 * ms)
				n.run(c, false, "SET k "+strings.Repeat("x", fair.LargeAtOnce-100))
				under.Add(-size)
			})
		}
		all.Wait()
		if got := most.Load(); got > fair.LargeAtOnce {
			t.Errorf("%d bytes at once", got)
		}
	})
}

// A request that is stopped for now has its writes undone. These writes do not count as work of the other clients.
func TestWhatIsRolledBackIsNotTheWorkOfOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		again := store.Command{Name: "again", Arity: 1, Flags: store.Scripting, Run: func(c *store.Ctx) store.Reply {
			if c.StopAfter == 0 {
				return store.OK
			}
			before := c.Savepoint()
			c.SetString(0, []byte("undone"), strings.Repeat("x", 16<<20), 0)
			c.Rollback(before)
			c.Stopped, c.StoppedForNow = "ERR for now", true
			return store.Err(c.Stopped)
		}}
		n := newTestNode(t, again)
		n.lead()
		n.log.decides(10*ms, once(commitSlowly))
		blocker := n.start("SET a b")
		synctest.Wait()
		light := n.NewClient(lightHost)
		var both sync.WaitGroup
		both.Go(func() { n.run(light, false, "INCR counter") })
		synctest.Wait()
		both.Go(func() { n.run(n.NewClient(heavyHost), false, "AGAIN") })
		<-blocker
		both.Wait()
		if n.gate.IsHeavy(light) {
			t.Error("a client that counts is held for another one's script")
		}
	})
}
