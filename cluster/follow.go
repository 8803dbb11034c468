package cluster

import (
	"bufio"
	"context"
	"errors"
	"net"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/forward"
	"github.com/lockstep-io/lockstep/cluster/internal/frame"
	"github.com/lockstep-io/lockstep/cluster/internal/peerport"
	"github.com/lockstep-io/lockstep/cluster/internal/peers"
	"github.com/lockstep-io/lockstep/cluster/internal/raftnode"
	"github.com/lockstep-io/lockstep/store"
)

const (
	redialPause = 20 * time.Millisecond
	// strangePause is longer than redialPause: only an upgrade helps against forward.ErrVersion.
	strangePause = time.Second
)

// A follower sends its clients' commands to the leader over one link, on Raft's port. A deposed leader's link is kept for a while
// (retire).

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

// suspect has this node stand for election, if the leader, whose process seems to be gone, stays silent. It returns at once.
func (n *Node) suspect(leader raftnode.Leadership) {
	if n.cons.Fixed() {
		return
	}
	s := peers.Suspicion{ID: n.cfg.ID, Heartbeat: n.cfg.HeartbeatTimeout, Election: n.cfg.ElectionTimeout,
		Clock: n.cfg.Time, Logger: n.cfg.Logger, Raft: n.cons, Leader: n.leading, ByWish: n.peers.ByWish}
	n.work.Go(func() { s.Stand(n.ctx, leader) })
}

// use claims a link, and makes it the route to the leader if the claim is accepted. ended is closed when the link has ended.
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

// claim returns true when the leader takes this node's writes and blocking commands only over this link, false if ctx or the link
// has ended.
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

// sendClaim sends a claim with the link's token, 0 if it has none yet. done gets the log's position and the token, or an error.
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

// retire takes a link out of use, and closes it after a while: until then, its peer can answer the requests that it has.
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
