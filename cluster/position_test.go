package cluster

import (
	"context"
	"testing"
	"time"
)

// TestReplicated: the majority is known at once; the third node is asked, and
// counts as soon as it has what was acknowledged. One that is gone does not.
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
	// It comes back while somebody waits.
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

// TestReplicatedAlone: a node alone has nobody else.
func TestReplicatedAlone(t *testing.T) {
	n := openNode(t, dataConfig(t, t.TempDir()))
	defer closeNode(t, n)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if others, here := n.Replicated(ctx, 1, true); others != 0 || !here {
		t.Errorf("%d others, here %v; want 0, true", others, here)
	}
}
