package cluster

import (
	"context"
	"sync"
	"time"

	"lockstep/cluster/internal/forward"
	"lockstep/cluster/internal/raftnode"
	"lockstep/store"
)

// The reply to WAIT. An acknowledged write is in the logs of a majority, but Raft does not tell which members
// these are. If a majority is not enough, this node asks the members for their commit indexes. A member has all
// entries up to its commit index on disk, because it cannot know of a commit beyond its own log.
//
// However many clients wait, the node asks each member on one connection, one question at a time: a connection is a
// handshake for the member, which has few of them a second.

const (
	// positionPause is the pause between two questions to a member that is behind …
	positionPause = 10 * time.Millisecond
	// … positionMost bounds the pause after which a client that waits looks again by itself …
	positionMost = time.Second
	// … and positionRedial is the one before a member is called again that could not be reached.
	positionRedial = 50 * time.Millisecond
	// positionTimeout is how long a member may take to answer before it is called anew.
	positionTimeout = 2 * time.Second
	// positionIdle is how long a connection stays open when no client waits.
	positionIdle = 5 * time.Second
)

// positions is how far the log of each member has come, as far as members have told.
type positions struct {
	mu      sync.Mutex
	known   map[string]uint64        // by id
	asked   map[string]chan struct{} // members that are being asked, by id and address; the channels wake those who ask
	waiting int                      // clients that wait …
	want    uint64                   // … and the highest index that one of them has waited for
	changed chan struct{}            // closed when known changes; nil: nobody waits for that
}

// heard notes a position.
func (p *positions) heard(id string, index uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil {
		p.known = map[string]uint64{}
	}
	old := p.known[id]
	if index <= old {
		return
	}
	p.known[id] = index
	if p.changed != nil && old < p.want { // or nobody waits for it
		close(p.changed)
		p.changed = nil
	}
}

// reached counts the members, but for one, that have come so far. changed is closed when there may be more.
func (p *positions) reached(target uint64, members []raftnode.Member, self string) (n int, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range members {
		if m.ID != self && p.known[m.ID] >= target {
			n++
		}
	}
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return n, p.changed
}

// ask has members asked until they have come so far.
func (p *positions) ask(n *Node, target uint64, members []raftnode.Member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.want = max(p.want, target)
	if p.asked == nil {
		p.asked = map[string]chan struct{}{}
	}
	for _, m := range members {
		if m.ID == n.cfg.ID || p.known[m.ID] >= target {
			continue
		}
		key := m.ID + " " + m.PeerAddr
		wake, is := p.asked[key]
		if !is {
			wake = make(chan struct{}, 1)
			p.asked[key] = wake
			go func() {
				n.askPosition(m, wake)
				p.mu.Lock()
				delete(p.asked, key)
				p.mu.Unlock()
			}()
		}
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

// begin notes that a client waits, and end that it does not any more.
func (p *positions) begin() (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.waiting--
	}
}

// wants reports whether a member has not told yet that it has come as far as a client waits for.
func (p *positions) wants(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waiting > 0 && p.known[id] < p.want
}

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
	defer n.positions.begin()()
	tick := time.NewTimer(positionPause)
	defer tick.Stop()
	target, ok := n.acknowledged(ctx)
	for !ok { // there is no leader at present
		select {
		case <-ctx.Done():
			return known, false
		case <-tick.C:
			tick.Reset(positionPause)
		}
		target, ok = n.acknowledged(ctx)
	}
	for pause := positionPause; ; {
		count, changed := n.positions.reached(target, members, n.cfg.ID)
		count = max(count, known)
		self := n.position() >= target
		if count >= others && (self || !here) {
			return count, self
		}
		if count < others {
			n.positions.ask(n, target, members)
		}
		select {
		case <-ctx.Done():
			return count, self
		case <-changed:
		case <-tick.C: // this node may have come so far
			pause = min(2*pause, positionMost) // thousands may wait for a member that is down
			tick.Reset(pause)
		}
	}
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

// askPosition asks a member for its position whenever a client waits for it, until none has for positionIdle.
func (n *Node) askPosition(m raftnode.Member, wake <-chan struct{}) {
	for n.askPositionOn(m, wake) {
		select {
		case <-n.ctx.Done():
			return
		case <-time.After(positionRedial):
		}
	}
}

// askPositionOn is askPosition on one connection. It returns true if the connection could not be made, or has failed, while
// a client waits.
func (n *Node) askPositionOn(m raftnode.Member, wake <-chan struct{}) (again bool) {
	l, r, err := n.connect(m.PeerAddr)
	if err != nil {
		return n.positions.wants(m.ID)
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
			return n.positions.wants(m.ID)
		}
		n.positions.heard(m.ID, uint64(reply.Int))
		pause := positionIdle
		if n.positions.wants(m.ID) {
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

// servePosition answers a peer that asks for the commit index of this node.
func (n *Node) servePosition(id uint64, out *forward.Outbox) error {
	return out.Send(forward.Result, id, func(b []byte) []byte {
		return forward.AppendReplies(b, []store.Reply{store.Int(int64(n.position()))})
	})
}
