package cluster

import (
	"context"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/forward"
	"github.com/lockstep-io/lockstep/cluster/internal/frame"
	"github.com/lockstep-io/lockstep/cluster/internal/raftnode"
	"github.com/lockstep-io/lockstep/store"
)

// The replies to WAIT and WAITAOF. A member has all entries up to its commit index on disk: it learns of no commit beyond them.

const (
	// positionPause is the pause between two questions to a member that is behind, and the first pause of Replicated.
	positionPause = 10 * time.Millisecond
	// positionMost is the longest pause of Replicated, whose pauses grow.
	positionMost = time.Second
	// positionRedial is the pause before a new connection to a member that could not be reached, or whose connection failed.
	positionRedial = 50 * time.Millisecond
	// positionTimeout is how long a member may take to answer before this node connects to it anew.
	positionTimeout = 2 * time.Second
	// positionIdle is how long a connection stays open when no client waits.
	positionIdle = 5 * time.Second
)

// Replicated waits until others other members have all earlier acknowledged writes on disk and, if here is true, this node has them,
// or ctx ends. It returns how many members have the writes, and whether this node has. Both may understate the truth.
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
	known := voters / 2 // a majority has the writes, so at least this many members besides this node have them
	if others <= known && !here {
		return known, false
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(n.ctx, cancel)
	defer stop()
	defer n.positions.Begin()()
	tick := time.NewTimer(positionPause)
	defer tick.Stop()
	target, ok := n.acknowledged(ctx)
	for !ok { // there is no leader at present, or it did not answer
		select {
		case <-ctx.Done():
			return known, false
		case <-tick.C:
			tick.Reset(positionPause)
		}
		target, ok = n.acknowledged(ctx)
	}
	for pause := positionPause; ; {
		count, arrived, forget := n.positions.Reached(target, members, n.cfg.ID)
		count = max(count, known)
		self := n.position() >= target
		if count >= others && (self || !here) {
			forget()
			return count, self
		}
		if count < others {
			n.positions.Ask(target, members, n.cfg.ID, n.askPosition)
		}
		select {
		case <-ctx.Done():
			forget()
			return count, self
		case <-arrived:
		case <-tick.C: // this node may have reached target
			pause = min(2*pause, positionMost) // grows because thousands of clients may wait for a member that is down
			tick.Reset(pause)
		}
		forget()
	}
}

// acknowledged returns an index that covers all acknowledged writes: the leader's commit index. ok is false if no leader answers.
func (n *Node) acknowledged(ctx context.Context) (index uint64, ok bool) {
	rt := n.routes.get()
	if rt.link == nil {
		return n.position(), rt.seq != nil
	}
	reply, err := n.ask(ctx, rt.link, forward.Position, nil)
	return uint64(reply.Int), err == nil && !reply.IsError()
}

// leaderPosition is the body of a question that a leader answers only after a check that it still leads. Version 0.1.0 does not check.
var leaderPosition = []byte{1}

// confirmed is acknowledged, but only of a leader that led after the call began: a replaced leader may not know later acknowledged
// writes.
func (n *Node) confirmed(ctx context.Context) (index uint64, ok bool) {
	rt := n.routes.get()
	if rt.link == nil {
		return n.confirmedHere()
	}
	reply, err := n.ask(ctx, rt.link, forward.Position, leaderPosition)
	return uint64(reply.Int), err == nil && !reply.IsError()
}

// confirmedHere does what confirmed does if this node leads. Otherwise ok is false.
func (n *Node) confirmedHere() (index uint64, ok bool) {
	seq := n.routes.get().seq
	if seq == nil || !seq.stillLeads() {
		return 0, false
	}
	return n.position(), true
}

// position returns the commit index as this node knows it.
func (n *Node) position() uint64 {
	return n.cons.Facts().Commit
}

// askPosition asks a member for its position while a client waits for that member, or wake has a value, and for positionIdle longer.
func (n *Node) askPosition(m raftnode.Member, wake <-chan struct{}) {
	for n.askPositionOn(m, wake) {
		select {
		case <-n.ctx.Done():
			return
		case <-time.After(positionRedial):
		}
	}
}

// askPositionOn does the work of askPosition on one connection. It returns true if the connection could not be made, or has
// failed, while a client waits.
func (n *Node) askPositionOn(m raftnode.Member, wake <-chan struct{}) (again bool) {
	l, r, err := n.connect(m.ID, m.PeerAddr)
	if err != nil {
		return n.positions.Wants(m.ID)
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
		ctx, cancel := context.WithTimeout(n.ctx, positionTimeout)
		reply, err := n.ask(ctx, l, forward.Position, nil)
		cancel()
		if err != nil || reply.IsError() {
			return n.positions.Wants(m.ID)
		}
		n.positions.Heard(m.ID, uint64(reply.Int))
		pause := positionIdle
		if n.positions.Wants(m.ID) {
			pause = positionPause
		}
		select {
		case <-n.ctx.Done():
			return false
		case <-wake:
		case <-time.After(pause):
			if pause == positionIdle {
				return false
			}
		}
	}
}

// servePosition answers a peer's question for the commit index of this node. If the question has a body (leaderPosition), this node
// must lead.
func (n *Node) servePosition(f frame.Frame, out *forward.Outbox) error {
	answer := func(reply store.Reply) error {
		return out.Send(forward.Result, f.ID, func(b []byte) []byte { return forward.AppendReplies(b, []store.Reply{reply}) })
	}
	if len(f.Body) == 0 {
		return answer(store.Int(int64(n.position())))
	}
	go func() { // confirmedHere waits for answers of the followers
		reply := store.Err(store.Error("ERR " + ErrNoLeader.Error()))
		if index, ok := n.confirmedHere(); ok {
			reply = store.Int(int64(index))
		}
		_ = answer(reply) // if the link is lost, the asking node sees it
	}()
	return nil
}
