package cluster

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/lockstep-io/lockstep/cluster/brake"
	"github.com/lockstep-io/lockstep/cluster/internal/call"
	"github.com/lockstep-io/lockstep/cluster/internal/fair"
	"github.com/lockstep-io/lockstep/cluster/internal/forward"
	"github.com/lockstep-io/lockstep/cluster/internal/frame"
	"github.com/lockstep-io/lockstep/cluster/internal/peerport"
	"github.com/lockstep-io/lockstep/cluster/internal/peers"
	"github.com/lockstep-io/lockstep/cluster/internal/raftnode"
	"github.com/lockstep-io/lockstep/store"
	"github.com/lockstep-io/lockstep/store/codec"
)

// serveForward serves the connection of a peer that forwards requests to this node.
func (n *Node) serveForward(conn net.Conn) {
	defer conn.Close()
	select {
	case <-n.opened:
	case <-n.ctx.Done():
		return
	}
	r := bufio.NewReaderSize(conn, 1<<16)
	peer, err := n.cfg.speaks.Read(r)
	said, malformed := peer.Identity()
	if err = cmp.Or(err, malformed); err != nil {
		why := peerport.BadHandshake
		version, other := errors.AsType[forward.VersionError](err)
		if other {
			why = peerport.NewerPeer
			if version.Older() {
				why = peerport.OlderPeer
			}
		}
		n.cfg.peers.Strangers.Note(why, conn.RemoteAddr().String(), err)
		if other {
			// The peer learns the reason from this handshake. An error means that the peer has gone.
			_, _ = conn.Write(n.handshakeAs(forward.Identity{}).Append(nil))
		}
		return
	}
	if _, err := conn.Write(n.handshakeFor(peer.ID, said).Append(nil)); err != nil {
		return
	}
	peerport.HandshakeDone(conn)
	n.served.Add(1)
	defer n.served.Add(-1)
	out := forward.NewOutbox(conn)
	go out.Run()
	defer out.Close()
	p := &peerConn{n: n, id: peer.ID, conn: conn, out: out, older: peer.Speaks.Minor < forward.MinorLeases, said: said}
	p.read(r)
}

func (n *Node) serveFrame(f frame.Frame, p *peerConn) error {
	out := p.out
	if p.dismissed.Load() && (f.Kind == forward.Submit || f.Kind == forward.Block || f.Kind == forward.Claim) {
		return out.Send(forward.Result, f.ID, func(b []byte) []byte { return append(b, forward.NotExecuted) })
	}
	switch f.Kind {
	case forward.Submit:
		return n.serveSubmit(f, p)
	case forward.Block:
		return p.serveBlock(f.ID, f.Body)
	case forward.Cancel:
		return p.serveCancel(f.ID, f.Body)
	case forward.Claim:
		return p.serveClaim(f.ID, f.Body)
	case forward.Alive:
		if len(f.Body) == 1 {
			p.sentAll.Store(n.term())
		}
	case forward.Kill:
		return n.serveKill(f, p)
	case forward.Transfer:
		r := codec.Reader{B: f.Body}
		id := string(r.Bytes())
		if r.Bad {
			return frame.ErrMalformed
		}
		go func() {
			reply := store.OK
			err := error(ErrNoLeader)
			if n.leads() {
				err = n.transferHere(id)
			}
			if err != nil {
				reply = store.Err(store.Error("ERR " + err.Error()))
			}
			// If the link is lost, the asking node sees it.
			_ = out.Send(forward.Result, f.ID, func(b []byte) []byte {
				return forward.AppendReplies(b, []store.Reply{reply})
			})
		}()
	case forward.Admin:
		return n.serveAdmin(f, p)
	case forward.Position:
		return n.servePosition(f, out)
	case forward.Clients:
		return n.serveClients(f, out)
	default:
		return frame.ErrMalformed
	}
	return nil
}

// serveSubmit queues a forwarded request. No goroutine waits for it: the goroutine that completes the request
// puts the result into the outbox.
func (n *Node) serveSubmit(f frame.Frame, p *peerConn) error {
	from, token, calls, err := forward.ReadSubmit(f.Body, n.cfg.Table)
	if err != nil {
		return err
	}
	from.Origin = p.origin
	r := &request{calls: calls, from: from, token: token, whole: p.older, peer: p, number: f.ID}
	r.replies, r.finish = make([]store.Reply, 0, len(r.calls)), p.answer(f.ID)
	r.runs = func() { p.waits(f.ID, 0) }
	if !call.Exceeds(calls, HeavyBytes) { // a larger request is heavy work: the node that sent it has delayed it (fair.Gate.Pass)
		n.gate.Light()
	}
	n.serveRequest(r)
	return nil
}

// answer returns the function that sends the result of a request to the peer.
func (p *peerConn) answer(id uint64) func(*request) {
	return func(r *request) {
		p.cutOff.forget(id)
		if r.err == nil && !r.wrote && r.blockedClient == nil && r.extent > fair.SmallReply && !p.hasRoom(r.extent) && !call.RunsFunction(r.calls) {
			// The request wrote nothing, so the peer can send it again. A function is not run twice: it may have changed a variable of its
			// library.
			r.err = forward.ErrReplyLater
			if p.older {
				r.err = errNotExecuted // version 0.1.0 does not know forward.ErrReplyLater
			}
		}
		if r.err == nil && r.extent > fair.SmallReply && !p.out.Takes(r.extent) {
			r.leaveOut() // otherwise the outbox would end the link, for all clients of the peer
		}
		if p.out.Send(forward.Result, id, r.appendResult) == forward.ErrTooLong {
			r.leaveOut()
			// If the link is lost, the peer counts the outcome of the request as unknown.
			_ = p.out.Send(forward.Result, id, r.appendResult)
		}
		if r.err == nil && r.blockedClient == nil { // after an error, a batch may still use r; a wait queue may still use a blocked client
			r.calls, r.replies = nil, nil // free the memory: the queue still refers to the request for a while
		}
	}
}

// leaveOut puts errors in the place of the large replies to a request, because there is no way to send such replies.
func (r *request) leaveOut() {
	why := ErrReplyLeftOut
	if !r.wrote && r.blockedClient == nil {
		why = store.ErrReplyTooBig(frame.MaxLength)
	}
	r.replies = slices.Clone(r.replies)
	for i := range r.replies {
		if fair.Extent(r.replies[i:i+1]) > fair.SmallReply {
			r.replies[i] = store.Err(why)
		}
	}
	r.extent = fair.Extent(r.replies)
}

// appendResult encodes the result of a request for the peer that has sent it.
func (r *request) appendResult(b []byte) []byte {
	switch r.err {
	case nil:
		if r.extent > fair.SmallReply {
			b = slices.Grow(b, store.EncodedSize(r.replies)+fair.SmallReply) // append would use several times as much memory
		}
		b = forward.AppendReplies(b, r.replies)
		if r.cost > 0 {
			b = binary.AppendUvarint(append(b, forward.SaysHeavy), uint64(r.cost))
			b = append(b, r.leases...)
		}
		return b
	case errNotExecuted:
		return append(b, forward.NotExecuted)
	case forward.ErrCancelled:
		return append(b, forward.Cancelled)
	case forward.ErrStale:
		return append(b, forward.Stale)
	case forward.ErrReplyLater:
		return append(b, forward.ReplyLater)
	default:
		return append(b, forward.Unknown)
	}
}

// hasRoom reports whether this node may write large replies to the peer now: the peer has read most of its
// output, and memory is not scarce.
func (p *peerConn) hasRoom(extent int) bool {
	return p.out.Size() <= forward.MaxPeerOutput && !brake.Scarce(extent)
}

// serveRequest queues a peer's request if this node leads. Otherwise it completes the request with errNotExecuted.
func (n *Node) serveRequest(r *request) {
	if seq := n.routes.get().seq; seq != nil {
		seq.submit(r)
		return
	}
	r.complete(errNotExecuted)
}

// ask sends a control frame to a peer and waits for its reply.
func (n *Node) ask(ctx context.Context, l *forward.Link, kind byte, body []byte) (store.Reply, error) {
	type result struct {
		body []byte
		err  error
	}
	results := make(chan result, 1)
	giveUp := l.Call(kind, func(b []byte) []byte { return append(b, body...) },
		func(body []byte, err error) { results <- result{body, err} })
	select {
	case <-ctx.Done():
		giveUp()
		return store.Reply{}, ctx.Err()
	case r := <-results:
		if r.err != nil {
			return store.Reply{}, r.err
		}
		replies, err := forward.ReadResult(r.body, nil)
		if err != nil {
			return store.Reply{}, err
		}
		if len(replies) != 1 {
			return store.Reply{}, frame.ErrMalformed
		}
		return replies[0], nil
	}
}

func transferBody(id string) []byte {
	return append(binary.AppendUvarint(nil, uint64(len(id))), id...)
}

// dismiss makes the leader execute nothing more for peers that are not among members. Their connections last a little longer, for the
// answers.
func (n *Node) dismiss(members []raftnode.Member) {
	if len(members) == 0 {
		return
	}
	n.mu.Lock()
	var gone []*peerConn
	for p := range n.callers {
		if p.claimed.Load() && !slices.ContainsFunc(members, func(m raftnode.Member) bool { return m.ID == p.id }) {
			gone = append(gone, p)
		}
	}
	n.mu.Unlock()
	for _, p := range gone {
		if !p.dismissed.Swap(true) {
			time.AfterFunc(peers.Period, func() { p.conn.Close() })
		}
	}
}
