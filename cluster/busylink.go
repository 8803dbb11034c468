package cluster

import (
	"errors"

	"lockstep/cluster/internal/forward"
	"lockstep/store"
)

// A follower may get a new link to the leader while a script runs for long there. The leader then refuses the claim of the
// link, and says BUSY. Until the leader accepts the claim, the follower itself answers BUSY to its clients. It can still ask
// the leader about the script over this link, because such a question needs no claim.

// busyLink is a link whose claim the leader has refused because a script runs for long.
type busyLink struct {
	link *forward.Link
	why  store.Error
}

// noteBusy notes how the leader has answered the claim of the link l. If the leader has said BUSY, noteBusy returns a new busyLink.
// At the first BUSY, it also wakes the submissions that wait for a leader. If the leader has not said BUSY, noteBusy returns nil.
// The parameter last is the result of noteBusy for the leader's answer before this one.
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
