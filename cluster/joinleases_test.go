package cluster

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// TestJoinBesideLeases is the short form of bench/snapshots: no lease is lost while an empty node joins and owners renew leases.
func TestJoinBesideLeases(t *testing.T) {
	const locks, some = 20_000, 500
	const lease, renewal = 4 * time.Second, 100 * ms // far apart: the machine may be slow
	c, w := wired(t, func(cfg *Config) { cfg.TrailingLogs = 20 })
	c.start(0, 1, 2)
	leader := c.leader()
	for from := 0; from < locks; from += some {
		var sets []string
		for i := from; i < from+some; i++ {
			sets = append(sets, fmt.Sprintf("SET held:%d owner-%d NX PX 3600000", i, i))
		}
		c.do(leader, sets...)
	}
	for range snapshotsKept + 1 {
		for range 30 {
			c.do(leader, "INCR entries")
		}
		c.same() // all nodes have applied everything, so each of them takes a new snapshot
		for _, n := range c.nodes {
			if err := n.Snapshot(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, n := range c.nodes { // any of them may lead by then
		if first, err := raftOf(n).Dir.Log.FirstIndex(); err != nil || first < 2 {
			t.Fatalf("the log of node %d begins at %d, %v: nobody needs a snapshot", i, first, err)
		}
	}

	stop := make(chan struct{})
	var owners sync.WaitGroup
	renew := func(on int) {
		n, millis := c.nodes[on], lease.Milliseconds()
		for j := range 3 {
			key := fmt.Sprintf("leased:%d:%d", on, j)
			if got := lines(t, n, fmt.Sprintf("SET %s me NX PX %d", key, millis)); got != "OK" {
				t.Fatal(got)
			}
			owners.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(renewal):
					}
					if got := lines(t, n, fmt.Sprintf("PEXPIRE %s %d", key, millis)); got != "1" {
						t.Errorf("the lease of %s is missed: %q", key, got)
						return
					}
				}
			})
		}
	}
	for i := range 3 {
		renew(i)
	}
	i := c.newcomer(w, "n4", 0, 1, 2)
	c.start(i)
	renew(i)
	c.voters("n1", "n2", "n3", "n4")
	close(stop)
	owners.Wait()
	if raftOf(c.nodes[i]).Dir.Snapshots.Newest().Index == 0 {
		t.Error("the new node has been sent no snapshot")
	}
	for k := 0; k < locks; k += locks / 100 {
		c.expect(i, fmt.Sprintf("owner-%d nil", k), fmt.Sprintf("GET held:%d", k), fmt.Sprintf("SET held:%d thief NX PX 10", k))
	}
	c.expect(i, fmt.Sprint(locks+4*3+1), "DBSIZE")
	c.same()
}
