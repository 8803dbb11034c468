package cluster

import (
	"context"
	"time"

	"lockstep/cluster/internal/forward"
	"lockstep/cluster/internal/raftnode"
	"lockstep/store"
)

// The reply to WAIT. An acknowledged write is in the logs of a majority, but Raft does not tell which members
// these are. If a majority is not enough, this node asks the members for their commit indexes. A member has all
// entries up to its commit index on disk, because it cannot know of a commit beyond its own log.

// positionPause is the pause between two questions to a member that is behind.
const positionPause = 10 * time.Millisecond

// Replicated returns how many other members have all earlier acknowledged writes on disk, and whether this node
// has. It waits until there are enough, or until ctx ends. The numbers are certain, but may be too low then.
func (n *Node) Replicated(ctx context.Context, others int, here bool) (int, bool) {
	members, err := n.cons.Members()
	if err != nil {
		return 0, false
	}
	voters := 0
	for _, m := range members {
		if m.Voter {
			voters++
		}
	}
	known := voters / 2 // the size of a majority, less one: this node may be part of it
	if others <= known && !here {
		return known, false
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(n.ctx, cancel)
	defer stop()
	target, ok := n.acknowledged(ctx)
	for !ok { // there is no leader at present
		select {
		case <-ctx.Done():
			return known, false
		case <-time.After(positionPause):
		}
		target, ok = n.acknowledged(ctx)
	}
	arrived := make(chan string, len(members))
	for _, m := range members {
		go func() {
			if n.reaches(ctx, m, target) {
				arrived <- m.ID
			}
		}()
	}
	return n.gather(ctx, arrived, others, here, known)
}

// gather counts the members that arrive until there are enough.
func (n *Node) gather(ctx context.Context, arrived <-chan string, others int, here bool, known int) (int, bool) {
	count, self := 0, false
	for max(count, known) < others || here && !self {
		select {
		case id := <-arrived:
			if id == n.cfg.ID {
				self = true
			} else {
				count++
			}
		case <-ctx.Done():
			return max(count, known), self
		}
	}
	return max(count, known), self
}

// acknowledged returns an index that covers all acknowledged writes: the commit index of the leader,
// which acknowledges a write only after it is committed. ok is false if the leader does not tell.
func (n *Node) acknowledged(ctx context.Context) (index uint64, ok bool) {
	rt := n.routes.get()
	if rt.link == nil {
		return n.position(), rt.seq != nil
	}
	reply, err := n.ask(ctx, rt.link, forward.Position, nil)
	return uint64(reply.Int), err == nil && !reply.IsError()
}

// position returns the commit index as this node knows it.
func (n *Node) position() uint64 {
	return n.cons.Facts().Commit
}

// reaches waits until a member knows that the entry target is committed. It returns false if ctx ends first.
func (n *Node) reaches(ctx context.Context, m raftnode.Member, target uint64) bool {
	tick := time.NewTicker(positionPause)
	defer tick.Stop()
	for {
		if m.ID == n.cfg.ID {
			if n.position() >= target {
				return true
			}
		} else if n.peerReaches(ctx, m, target, tick.C) {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
}

// peerReaches asks another member on one connection until the member has reached target. It returns false if the
// connection fails or ctx ends.
func (n *Node) peerReaches(ctx context.Context, m raftnode.Member, target uint64, tick <-chan time.Time) bool {
	l, r, err := n.connect(m.PeerAddr)
	if err != nil {
		return false // reaches tries again until ctx ends
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.Read(r)
	}()
	defer func() {
		l.Fail()
		<-ended
	}()
	for {
		reply, err := n.ask(ctx, l, forward.Position, nil)
		if err != nil || reply.IsError() {
			return false
		}
		if uint64(reply.Int) >= target {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-tick:
		}
	}
}

// servePosition answers a peer that asks for the commit index of this node.
func (n *Node) servePosition(id uint64, out *forward.Outbox) error {
	return out.Send(forward.Result, id, func(b []byte) []byte {
		return forward.AppendReplies(b, []store.Reply{store.Int(int64(n.position()))})
	})
}
