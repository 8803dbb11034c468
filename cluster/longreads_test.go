package cluster

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// While long reads of thirty clients wait, each lock of another client waits for at most one batch of them. All are run in order.
func TestLongReadsGoBehind(t *testing.T) {
	for _, takes := range []time.Duration{100 * ms, 12 * ms} {
		t.Run(takes.String(), func(t *testing.T) { bubble(t, func(t *testing.T) { longReadsGoBehind(t, takes) }) })
	}
}

func longReadsGoBehind(t *testing.T, takes time.Duration) {
	look := store.Command{Name: "look", Flags: store.ReadOnly, Run: func(*store.Ctx) store.Reply {
		time.Sleep(takes)
		return store.OK
	}}
	n, _ := leaderAnd(t, false, look)
	const reads = 30
	var all sync.WaitGroup
	var done atomic.Int32
	for i := range reads {
		all.Go(func() {
			n.ask(nil, false, n.call("LOOK"))
			got, together := int(done.Add(1))-1, int(batchSpread*ms/takes) // the reads of a batch are answered together
			if got < i-together || got > i+together {
				t.Errorf("read %d was answered as number %d", i, got)
			}
		})
		synctest.Wait()
	}
	batch := max(takes, 2*batchSpread*ms) // a batch takes in no more requests after batchSpread
	locks, waited := 0, 0
	for begin := time.Now(); done.Load() < reads; locks++ {
		if time.Since(begin) > 2*reads*(takes+5*ms) {
			t.Fatalf("%d reads of %d were run", done.Load(), reads)
		}
		at := time.Now()
		n.run(nil, false, fmt.Sprint("SET lock", locks, " me"))
		if took := time.Since(at); took > batch+5*ms {
			t.Errorf("a lock took %v", took)
		} else if took > 5*ms {
			waited++
		}
		time.Sleep(ms)
	}
	all.Wait()
	if waited > reads || locks < int(reads*takes/ms)*4/10 {
		t.Errorf("%d locks beside %d reads, %d of them waited", locks, reads, waited)
	}
}

// TestLongReadsOfOneUser: a long read waits for one of another user's thirty long reads, not for all.
func TestLongReadsOfOneUser(t *testing.T) {
	bubble(t, func(t *testing.T) {
		look := store.Command{Name: "look", Arity: 2, Flags: store.ReadOnly, Run: func(c *store.Ctx) store.Reply {
			d, err := time.ParseDuration(string(c.Args[1]))
			if err != nil {
				t.Error(err)
			}
			time.Sleep(d)
			return store.OK
		}}
		n, _ := leaderAnd(t, false, look, makeUser)
		n.do("MAKEUSER hog")
		n.do("MAKEUSER app")
		as := func(user, line string) {
			calls := n.call(line)
			calls[0].User = user
			n.ask(nil, false, calls)
		}
		var all sync.WaitGroup
		for range 30 {
			all.Go(func() { as("hog", "LOOK 200ms") })
		}
		time.Sleep(300 * ms)
		for range 5 {
			at := time.Now()
			as("app", "LOOK 0ms")
			if took := time.Since(at); took > 450*ms {
				t.Errorf("the read took %v", took)
			}
			time.Sleep(100 * ms)
		}
		all.Wait()
	})
}

// If the room for large replies runs out, the leader puts a read aside and ends the batch, so that a lock need not wait.
func TestReadsPutAsideEndTheBatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var n *testNode
		var big *Client
		look := store.Command{Name: "look", Flags: store.ReadOnly, Run: func(*store.Ctx) store.Reply {
			time.Sleep(100 * ms)
			big.Holds(9 << 20)
			return store.Str(strings.Repeat("x", 2*maxPartBytes))
		}}
		n, _ = leaderAnd(t, false, look, linger)
		big = n.NewClient(heavyHost)
		defer big.Holds(0)
		var all sync.WaitGroup
		all.Go(func() { n.run(nil, false, "LINGER") }) // for 100 ms; the reads wait for it
		time.Sleep(10 * ms)
		for range 4 {
			all.Go(func() { n.ask(nil, false, n.call("LOOK")) })
		}
		time.Sleep(100 * ms)
		at := time.Now()
		n.run(nil, false, "SET lock me")
		if took := time.Since(at); took > 100*ms {
			t.Errorf("a lock took %v", took)
		}
		big.Holds(0)
		all.Wait()
	})
}

// A long read that a full batch had no place for goes first in the next one.
func TestLongReadsAreRun(t *testing.T) {
	n := newTestNode(t)
	s := newSequencer(n.Node)
	names := map[*request]string{}
	ask := func(line string) *request {
		r := &request{calls: n.call(line)}
		names[r] = line
		return r
	}
	first, second, light := ask("LRANGE a 0 -1"), ask("KEYS *"), ask("SET e 1")
	order := func(q []*request) (text string) {
		for _, r := range q {
			text += names[r] + ", "
		}
		return text
	}
	for _, c := range []struct {
		q, rest []*request
		order   string
		left    string
	}{
		{[]*request{first, ask("GET b"), second, ask("SET b 1")}, []*request{first, second}, "GET b, SET b 1, LRANGE a 0 -1, KEYS *, ", ""},
		{[]*request{ask("SET c 1"), ask("SET d 1")}, []*request{second}, "LRANGE a 0 -1, SET c 1, SET d 1, KEYS *, ", ""},
		{[]*request{light}, []*request{light, second}, "SET e 1, KEYS *, ", "SET e 1, KEYS *, "}, // it was stopped for now
		{[]*request{light, second}, []*request{second}, "SET e 1, KEYS *, ", ""},
		{[]*request{light}, nil, "KEYS *, SET e 1, ", ""},
	} {
		if got := order(s.inTurn(c.q)); got != c.order {
			t.Errorf("%s: %s, want %s", order(c.q), got, c.order)
		}
		if got := order(s.leftOver(c.rest)); got != c.left {
			t.Errorf("%s are left over: %s, want %s", order(c.rest), got, c.left)
		}
	}
}
