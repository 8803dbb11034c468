package cluster

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/forward"
	"github.com/lockstep-io/lockstep/store"
)

// A client's goroutine on an ephemeral node does not run another client's long command, so the first client's lease outlasts the
// reply.
func TestNobodyRunsTheLongCommandOfAnother(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var n *testNode
		var long Submission
		done := make(chan struct{})
		invite := store.Command{Name: "invite", Arity: 1, Flags: store.Write, Run: func(*store.Ctx) store.Reply {
			n.SubmitAsync(&long)
			return store.OK
		}}
		slow := store.Command{Name: "slow", Arity: 1, Flags: store.Write, Run: func(*store.Ctx) store.Reply {
			time.Sleep(3 * time.Second)
			return store.OK
		}}
		n = newEphemeralNode(t, invite, slow)
		long = Submission{Calls: n.call("SLOW"), Done: func() { close(done) }}
		time.Sleep(2 * assistInterval) // until then the goroutine that leads runs the batches
		synctest.Wait()
		start := time.Now()
		if got := text(n.Submit(n.call("INVITE", "SET lock me NX PX 1000"), nil)); got != "OK OK" || time.Since(start) > 100*ms {
			t.Errorf("%q after %v", got, time.Since(start))
		}
		<-done
	})
}

// On an ephemeral node, too, a lease counts from the reply.
func TestLateReplyOfAnEphemeralNode(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newEphemeralNode(t, scriptCommand)
		time.Sleep(2 * assistInterval)
		synctest.Wait()
		scripts := [2]Submission{{Calls: n.call("SCRIPT 5ms")}, {Calls: n.call("SCRIPT 80ms")}}
		lock := Submission{Calls: n.call("SET lock me NX PX 60")}
		done := make(chan struct{}, 3)
		for _, p := range []*Submission{&scripts[0], &lock, &scripts[1]} {
			p.Done = func() { done <- struct{}{} }
			n.SubmitAsync(p)
		}
		n.FlushWatched()
		for range 3 {
			<-done
		}
		if got := text(lock.Replies); got != "OK" {
			t.Fatal(got)
		}
		time.Sleep(50 * ms)
		n.expect("me", "GET lock")
		time.Sleep(20 * ms)
		n.expect("nil", "GET lock")
	})
}

// If the time limit of scripts is minutes, a reply may be minutes late. Its lease still counts from the reply.
func TestVeryLateReplyOfAnEphemeralNode(t *testing.T) {
	takesMinutes := store.Command{Name: "takesminutes", Arity: 2, Flags: store.Write, Run: func(c *store.Ctx) store.Reply {
		c.SetString(0, c.Args[1], "me", c.DeadlineIn(1000))
		time.Sleep(3 * time.Minute)
		return store.OK
	}}
	bubble(t, func(t *testing.T) {
		n := newEphemeralNode(t, takesMinutes)
		synctest.Wait()
		n.expect("OK me", "TAKESMINUTES lock", "GET lock")
		n.expect("nil me", "SET lock you NX PX 1000", "GET lock")
	})
}

// A key whose deadline passes within the batch that has set it still exists there. PTTL and TTL must not deny the deadline.
func TestTimeLeftInItsOwnBatch(t *testing.T) {
	for _, slow := range []string{"SCRIPT 9ms", "SCRIPT 10ms", "SCRIPT 13ms"} {
		bubble(t, func(t *testing.T) {
			n := newTestNode(t, scriptCommand)
			n.lead()
			n.expectTogether([]string{"OK", "OK", "0", "0", "1"}, "SET lock me PX 8", slow, "PTTL lock", "TTL lock", "EXISTS lock")
		})
	}
}

// If a script runs for long only when a spoiled batch is evaluated again, the spoiling request and those behind it get BUSY.
func TestBusyBehindASpoiledBatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ran := 0
		twice := store.Command{Name: "twice", Arity: 1, Flags: store.Scripting, Run: func(*store.Ctx) store.Reply {
			if ran++; ran > 1 {
				time.Sleep(8 * time.Second)
			}
			return store.OK
		}}
		spoil := store.Command{Name: "spoil", Arity: 1, Flags: store.Write, Run: func(c *store.Ctx) store.Reply {
			time.Sleep(30 * ms)
			for i := range 9 {
				c.SetString(0, []byte{byte('a' + i)}, string(make([]byte, 1<<20)), 0)
			}
			return store.OK
		}}
		n := newTestNode(t, twice, spoil)
		n.lead()
		n.SetBusyThreshold(100 * ms)
		n.expectTogether([]string{"OK", "-BUSY", "-BUSY"}, "TWICE", "SPOIL", "GET k")
		n.expect("nil", "GET k")
	})
}

// A write that is sent again waits for a script, because only its evaluation shows whether it was executed before.
func TestWriteSentAgainWaitsForAScript(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, _ := newLimited(t)
		n.SetBusyThreshold(100 * ms)
		start := time.Now()
		script := n.startForwarded("RUN 2s")
		time.Sleep(200 * ms)
		again := make(chan string, 1)
		n.routes.get().seq.submit(&request{calls: n.call("INCR counter"), from: forward.Ticket{ID: 1, Low: 1, Again: true},
			finish: func(r *request) { again <- text(r.replies) }})
		n.expect("-BUSY", "INCR counter")
		if got := <-again; got == "-BUSY" || time.Since(start) < 2*time.Second {
			t.Errorf("the write: %q after %v", got, time.Since(start))
		}
		if got := <-script; got != "OK" {
			t.Errorf("the script: %q", got)
		}
	})
}

// A late write lengthens its own leases only. It lengthens no other lease, and no deadline that is given in Unix time.
func TestLateWriteLengthensItsOwnLeasesOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.lead()
		n.log.decides(2000*ms, once(commitSlowly))
		until := n.clock.Now().Wall/1000 + 3000
		n.expect("OK", fmt.Sprintf("SET fixed me PXAT %d", until))
		time.Sleep(time.Until(time.UnixMilli(until)) + 2*latenessKept*ms)
		n.expect("nil", "GET fixed")
		n.expect("OK", "SET fixed you NX PX 1000")
	})
}

// Two requests spoil a batch, the earlier one only when the batch is evaluated again.
func TestTwoSpoilABatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		large := func(c *store.Ctx) store.Reply {
			time.Sleep(30 * ms)
			for i := range 9 {
				c.SetString(0, []byte{byte('a' + i)}, string(make([]byte, 1<<20)), 0)
			}
			return store.OK
		}
		ran := 0
		second := store.Command{Name: "second", Arity: 1, Flags: store.Write, Run: func(c *store.Ctx) store.Reply {
			if ran++; ran == 2 {
				return large(c)
			}
			return store.OK
		}}
		n := newTestNode(t, second, store.Command{Name: "spoil", Arity: 1, Flags: store.Write, Run: large})
		n.lead()
		n.expectTogether([]string{"-ERR", "-ERR", "nil"}, "SECOND", "SPOIL", "GET k")
	})
}
