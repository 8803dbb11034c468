package cluster

import (
	"bufio"
	"context"
	"errors"
	"net"
	"time"

	"lockstep/cluster/internal/forward"
	"lockstep/cluster/internal/frame"
	"lockstep/cluster/internal/peerport"
	"lockstep/cluster/internal/peers"
	"lockstep/cluster/internal/raftnode"
	"lockstep/store"
)

const (
	redialPause = 20 * time.Millisecond
	// strangePause is the pause before the next attempt to reach a leader whose version this node cannot forward to
	// (forward.ErrVersion). It is longer than redialPause, because only an upgrade helps.
	strangePause = time.Second
)

// A follower sends its clients' commands to the leader over one link, many at a time, on the port that Raft uses. When the
// leader changes, the follower keeps the link to the deposed leader for a while (retire). As long as there is no other leader
// to ask, the deposed one may still say what became of the follower's requests.

// follow keeps a link to the leader until ctx ends.
func (n *Node) follow(ctx context.Context, leader raftnode.Leadership) {
	warned := false
	linked := false // there was a link to this leader, and suspect has not been called since
	for ctx.Err() == nil {
		l, r, err := n.connect(leader.ID, leader.Addr)
		if err != nil {
			if linked && peers.Refused(err) {
				linked = false
				n.suspect(leader)
			}
			n.cfg.Logger.Debug("no link to the leader", "leader", leader.ID, "error", err)
			pause := redialPause
			if errors.Is(err, forward.ErrVersion) {
				if pause = strangePause; !warned {
					n.cfg.Logger.Warn("commands cannot be carried to the leader", "leader", leader.ID, "error", err)
				}
				warned = true
			}
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
			continue
		}
		linked = true
		n.peers.LearnClient(l.Peer.ID, l.Peer.Client)
		ended := n.use(ctx, l, r)
		select {
		case <-ended:
			n.routes.drop(nil, l)
		case <-ctx.Done():
			n.retire(l, ended)
			return
		}
	}
}

// suspect is called when the leader's process seems to be gone. If the leader stays silent, this node then stands for election.
// suspect itself returns at once.
func (n *Node) suspect(leader raftnode.Leadership) {
	if n.cons.Fixed() {
		return
	}
	s := peers.Suspicion{ID: n.cfg.ID, Heartbeat: n.cfg.HeartbeatTimeout, Election: n.cfg.ElectionTimeout,
		Clock: n.cfg.Time, Logger: n.cfg.Logger, Raft: n.cons, Leader: n.leading}
	n.work.Go(func() { s.Stand(n.ctx, leader) })
}

// use claims a link, and makes it the route to the leader when the leader has
// accepted the claim. It starts the reader of the link. ended is closed when the
// link has ended.
func (n *Node) use(ctx context.Context, l *forward.Link, r *bufio.Reader) (ended <-chan struct{}) {
	over := make(chan struct{})
	go func() {
		l.Room = func() { n.gate.InHand.AwaitRoom(ctx) }
		l.Read(r)
		close(over)
	}()
	if n.claim(ctx, l, over) {
		n.routes.set(ctx, nil, l)
	}
	return over
}

// claim makes a link the only one over which the leader accepts this node's
// writes and blocking commands. It returns true when the leader has accepted the
// claim, false if ctx or the link has ended.
func (n *Node) claim(ctx context.Context, l *forward.Link, ended <-chan struct{}) bool {
	answers := make(chan error, 1)
	var busy *busyLink
	defer func() { n.busyLink.CompareAndSwap(busy, nil) }()
	for {
		n.sendClaim(l, 0, func(_, token uint64, err error) {
			if err == nil {
				l.Token = token
			}
			answers <- err
		})
		select {
		case err := <-answers:
			if err == nil {
				return true
			}
			busy = n.noteBusy(l, busy, err)
		case <-ctx.Done():
			return false
		}
		// The peer does not lead yet, or is busy with a script.
		select {
		case <-ended:
			return false
		case <-ctx.Done():
			return false
		case <-time.After(retryPause):
		}
	}
}

// sendClaim sends a claim. token is the token of the link, 0 if the link has none yet. When the peer has answered, sendClaim calls
// the function done with the position that the log has reached and the token of the link, or with an error.
func (n *Node) sendClaim(l *forward.Link, token uint64, done func(position, token uint64, err error)) {
	l.Start(forward.Claim,
		func(buf []byte) []byte { return forward.AppendClaim(buf, n.boot, token) },
		&forward.Forwarded{Done: func(body []byte, err error) {
			var replies []store.Reply
			if err == nil {
				replies, err = forward.ReadResult(body, nil)
			}
			switch {
			case err != nil:
			case len(replies) == 1 && replies[0].IsError():
				err = store.Error(replies[0].Str) // BUSY
			case len(replies) != 2:
				err = frame.ErrMalformed
			}
			if err != nil {
				done(0, 0, err)
				return
			}
			done(uint64(replies[0].Int), uint64(replies[1].Int), nil)
		}})
}

// retire takes a link out of use when its peer no longer leads. It closes the link only after a while: until then
// the peer can still answer the requests that it has.
func (n *Node) retire(l *forward.Link, ended <-chan struct{}) {
	n.routes.drop(nil, l)
	l.Retire()
	n.work.Add(1)
	go func() {
		defer n.work.Done()
		select {
		case <-ended:
		case <-n.ctx.Done():
		case <-time.After(2 * n.cfg.FailoverWait):
		}
		l.Fail()
		<-ended
	}()
}

// connect opens a forwarding connection to the member id at an address, and exchanges handshakes. It fails if another node answers
// there (reaches).
func (n *Node) connect(id, addr string) (*forward.Link, *bufio.Reader, error) {
	conn, err := n.cfg.peers.Dial(addr, peerport.ProtoForward, peerport.DialTimeout)
	if err != nil {
		return nil, nil, err
	}
	l, r, err := n.connectOver(conn)
	if err != nil {
		return nil, nil, err
	}
	if err := n.reaches(id, l.Peer); err != nil {
		l.Fail()
		return nil, nil, err
	}
	return l, r, nil
}

// connectOver exchanges handshakes on a new connection. It returns a link over that connection, and a reader of the connection.
func (n *Node) connectOver(conn net.Conn) (*forward.Link, *bufio.Reader, error) {
	timer := time.AfterFunc(peerport.DialTimeout, func() { conn.Close() })
	defer timer.Stop()
	if _, err := conn.Write(n.handshake().Append(nil)); err != nil {
		conn.Close()
		return nil, nil, err
	}
	r := bufio.NewReaderSize(conn, 1<<16)
	peer, err := n.cfg.speaks.Read(r)
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	l := forward.NewLink(conn, peer)
	go l.Out.Run()
	return l, r, nil
}
