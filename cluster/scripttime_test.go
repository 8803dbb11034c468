package cluster

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockstep/store"
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

// run is the command of such a script: it sleeps for a duration, and what it has written is
// rolled back if it is stopped.
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
func newLimited(t *testing.T) (*testNode, *limited) {
	l := &limited{limit: 3 * time.Second, kill: make(chan struct{})}
	n := newTestNode(t, store.Command{Name: "run", Arity: -2, Flags: store.Scripting, Run: l.run})
	n.cfg.Scripts = l
	n.lead()
	n.SetBusyThreshold(time.Hour)
	return n, l
}

// waits runs a pipeline again and again until done, and returns the longest that it took.
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

// However many long scripts a pipeline holds, the others wait for two of them: the one that runs, and
// one that is in the same batch.
func TestOthersWaitForTwoScripts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, _ := newLimited(t)
		long := n.start(slices.Repeat([]string{"RUN 100s"}, 20)...)
		synctest.Wait()
		done := make(chan struct{})
		plain, script := n.waits(done, "INCR counter"), n.waits(done, "RUN 1ms")
		start := time.Now()
		if got := <-long; strings.Trim(got, "-ER ") != "" {
			t.Errorf("the scripts: %q", got)
		}
		close(done)
		if took := time.Since(start); took < 55*time.Second {
			t.Errorf("the scripts took %v: they were not run", took)
		}
		for _, worst := range []time.Duration{<-plain, <-script} {
			if worst > 6100*ms {
				t.Errorf("others waited for %v", worst)
			}
		}
	})
}

// The scripts of a transaction may run together for as long as one may; then nothing of the
// transaction takes place. It counts as one script to those who are told BUSY.
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

// SCRIPT KILL ends a transaction with the script of it that runs, and of a pipeline that
// script alone.
func TestKillEndsTheTransaction(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, l := newLimited(t)
		done := make(chan string, 1)
		txn := n.txn(nil, "SET before x", "RUN 100s", "RUN 100s", "RUN 100s")
		go func() { done <- text(n.Submit(txn, nil)) }()
		time.Sleep(100 * ms)
		n.KillScript()
		if got := <-done; got != "-EXECABORT" || l.ran != 1 {
			t.Errorf("%q after %d scripts", got, l.ran)
		}
		n.expect("0", "EXISTS before 100s")
		pipeline := n.start("RUN 2s", "RUN 2s")
		time.Sleep(100 * ms)
		n.KillScript()
		if got := <-pipeline; got != "-ERR OK" {
			t.Errorf("a pipeline: %q", got)
		}
	})
}
