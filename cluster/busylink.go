package cluster

import (
	"errors"

	"github.com/lockstep-io/lockstep/cluster/internal/forward"
	"github.com/lockstep-io/lockstep/store"
)

// A leader that runs a long script answers a follower's claim with BUSY. Until the claim is accepted, the follower answers its
// own clients BUSY.

// busyLink is a link whose claim the leader has refused because a script runs for long.
type busyLink struct {
	link *forward.Link
	why  store.Error
}

// noteBusy notes the leader's answer to the claim of l, and returns a busyLink if the answer was BUSY. last is the previous
// result.
func (n *Node) noteBusy(l *forward.Link, last *busyLink, err error) *busyLink {
	why, busy := errors.AsType[store.Error](err)
	if !busy {
		n.busyLink.CompareAndSwap(last, nil)
		return nil
	}
	now := &busyLink{l, why}
	n.busyLink.Store(now)
	if last == nil {
		n.routes.drop(nil, nil)
	}
	return now
}

// linkFor returns the link over which this node asks about scripts while rt is the route; nil: none.
func (n *Node) linkFor(rt route) *forward.Link {
	if busy := n.busyLink.Load(); rt.link == nil && busy != nil {
		return busy.link
	}
	return rt.link
}

// busyReplies returns the replies to a submission that waits for a leader, if the leader is busy with a script and would refuse the
// submission.
func (c *carried) busyReplies() (replies []store.Reply, refused bool) {
	busy := c.n.busyLink.Load()
	if busy == nil || isPatient(c.from, c.calls) {
		return nil, false
	}
	return refusals(c.dst[:0], c.calls, busy.why), true
}
