package cluster

import (
	"context"
	"time"
)

// Reaches reports whether a request would find a leader now.
func (n *Node) Reaches() bool {
	rt := n.routes.get()
	return rt.seq != nil || rt.link != nil
}

// Ready reports whether this node can take the place of another one.
func (n *Node) Ready() bool {
	rt := n.routes.get()
	return (rt.seq != nil || rt.link != nil && n.cons.CaughtUp()) && n.Membership() == Voter && n.Trouble() == ""
}

// readyTick is how often WaitReady checks.
const readyTick = 10 * time.Millisecond

// WaitReady returns when the node is ready, or when ctx ends.
func (n *Node) WaitReady(ctx context.Context) error {
	tick := time.NewTicker(readyTick)
	defer tick.Stop()
	for !n.Ready() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-n.routes.get().changed:
		case <-tick.C:
		}
	}
	return nil
}
