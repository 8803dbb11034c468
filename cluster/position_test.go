package cluster

import (
	"context"
	"github.com/lockstep-io/lockstep/cluster/internal/peerport"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestReplicated: a majority counts at once, and another member as soon as it has the acknowledged writes.
func TestReplicated(t *testing.T) {
	c := startThree(t)
	c.start(0, 1, 2)
	within := func(d time.Duration) context.Context {
		ctx, cancel := context.WithTimeout(context.Background(), d)
		t.Cleanup(cancel)
		return ctx
	}
	for i, n := range c.nodes {
		c.expect(i, "OK", "SET k v")
		if others, _ := n.Replicated(within(0), 1, false); others != 1 {
			t.Errorf("n%d: at once %d others, want 1", i+1, others)
		}
		if others, here := n.Replicated(within(10*time.Second), 2, true); others != 2 || !here {
			t.Errorf("n%d: %d others, here %v; want 2, true", i+1, others, here)
		}
	}
	gone := c.follower()
	c.stop(gone)
	asked := c.nodes[c.leader()]
	c.expect(c.leader(), "OK", "SET k w")
	if others, here := asked.Replicated(within(300*time.Millisecond), 2, true); others != 1 || !here {
		t.Errorf("without n%d: %d others, here %v; want 1, true", gone+1, others, here)
	}
	// The member comes back while a client waits.
	answer := make(chan int, 1)
	go func() {
		others, _ := asked.Replicated(within(30*time.Second), 2, false)
		answer <- others
	}()
	c.start(gone)
	if others := <-answer; others != 2 {
		t.Errorf("with n%d back: %d others, want 2", gone+1, others)
	}
}

// TestManyWaitByOneConnection: however many clients ask how many members have their writes, each member is called once.
func TestManyWaitByOneConnection(t *testing.T) {
	var calls atomic.Int32
	c := startThree(t, func(cfg *Config) {
		cfg.dial = func(addr string, proto byte, timeout time.Duration) (net.Conn, error) {
			if proto == peerport.ProtoForward {
				calls.Add(1)
			}
			return peerport.DialTCP(addr, proto, timeout)
		}
	})
	c.start(0, 1, 2)
	before := calls.Load()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var clients sync.WaitGroup
	const nodes, each, times = 3, 20, 10
	for _, n := range c.nodes {
		for range each {
			clients.Go(func() {
				for range times {
					if others, here := n.Replicated(ctx, 2, true); others != 2 || !here {
						t.Errorf("%d others, here %v", others, here)
					}
				}
			})
		}
	}
	clients.Wait()
	if made := calls.Load() - before; made > nodes*(nodes-1) {
		t.Errorf("%d connections for %d questions", made, nodes*each*times)
	}
}

// TestReplicatedAlone: if a cluster has one node, no other member has the writes.
func TestReplicatedAlone(t *testing.T) {
	n := openNode(t, dataConfig(t, t.TempDir()))
	defer closeNode(t, n)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if others, here := n.Replicated(ctx, 1, true); others != 0 || !here {
		t.Errorf("%d others, here %v; want 0, true", others, here)
	}
}
