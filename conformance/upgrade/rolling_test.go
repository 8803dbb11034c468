package upgrade

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/nodes"
	"github.com/lockstep-io/lockstep/server/respclient"
)

// load are clients that take and release one lock again and again, each at the next node when its own is away.
type load struct {
	t       *testing.T
	nodes   []*nodes.Node
	inside  atomic.Int64 // how many clients are sure that they hold the lock
	entered atomic.Int64

	mu     sync.Mutex
	worst  time.Duration    // the longest time that a client was without a reply
	faults map[string]int64 // errors that clients got, by their first words
}

// run is one client.
func (l *load) run(ctx context.Context, id int) {
	var c *respclient.Conn
	defer func() {
		if c != nil {
			c.Close()
		}
	}()
	at, owner, last := id, fmt.Sprint("client-", id), time.Now()
	do := func(args ...string) (any, bool) {
		for ctx.Err() == nil {
			if c == nil {
				var err error
				if c, err = respclient.Dial(l.nodes[at%len(l.nodes)].Addr, time.Second); err != nil {
					at++
					time.Sleep(5 * time.Millisecond)
					continue
				}
			}
			reply, err := c.Do(args...)
			l.mu.Lock()
			defer l.mu.Unlock()
			if err == nil {
				l.worst, last = max(l.worst, time.Since(last)), time.Now()
				return reply, true
			}
			l.faults[strings.Join(strings.Fields(err.Error())[:1], " ")]++
			if !strings.HasPrefix(err.Error(), "CLUSTERDOWN") && !strings.HasPrefix(err.Error(), "INDETERMINATE") {
				c.Close()
				c = nil
				at++
			}
			return nil, false
		}
		return nil, false
	}
	for ctx.Err() == nil {
		if reply, sure := do("SET", "contended", owner, "NX", "PX", "20000"); !sure || reply != "OK" {
			if sure { // it may be this client's own, from a command whose reply was lost
				do("EVAL", unlock, "1", "contended", owner)
			}
			continue
		}
		if n := l.inside.Add(1); n != 1 {
			l.t.Errorf("%d clients hold the lock", n)
		}
		l.entered.Add(1)
		l.inside.Add(-1)
		do("EVAL", unlock, "1", "contended", owner)
	}
}

// TestRollingUpgrade: three nodes of version 0.1.0 are replaced one at a time while clients work, the first one twice, because it goes back
// in between. Nobody loses a lock, and none has two owners. When all are upgraded, version 0.1.0 refuses their data and changes nothing.
func TestRollingUpgrade(t *testing.T) {
	old := older(t)
	list := nodes.StartSetup(t, 3, nodes.Setup{Program: old})
	const held = 200
	began := time.Now()
	name := func(i int) string { return fmt.Sprint("held-", i) }
	for i := range held {
		if reply, err := list[i%3].Do("SET", name(i), "owner", "NX", "PX", hour); err != nil || reply != "OK" {
			t.Fatal(reply, err)
		}
	}
	const rounding = 2 // ms: PTTL counts whole ms between two times that are whole ms, and this test does
	check := func(when string) {
		t.Helper()
		for i := range held {
			n := list[(i+1)%3]
			value, err := n.Do("GET", name(i))
			ttl, err2 := n.Do("PTTL", name(i))
			left, _ := ttl.(int64)
			if err != nil || err2 != nil || value != "owner" || left < time.Hour.Milliseconds()-time.Since(began).Milliseconds()-rounding || left > time.Hour.Milliseconds()+time.Minute.Milliseconds() {
				t.Fatalf("%s: %s at %s: %v %v, for %v ms more %v", when, name(i), n.ID, value, err, ttl, err2)
			}
		}
	}
	l := &load{t: t, nodes: list, faults: map[string]int64{}}
	ctx, end := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	defer clients.Wait()
	defer end()
	for i := range 12 {
		clients.Go(func() { l.run(ctx, i) })
	}
	replace := func(n *nodes.Node, program string) {
		t.Helper()
		before := l.entered.Load()
		if code := n.Terminate(); code != 0 {
			t.Errorf("%s: exit code %d", n.ID, code)
		}
		n.Program = program
		n.Run()
		n.WaitReady()
		l.mu.Lock()
		worst := l.worst
		l.worst = 0
		l.mu.Unlock()
		t.Logf("%s runs %q: the longest pause of a client was %v; the lock was taken %d times", n.ID, program, worst.Round(time.Millisecond), l.entered.Load()-before)
		if worst > 10*time.Second {
			t.Errorf("a client was without a reply for %v", worst)
		}
		check("after " + n.ID)
	}
	leader := nodes.Leader(list)
	followers := slices.DeleteFunc(slices.Clone(list), func(n *nodes.Node) bool { return n == leader })
	replace(followers[0], "")
	replace(followers[0], old)
	replace(followers[0], "")
	replace(leader, "") // now an upgraded node may lead a node of version 0.1.0
	replace(leader, old)
	replace(leader, "")
	replace(followers[1], "")
	end()
	clients.Wait()
	l.mu.Lock()
	for _, fault := range slices.Sorted(maps.Keys(l.faults)) {
		t.Logf("%d times: %s …", l.faults[fault], fault)
	}
	l.mu.Unlock()
	if l.entered.Load() < 1000 {
		t.Errorf("the lock was taken only %d times", l.entered.Load())
	}
	// Tokens are in the log now, which version 0.1.0 cannot read.
	n := followers[0]
	for {
		if _, err := n.Do("LOCK.TOKEN", name(0)); err == nil {
			break
		}
		if _, err := n.Do("SET", "tick", ""); err != nil {
			t.Fatal(err)
		}
	}
	n.Terminate()
	n.Program = old
	n.Run()
	if code := n.Wait(); code == 0 || !strings.Contains(n.Log(), "its data is intact; upgrade this node's program") {
		t.Errorf("version 0.1.0 on newer data: exit code %d: %s", code, n.Log())
	}
	n.Program = ""
	n.Run()
	n.WaitReady()
	check("at the end")
}
