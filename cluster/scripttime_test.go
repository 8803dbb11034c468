package cluster

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/fair"
	"github.com/lockstep-io/lockstep/store"
)

// limited is an engine of scripts that sleep, with a time limit.
type limited struct {
	stopper
	limit time.Duration
	kill  chan struct{}
	ran   int
}

func (l *limited) TimeLimit() time.Duration { return l.limit }

func (l *limited) Kill() store.Reply {
	l.kill <- struct{}{}
	return store.OK
}

// run is a command that sleeps for the duration in its argument, and can be stopped like a script.
func (l *limited) run(c *store.Ctx) store.Reply {
	d, err := time.ParseDuration(c.Arg(1))
	if err != nil {
		return store.Err("ERR " + store.Error(err.Error()))
	}
	l.ran++
	left := l.limit - c.ScriptTime
	select {
	case <-l.kill:
		c.Stopped = "ERR killed"
	case <-time.After(min(d, left)):
		if left < d {
			c.Stopped = "ERR time limit"
		}
	}
	if c.Stopped != "" {
		return store.Err(c.Stopped)
	}
	c.SetString(0, c.Args[1], "done", 0)
	return store.OK
}

// newLimited returns a leader whose scripts may run for 3 s.
func newLimited(t *testing.T, more ...store.Command) (*testNode, *limited) {
	l := &limited{limit: 3 * time.Second, kill: make(chan struct{})}
	n := newTestNode(t, append(more, store.Command{Name: "run", Arity: -2, Flags: store.Scripting, Run: l.run})...)
	n.cfg.Scripts = l
	n.lead()
	n.SetBusyThreshold(time.Hour)
	return n, l
}

// waits runs a pipeline again and again until done is closed. Then it sends the longest time that one run took.
func (n *testNode) waits(done <-chan struct{}, pipeline string) <-chan time.Duration {
	result := make(chan time.Duration, 1)
	go func() {
		var worst time.Duration
		for {
			select {
			case <-done:
				result <- worst
				return
			case <-time.After(200 * ms):
			}
			start := time.Now()
			if got := n.do(pipeline); strings.Contains(got, "-") {
				n.t.Errorf("%s: %q", pipeline, got)
			}
			worst = max(worst, time.Since(start))
		}
	}()
	return result
}

// However many long scripts a pipeline holds, other clients wait for two at most: the running one, and one of the same batch.
func TestOthersWaitForTwoScripts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, l := newLimited(t)
		long := n.start(slices.Repeat([]string{"RUN 100s"}, 20)...)
		synctest.Wait()
		done := make(chan struct{})
		plain, script := n.waits(done, "INCR counter"), n.waits(done, "RUN 1ms")
		if got := <-long; strings.Trim(got, "-ER ") != "" {
			t.Errorf("the scripts: %q", got)
		}
		close(done)
		for _, worst := range []time.Duration{<-plain, <-script} {
			if worst > 6100*ms {
				t.Errorf("others waited for %v", worst)
			}
		}
		if l.ran < 20 {
			t.Errorf("%d scripts were run", l.ran)
		}
	})
}

// TestFactsWaitForNoScript: otherwise INFO, CONFIG GET and the metrics would delay SCRIPT KILL behind them.
func TestFactsWaitForNoScript(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, _ := newLimited(t)
		n.do("SET k v")
		n.do("SET due v PX 60000")
		before := n.Status()
		script := n.start("RUN 2s")
		synctest.Wait()
		start := time.Now()
		during := n.Status()
		_, known := n.Config("maxmemory")
		if took := time.Since(start); took > 0 || known {
			t.Errorf("they took %v; maxmemory is set: %v", took, known)
		}
		if during.Keys != before.Keys || during.Sequence != before.Sequence || during.Keys[0] != 2 || during.Deadlines[0] != 1 {
			t.Errorf("%+v\nbefore the script: %+v", during.Facts, before.Facts)
		}
		<-script
		if after := n.Status(); after.Keys[0] != 3 || after.Sequence <= before.Sequence {
			t.Errorf("after the script: %+v", after.Facts)
		}
	})
}

// All scripts of a transaction share the time limit and the BUSY threshold of one script.
func TestTransactionHasTheTimeOfOneScript(t *testing.T) {
	for _, scripts := range []string{"RUN 100s|RUN 100s|RUN 100s", "RUN 2s|RUN 2s|RUN 2s", "RUN 2s|RUN 1001ms|RUN 1s", strings.Repeat("RUN 1s|", 3) + "RUN 0s"} {
		bubble(t, func(t *testing.T) {
			n, _ := newLimited(t)
			n.SetBusyThreshold(2500 * ms)
			start := time.Now()
			txn := n.txn(nil, strings.Split("SET before x|"+scripts+"|SET behind x", "|")...)
			done := make(chan string, 1)
			go func() { done <- text(n.Submit(txn, nil)) }()
			time.Sleep(100 * ms)
			if got := <-n.start("INCR counter"); got != "-BUSY" || time.Since(start) > 2600*ms {
				t.Errorf("%s: others were told %q after %v", scripts, got, time.Since(start))
			}
			time.Sleep(3100*ms - time.Since(start))
			select {
			case got := <-done:
				if want := "-EXECABORT"; got != want && !strings.HasSuffix(scripts, "RUN 0s") {
					t.Errorf("%s: %q, want %q", scripts, got, want)
				} else if got == want {
					n.expect("0", "EXISTS before 2s 1s 1001ms behind")
				}
			default:
				t.Fatalf("%s: it runs on after the limit of one script", scripts)
			}
		})
	}
}

// SCRIPT KILL ends the whole transaction of the running script, but in a pipeline only that script.
func TestKillEndsTheTransaction(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, l := newLimited(t)
		done := make(chan string, 1)
		txn := n.txn(nil, "SET before x", "RUN 100s", "RUN 100s", "RUN 100s")
		go func() { done <- text(n.Submit(txn, nil)) }()
		time.Sleep(killFrom)
		n.KillScript(0)
		if got := <-done; got != "-EXECABORT" || l.ran != 1 {
			t.Errorf("%q after %d scripts", got, l.ran)
		}
		n.expect("0", "EXISTS before 100s")
		pipeline := n.start("RUN 2s", "RUN 2s")
		time.Sleep(killFrom)
		n.KillScript(0)
		if got := <-pipeline; got != "-ERR OK" {
			t.Errorf("a pipeline: %q", got)
		}
	})
}

// telling is an engine that says that it runs a function.
type telling struct{ *limited }

func (telling) RunningFunction() store.Reply { return store.Status("runs") }

// TestYoungScriptsAreNotKilled: otherwise a client that asks without a pause could end all scripts of others.
func TestYoungScriptsAreNotKilled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, l := newLimited(t)
		n.cfg.Scripts = telling{l}
		for _, c := range []struct{ busy, from time.Duration }{{time.Minute, killFrom}, {50 * ms, 50 * ms}} {
			n.SetBusyThreshold(c.busy)
			for name, kill := range map[string]func(uint64) store.Reply{"SCRIPT KILL": n.KillScript, "FUNCTION KILL": n.KillFunction} {
				script := n.start("RUN 2s")
				time.Sleep(c.from - ms)
				if got := kill(0); got.Str != string(store.ErrNotBusy) {
					t.Errorf("%s before %v: %v", name, c.from, got)
				}
				if got := n.RunningFunction(0); got.Kind != store.Null {
					t.Errorf("FUNCTION STATS before %v: %v", c.from, got)
				}
				time.Sleep(ms)
				if got := n.RunningFunction(0); got.Str != "runs" {
					t.Errorf("FUNCTION STATS after %v: %v", c.from, got)
				}
				if got := kill(0); got.Str != "OK" {
					t.Errorf("%s after %v: %v", name, c.from, got)
				}
				if name == "FUNCTION KILL" { // which stopper answers alone
					l.kill <- struct{}{}
				}
				if got := <-script; got != "-ERR" {
					t.Errorf("%s: the script's caller got %q", name, got)
				}
			}
		}
	})
}

// A script runs until its time limit, and other clients wait. They get BUSY, even if the script ends at
// that very moment.
func TestBusyAtTheTimeLimit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, l := newLimited(t)
		n.SetBusyThreshold(l.limit)
		first := n.start("RUN 100s")
		synctest.Wait()
		second, plain := n.start("RUN 100s"), n.start("INCR counter")
		start := time.Now()
		for _, reply := range []<-chan string{first, second, plain} {
			if got := <-reply; !strings.HasPrefix(got, "-") {
				t.Errorf("got %q", got)
			}
		}
		if took := time.Since(start); took > l.limit+ms {
			t.Errorf("they were told after %v", took)
		}
	})
}

// spin runs for a duration, as a command with many steps does.
var spin = store.Command{Name: "spin", Arity: -2, Flags: store.ReadOnly, Run: func(c *store.Ctx) store.Reply {
	d, err := time.ParseDuration(c.Arg(1))
	if err != nil {
		return store.Err("ERR " + store.Error(err.Error()))
	}
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(ms)
		c.Watch()
	}
	return store.OK
}}

// idle is a scripting command that runs no Lua, as FUNCTION LIST is. It runs as spin does.
var idle = store.Command{Name: "idle", Arity: -2, Flags: store.Scripting | store.NoLua, Run: spin.Run}

// If a command is stopped at its time limit, its writes are undone.
func TestStoppedCommandHasNoEffect(t *testing.T) {
	write := store.Command{Name: "write", Arity: -2, Flags: store.Write, Run: func(c *store.Ctx) store.Reply {
		for ; ; time.Sleep(ms) {
			c.SetString(c.DB, []byte("written"), "", 0)
			c.Watch()
		}
	}}
	bubble(t, func(t *testing.T) {
		n, _ := newLimited(t, write)
		for _, calls := range [][]Call{n.call("WRITE 1"), n.txn(nil, "INCR counter", "WRITE 1")} {
			if replies := n.Submit(calls, nil); len(replies) != 1 || !replies[0].IsError() {
				t.Errorf("%q", text(replies))
			}
			if got := text(n.Submit(n.call("MGET written counter"), nil)); got != "[nil nil]" {
				t.Errorf("it has left %s", got)
			}
		}
	})
}

// A user whose work is stopped again and again has less and less time, and later the whole limit again.
func TestEndlessWorkHasLessAndLessTime(t *testing.T) {
	for _, work := range []string{"RUN 100s", "SPIN 100s", "IDLE 100s", "MULTI SPIN 2s|SPIN 100s", "MULTI RUN 2s|RUN 100s", "MULTI IDLE 2s|IDLE 100s"} {
		bubble(t, func(t *testing.T) {
			n, l := newLimited(t, spin, idle)
			calls := n.call(strings.TrimPrefix(work, "MULTI "))
			if inner, multi := strings.CutPrefix(work, "MULTI "); multi {
				calls = n.txn(nil, strings.Split(inner, "|")...)
			}
			run := func() (took time.Duration) {
				start := time.Now()
				replies := n.Submit(calls, nil)
				if took = time.Since(start); len(replies) != 1 || !replies[0].IsError() {
					t.Errorf("%s: %q", work, text(replies))
				}
				return took
			}
			done := make(chan struct{})
			worst := n.waits(done, "INCR counter")
			var all sync.WaitGroup
			var sum time.Duration
			for range 4 { // clients
				all.Go(func() {
					for range 5 {
						run()
					}
				})
			}
			start := time.Now()
			all.Wait()
			sum = time.Since(start)
			close(done)
			if sum > 10*time.Second {
				t.Errorf("%s: 20 times took %v together", work, sum)
			}
			if w := <-worst; w > l.limit+l.limit/2+l.limit/4+l.limit/8+ms {
				t.Errorf("%s: others waited for %v", work, w)
			}
			if took := run(); took > 2*fair.LeastTime {
				t.Errorf("%s: then it was stopped after %v", work, took)
			}
			other := n.call("RUN 2s")
			other[0].User = store.SystemUser
			if got := text(n.Submit(other, nil)); got != "OK" {
				t.Errorf("%s: another user has %q", work, got)
			}
			time.Sleep(10 * fair.OverrunMemory)
			if took := run(); took < l.limit {
				t.Errorf("%s: ten minutes later it was stopped after %v", work, took)
			}
		})
	}
}

// A user sends endless work from many connections at once. All of it together takes a quarter of the time, not a quarter for
// each connection.
func TestEndlessWorkOfManyClients(t *testing.T) {
	for _, work := range []string{"RUN 100s", "SPIN 100s"} {
		bubble(t, func(t *testing.T) {
			n, l := newLimited(t, spin)
			var all sync.WaitGroup
			for range 400 {
				all.Go(func() { n.Submit(n.call(work), nil) })
			}
			start := time.Now()
			all.Wait()
			if took := time.Since(start); took > 2*l.limit+2*time.Second {
				t.Errorf("%s of 400 clients took %v", work, took)
			}
			start = time.Now()
			if n.Submit(n.call(work), nil); time.Since(start) > 2*ms {
				t.Errorf("then it was stopped after %v", time.Since(start))
			}
			time.Sleep(10 * fair.RushMemory)
			start = time.Now()
			if n.Submit(n.call(work), nil); time.Since(start) < fair.LeastTime {
				t.Errorf("when nothing had been stopped for long it was stopped after %v", time.Since(start))
			}
		})
	}
}

// Work that ends just before its limit, while lighter work waits, shortens the limit of its user.
func TestWorkThatEndsKeepsOthersWaitingForLess(t *testing.T) {
	for _, work := range []string{"RUN %v", "SPIN %v", "MULTI RUN %v", "MULTI SPIN %v"} {
		bubble(t, func(t *testing.T) {
			n, l := newLimited(t, spin)
			long := func(took time.Duration) (ran time.Duration, got string) {
				line := fmt.Sprintf(work, took)
				inner, multi := strings.CutPrefix(line, "MULTI ")
				calls := n.call(inner)
				if multi {
					calls = n.txn(nil, inner)
				}
				start := time.Now()
				got = text(n.Submit(calls, nil))
				return time.Since(start), got
			}
			for range 10 { // nobody waits
				if took, got := long(2 * time.Second); took < 2*time.Second || strings.HasPrefix(got, "-") {
					t.Fatalf("%s: stopped after %v, although nobody waits: %s", work, took, got)
				}
				time.Sleep(10 * time.Millisecond)
			}
			kept := func(took time.Duration) (time.Duration, string) { // with somebody who waits
				done := make(chan struct{})
				go func() {
					defer close(done)
					time.Sleep(ms)
					n.do("INCR counter")
				}()
				ran, got := long(took)
				<-done
				return ran, got
			}
			for range 20 {
				if took, got := kept(fair.GraceTime - ms); took < fair.GraceTime-ms || strings.HasPrefix(got, "-") {
					t.Fatalf("%s: stopped after %v: %s", work, took, got)
				}
			}
			var total time.Duration
			for range 20 {
				took, _ := kept(2 * time.Second)
				total += took
				time.Sleep(10 * time.Second)
			}
			if most := l.limit + l.limit + 20*(fair.GraceTime+10*ms); total > most {
				t.Errorf("%s: 20 times took %v, want at most %v", work, total, most)
			}
			time.Sleep(2 * fair.GraceMemory)
			if took, got := long(2 * time.Second); took < 2*time.Second || strings.HasPrefix(got, "-") {
				t.Errorf("%s: long afterwards it was stopped after %v: %s", work, took, got)
			}
		})
	}
}

// Work that is stopped after a second because of its memory shortens the limit of its user, too.
func TestWorkThatTakesAllMemoryHasLessTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		hog := store.Command{Name: "hog", Arity: 1, Flags: store.Scripting, Run: func(c *store.Ctx) store.Reply {
			left := 3*time.Second - c.ScriptTime
			time.Sleep(min(time.Second, left))
			if c.TookAll = left > time.Second; !c.TookAll {
				c.Stopped = "ERR time limit"
			}
			return store.Err("ERR stopped")
		}}
		n, _ := newLimited(t, hog)
		start := time.Now()
		for range 20 {
			n.do("HOG")
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("20 times took %v", took)
		}
	})
}

// A long command that joins a waiting batch is soon stopped, and runs again later.
func TestLongCommandComesToABatchThatWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, _ := newLimited(t, spin)
		n.expectThree()
		before := n.start("INCR counter")
		time.Sleep(200 * time.Microsecond)
		long := n.start("SPIN 2s")
		if got := <-before; got != "1" {
			t.Errorf("%q", got)
		}
		if got := <-long; got != "OK" {
			t.Errorf("%q", got)
		}
		n.expect("1", "GET counter")
	})
}

// A long command does not delay the other requests of its batch: it is stopped, and runs again later.
func TestLongCommandIsNotWaitedForByOthersOfItsBatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, spins := range []func(*testNode) []Call{
			func(n *testNode) []Call { return n.call("SPIN 2s") },
			func(n *testNode) []Call { return n.txn(nil, "SPIN 1s", "SPIN 1s") },
		} {
			n, _ := newLimited(t, spin)
			n.log.decides(10*ms, once(commitSlowly))
			blocker := n.start("SET a b")
			synctest.Wait()
			start := time.Now()
			before := n.start("INCR counter")
			synctest.Wait()
			long := make(chan string, 1)
			go func() { long <- text(n.Submit(spins(n), nil)) }()
			<-blocker
			if got, took := <-before, time.Since(start); got != "1" || took > 20*ms+companyTime {
				t.Errorf("%s after %v", got, took)
			}
			if got, took := <-long, time.Since(start); strings.Trim(got, "[] ") != "OK" && got != "[OK OK]" || took < 2*time.Second {
				t.Errorf("%s after %v", got, took)
			}
		}
	})
}
