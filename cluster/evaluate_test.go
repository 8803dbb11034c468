package cluster

import (
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/store"
	"github.com/lockstep-io/lockstep/store/redistext"
)

// together queues pipelines while an entry is in flight. So the leader evaluates them as one batch,
// in this order. together returns their replies.
func (n *testNode) together(lines ...string) []string {
	n.t.Helper()
	n.log.decides(10*ms, once(commitSlowly))
	blocker := n.start("SET blocker x")
	synctest.Wait()
	var waiting []<-chan string
	for _, line := range lines {
		waiting = append(waiting, n.start(strings.Split(line, "; ")...))
		synctest.Wait()
	}
	<-blocker
	n.log.decides(0, nil)
	var replies []string
	for _, w := range waiting {
		replies = append(replies, <-w)
	}
	return replies
}

func (n *testNode) expectTogether(want []string, lines ...string) {
	n.t.Helper()
	got := n.together(lines...)
	for i, line := range lines {
		if got[i] != want[i] {
			n.t.Errorf("%s: got %q, want %q", line, got[i], want[i])
		}
	}
}

// badCommands misbehave.
var badCommands = []store.Command{
	{Name: "panic", Flags: store.Write, Run: func(c *store.Ctx) store.Reply {
		c.SetString(0, []byte("panic"), "half done", 0)
		panic("a bug in a handler")
	}},
	// FILL key n writes a value of n MB to the key.
	{Name: "fill", Arity: 3, Flags: store.Write, Run: func(c *store.Ctx) store.Reply {
		n, _ := redistext.ParseInt(c.Args[2])
		c.SetString(0, c.Args[1], strings.Repeat("x", int(n)<<20), 0)
		return store.OK
	}},
	// UNDO n writes n MB and takes the write back, as a refused script does.
	{Name: "undo", Arity: 2, Flags: store.Scripting, Run: func(c *store.Ctx) store.Reply {
		n, _ := redistext.ParseInt(c.Args[1])
		before := c.Savepoint()
		c.SetString(0, []byte("undone"), strings.Repeat("x", int(n)<<20), 0)
		c.Rollback(before)
		return store.Err("ERR too much")
	}},
}

// A bug in one handler costs its own client an error and nobody else anything.
func TestPanicCostsOnlyItsRequest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t, badCommands...)
		n.lead()
		n.expectTogether([]string{"1", "-ERR -ERR -ERR", "2", "-ERR", "3"},
			"INCR counter", "INCR counter; PANIC; INCR counter", "INCR counter", "PANIC", "INCR counter")
		n.expect("3 nil", "GET counter", "GET panic")
		n.expect("-ERR", "PANIC")
		n.expect("4", "INCR counter")
	})
}

// A command that writes more than it may is refused. No other command suffers, neither in the same pipeline nor in others.
func TestOversizedWriteSets(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t, badCommands...)
		n.lead()
		n.expectTogether([]string{"1", "-ERR", "2", "OK", "3", "OK", "4", "5 -ERR 7", "6"},
			"INCR counter", "FILL huge 9", "INCR counter", "FILL a 5", "INCR counter", "FILL b 5", "INCR counter",
			"INCR counter; FILL huge 9; INCR counter", "INCR counter")
		n.expect("7 5242880 5242880 0", "GET counter", "STRLEN a", "STRLEN b", "EXISTS huge")
		n.log.set(func(l *fakeLog) {
			for i, p := range l.proposals {
				if len(p.Writes) > store.DefaultMaxEntry+1<<20 {
					t.Errorf("proposal %d has %d bytes", i, len(p.Writes))
				}
			}
		})
	})
}

// Many expired keys with long names fill an entry; requests must not wait
// until all of them are deleted.
func TestMassExpiryDoesNotStarveRequests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.lead()
		long := strings.Repeat("n", 100)
		for i := range 30 {
			var lines []string
			for j := range 1000 {
				lines = append(lines, "SET "+long+string(rune('A'+i))+string(rune(0x4e00+j))+" v PX 1000")
			}
			n.do(lines...)
		}
		n.log.decides(1500*ms, once(commitSlowly))
		n.expect("OK", "SET blocker x") // meanwhile all of them expire
		n.log.decides(10*ms, always(commitSlowly))
		start := time.Now()
		n.expect("1", "INCR counter")
		if took := time.Since(start); took > 30*ms {
			t.Errorf("a request waited %v behind expired keys", took)
		}
	})
}

// script sleeps for the time in its argument, a number of seconds or a duration such as 5ms, and then writes the key "ran".
var scriptCommand = store.Command{Name: "script", Arity: 2, Flags: store.Scripting, Run: func(c *store.Ctx) store.Reply {
	d, err := time.ParseDuration(c.Arg(1))
	if err != nil {
		n, _ := redistext.ParseInt(c.Args[1])
		d = time.Duration(n) * time.Second
	}
	if c.StopAfter > 0 && d > c.StopAfter {
		time.Sleep(c.StopAfter)
		c.Stopped, c.StoppedForNow = "ERR for now", true
		return store.Err(c.Stopped)
	}
	time.Sleep(d)
	c.SetString(0, []byte("ran"), c.Arg(1), 0)
	return store.OK
}}

// A long script in a batch with others is stopped and run again in a batch of its own, so that others get their replies.
func TestLongScriptIsNotWaitedForByOthersOfItsBatch(t *testing.T) {
	for want, calls := range map[string]func(*testNode) []Call{
		"OK":     func(n *testNode) []Call { return n.call("SCRIPT 2") },
		"2 OK 3": func(n *testNode) []Call { return n.call("INCR counter", "SCRIPT 2", "INCR counter") },
		"[2 OK 3]": func(n *testNode) []Call {
			return n.txn(nil, "INCR counter", "SCRIPT 2", "INCR counter")
		},
		// The push serves a blocked client first.
		"1 OK 2": func(n *testNode) []Call { return n.call("RPUSH queue job", "SCRIPT 2", "INCR counter") },
	} {
		bubble(t, func(t *testing.T) {
			n := newTestNode(t, scriptCommand)
			n.lead()
			served := make(chan string, 1)
			n.Block(&Blocked{Call: n.call("BLPOP queue 0")[0], Done: func(r store.Reply) { served <- text([]store.Reply{r}) }})
			n.Flush()
			synctest.Wait()
			n.log.decides(10*ms, once(commitSlowly))
			blocker := n.start("SET a b")
			synctest.Wait()
			begin := time.Now()
			before := n.start("INCR counter")
			synctest.Wait()
			var others []<-chan string
			for range 5 {
				others = append(others, n.start("EXISTS counter"))
				synctest.Wait()
			}
			long := make(chan string, 1)
			go func() { long <- text(n.Submit(calls(n), nil)) }()
			synctest.Wait()
			behind := n.start("GET ran")
			<-blocker
			if got, took := <-before, time.Since(begin); got != "1" || took > 20*ms+companyTime {
				t.Errorf("beside %s: %s after %v", want, got, took)
			}
			for _, other := range others {
				if got, took := <-other, time.Since(begin); got != "1" || took > 20*ms+companyTime {
					t.Errorf("beside %s: %s after %v", want, got, took)
				}
			}
			if got, took := <-long, time.Since(begin); got != want || took > 2*time.Second+20*ms+companyTime {
				t.Errorf("%s after %v, want %s", got, took, want)
			}
			if got := <-behind; got != "2" {
				t.Errorf("behind %s: %s", want, got)
			}
			if want == "1 OK 2" && <-served != "[queue job]" {
				t.Error("the blocked client is not served")
			}
		})
	}
}

// count adds one to the counter. INCR, with which clients make locks, overtakes a script of its own user; count does not.
var count = store.Command{Name: "count", Flags: store.Write, Run: func(c *store.Ctx) store.Reply {
	n := store.Int(1)
	if e := c.Txn.Lookup(0, []byte("counter")); e != nil {
		old, _ := redistext.ParseInt([]byte(e.Str()))
		n.Int += old
	}
	c.SetString(0, []byte("counter"), strconv.FormatInt(n.Int, 10), 0)
	return n
}}

// All requests that wait for a script beyond the threshold are told BUSY and not executed.
func TestBusy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t, scriptCommand, count)
		n.lead()
		start := time.Now()
		n.log.decides(10*ms, once(commitSlowly))
		blocker := n.start("SET blocker x")
		synctest.Wait()
		before := n.start("INCR counter")
		synctest.Wait()
		script := n.start("SCRIPT 8")
		synctest.Wait()
		inBatch := n.startForwarded("COUNT", "COUNT")
		synctest.Wait()
		<-blocker
		synctest.Wait()
		queued := n.startForwarded("COUNT")
		if n.Busy() {
			t.Error("busy before the threshold")
		}
		if got := <-inBatch; got != "-BUSY -BUSY" {
			t.Errorf("in the script's batch: %q", got)
		}
		if took := time.Since(start); took < 5*time.Second || took > 5100*ms {
			t.Errorf("told after %v, want the threshold", took)
		}
		if got := <-queued; got != "-BUSY" {
			t.Errorf("in the queue: %q", got)
		}
		if !n.Busy() {
			t.Error("not busy")
		}
		n.expect("-BUSY", "INCR counter")
		if got := <-before; got != "1" {
			t.Errorf("before the script: %q", got)
		}
		if got := <-script; got != "OK" {
			t.Errorf("the script itself: %q", got)
		}
		if n.Busy() {
			t.Error("still busy")
		}
		n.expect("2 8", "INCR counter", "GET ran")
	})
}

// Requests that go behind those of other users, and long reads, are told BUSY as well.
func TestBusyBehindOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		look := store.Command{Name: "look", Flags: store.ReadOnly, Run: func(*store.Ctx) store.Reply { time.Sleep(time.Second); return store.OK }}
		n, _ := newLimited(t, look)
		n.do("RUN 1s")
		n.do("RUN 1s")
		n.SetBusyThreshold(100 * ms)
		n.do("LOOK")
		first := n.startForwarded("RUN 90ms")
		synctest.Wait()
		start := time.Now()
		script := n.startForwarded("RUN 2s")
		read, long := n.startForwarded("GET k"), n.startForwarded("LOOK")
		for name, told := range map[string]<-chan string{"read": read, "long read": long} {
			if got := <-told; got != "-BUSY" {
				t.Errorf("the %s was told %q", name, got)
			}
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("told after %v", took)
		}
		if got := <-first + <-script; got != "OKOK" {
			t.Errorf("the scripts: %q", got)
		}
		n.expect("nil", "GET k")
	})
}

// On an ephemeral node, too, a client is told BUSY while another client's script runs, though clients may run requests themselves
// there.
func TestNobodyRunsTheScriptOfAnother(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := &limited{limit: 3 * time.Second, kill: make(chan struct{})}
		n := newEphemeralNode(t, store.Command{Name: "run", Arity: -2, Flags: store.Scripting, Run: l.run})
		n.SetBusyThreshold(100 * ms)
		time.Sleep(2 * assistInterval) // until then the goroutine that leads runs the batches
		synctest.Wait()
		done := make(chan struct{})
		script := Submission{Calls: n.call("RUN 2s"), Done: func() { close(done) }}
		n.SubmitAsync(&script)
		start := time.Now()
		if got := n.do("GET k"); got != "-BUSY" || time.Since(start) > time.Second {
			t.Errorf("the other client was told %q after %v", got, time.Since(start))
		}
		<-done
		if got := text(script.Replies); got != "OK" {
			t.Errorf("the script: %q", got)
		}
	})
}

// Requests behind a long script in its batch get BUSY, even if the script has ended by then.
func TestBusyWhenTheScriptHasEnded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		s := newSequencer(n.Node)
		told := map[string]string{}
		behind := make([]*request, 3)
		stands := func(i int, name string) {
			behind[i] = &request{calls: n.call("INCR counter"), finish: func(r *request) {
				told[name] = text(r.replies)
				for i := range behind {
					behind[i] = &request{calls: n.call("INCR counter"), finish: func(*request) { t.Error("one who came later was told") }}
				}
			}}
		}
		stands(0, "first")
		stands(1, "second")
		stands(2, "third")
		s.script.starts(&request{}, behind, s.node.cfg.Time.Monotonic())
		time.Sleep(n.busyThreshold())
		synctest.Wait()
		for _, name := range []string{"first", "second", "third"} {
			if told[name] != "-BUSY" {
				t.Errorf("the %s was told %q", name, told[name])
			}
		}
	})
}

// Nobody gets BUSY because of a script within the threshold, nor because of two that exceed it only together.
func TestNotBusy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t, scriptCommand)
		n.lead()
		n.expectTogether([]string{"OK OK", "1"}, "SCRIPT 4; SCRIPT 4", "INCR counter")
		n.SetBusyThreshold(10 * ms)
		n.expectTogether([]string{"OK OK", "2"}, "SCRIPT 9ms; SCRIPT 9ms", "INCR counter")
		n.expectTogether([]string{"OK OK", "-BUSY"}, "SCRIPT 4ms; SCRIPT 15ms", "INCR counter")
		n.expect("2", "GET counter")
	})
}

// The threshold counts from the beginning of each script, though one timer serves all.
func TestBusyBehindAShortScript(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t, scriptCommand)
		n.lead()
		start := time.Now()
		scripts := n.start("SCRIPT 4", "SCRIPT 8")
		time.Sleep(4100 * ms) // earlier, INCR would have its turn between the two scripts
		if got := <-n.startForwarded("INCR counter"); got != "-BUSY" {
			t.Errorf("behind the long script: %q", got)
		}
		if took := time.Since(start); took < 9*time.Second || took > 9100*ms {
			t.Errorf("told after %v, want the threshold from the second script on", took)
		}
		if got := <-scripts; got != "OK OK" {
			t.Errorf("the scripts: %q", got)
		}
	})
}

// If a batch is evaluated again, those who were told BUSY stay out of it.
func TestBusyInABatchThatIsEvaluatedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t, append(badCommands, scriptCommand)...)
		n.lead()
		n.SetBusyThreshold(10 * ms)
		n.expectTogether([]string{"1", "-ERR -ERR", "-BUSY", "-BUSY"},
			"INCR counter", "SCRIPT 15ms; PANIC", "INCR counter", "INCR counter")
		n.expect("1 nil", "GET counter", "GET ran")
		n.expectTogether([]string{"2", "OK -ERR", "-BUSY"}, "INCR counter", "SCRIPT 15ms; FILL a 9", "INCR counter")
		n.expect("2 15ms", "GET counter", "GET ran")
	})
}

// While libraries are loaded, a script runs beside others of its batch until the busy threshold, and not for longer.
func TestEndlessFunctionIsStoppedForItsCompany(t *testing.T) {
	bubble(t, func(t *testing.T) {
		function := store.Command{Name: "function", Arity: 1, Flags: store.Scripting, Run: func(c *store.Ctx) store.Reply {
			switch {
			case c.StopKept > 0:
				time.Sleep(c.StopKept)
				c.Stopped, c.StoppedForNow = "ERR for now", true
				return store.Err(c.Stopped)
			case c.StopAfter > 0:
				time.Sleep(30 * time.Second)
			}
			return store.OK
		}}
		n := newTestNode(t, function)
		n.lead()
		n.log.decides(10*ms, once(commitSlowly))
		blocker := n.start("SET a b")
		synctest.Wait()
		read := n.start("GET a")
		synctest.Wait()
		ran := n.start("FUNCTION")
		start := time.Now()
		<-blocker
		if got := <-read; got != "b" || time.Since(start) > n.cfg.BusyThreshold+20*ms {
			t.Errorf("read: %q after %v", got, time.Since(start))
		}
		if got := <-ran; got != "OK" {
			t.Errorf("function: %q", got)
		}
	})
}
