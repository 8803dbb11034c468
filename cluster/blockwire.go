package cluster

import (
	"bufio"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/call"
	"github.com/lockstep-io/lockstep/cluster/internal/forward"
	"github.com/lockstep-io/lockstep/cluster/internal/frame"
	"github.com/lockstep-io/lockstep/store"
)

// How the leader serves the frames of claims and of blocking commands.

// peerConn is the connection of a peer that forwards requests to this node.
type peerConn struct {
	n    *Node
	id   string
	conn net.Conn
	out  *forward.Outbox
	// older means that the peer runs version 0.1.0.
	older bool
	said  forward.Identity

	// Only the goroutine that runs the method read uses these two fields.
	origin   uint64 // boot number of the peer, from its claim
	stranger bool   // this node has logged that it refuses the peer's claims (mayClaim)

	heard   atomic.Uint64 // number of frames received
	claimed atomic.Bool   // the peer has sent a claim over this connection, and was not refused
	sentAll atomic.Uint64 // Raft term in which the peer has last sent all blocking commands that waited at an earlier leader

	dismissed atomic.Bool // the peer is no member any more
	cutOff    cutOffCalls

	mu             sync.Mutex
	ended          bool
	blockedClients map[uint64]*blockedClient // the blocking commands that came over this connection, by the number of the call
	watch          *time.Timer               // runs checkAlive; nil: nothing to watch
	last           uint64                    // the value of heard when checkAlive last ran
}

// read serves frames until the connection ends.
func (p *peerConn) read(r *bufio.Reader) {
	defer p.end()
	p.n.mu.Lock()
	if p.n.callers == nil {
		p.n.callers = map[*peerConn]struct{}{}
	}
	p.n.callers[p] = struct{}{}
	p.n.mu.Unlock()
	defer func() {
		p.n.mu.Lock()
		delete(p.n.callers, p)
		p.n.mu.Unlock()
	}()
	for {
		f, err := frame.Read(r)
		if err != nil {
			return
		}
		p.heard.Add(1)
		if err := p.n.serveFrame(f, p); err != nil {
			p.n.cfg.Logger.Error("peer connection closed", "peer", p.id, "error", err)
			return
		}
	}
}

// end cancels the blocking commands that came over the connection, because the connection has ended: this node could not send
// the peer their replies.
func (p *peerConn) end() {
	p.mu.Lock()
	p.ended = true
	blockedClients := p.blockedClients
	p.blockedClients = nil
	if p.watch != nil {
		p.watch.Stop()
	}
	p.mu.Unlock()
	for _, w := range blockedClients {
		w.cancel(quitNow)
	}
}

func (p *peerConn) checkAlive() {
	p.mu.Lock()
	defer p.mu.Unlock()
	heard := p.heard.Load()
	switch {
	case p.ended || len(p.blockedClients) == 0:
		p.watch = nil
	case heard == p.last && p.n.routes.get().seq != nil:
		p.n.cfg.Logger.Warn("a peer with blocked clients is silent", "peer", p.id)
		p.conn.Close()
	default:
		p.last = heard
		p.watch.Reset(aliveTimeout)
	}
}

// waits tells the peer that this node does not answer a call soon: a blocking command has found nothing, and has a place in the queue, or
// a script runs for long.
func (p *peerConn) waits(call, place uint64) {
	// If the link is gone, the peer finds out by itself.
	_ = p.out.Send(forward.Waits, call, func(b []byte) []byte {
		if place == 0 {
			return b
		}
		return binary.AppendUvarint(b, place)
	})
}

// serveBlock decodes a blocking command, and queues it for evaluation or refuses it.
func (p *peerConn) serveBlock(number uint64, body []byte) error {
	if len(body) < 24 {
		return frame.ErrMalformed
	}
	calls, rest, err := call.ReadFirst(body[24:], p.n.cfg.Table)
	if err != nil {
		return err
	}
	waited, err := forward.ReadWaited(rest)
	if err != nil {
		return err
	}
	if len(calls) != 1 {
		return frame.ErrMalformed
	}
	if name, any := calls[0].UnknownName(); any {
		p.answer(number)(&request{replies: []store.Reply{refuseUnknown(&calls[0], name)}})
		return nil
	}
	if !calls[0].Cmd.Is(store.Blocking) {
		return frame.ErrMalformed
	}
	w := &blockedClient{origin: binary.BigEndian.Uint64(body), id: binary.BigEndian.Uint64(body[8:]), token: binary.BigEndian.Uint64(body[16:])}
	w.keys = indexOf(&calls[0])
	w.waited, w.since = waited, p.n.cfg.Time.Monotonic()-waited.Age
	w.joined, w.dequeue = func() { p.waits(number, w.order.place) }, p.n.dequeue
	finish := p.answer(number)
	w.req = &request{calls: calls, blockedClient: w, kind: call.KindOf(calls), finish: func(r *request) {
		p.mu.Lock()
		delete(p.blockedClients, number)
		p.mu.Unlock()
		p.n.guests.left(w)
		finish(r)
	}}
	refused, at := p.n.guests.arrive(w)
	if !at {
		p.answer(number)(&request{replies: []store.Reply{store.Err(ErrBlockedMemory)}})
		return nil
	}
	p.mu.Lock()
	if p.blockedClients == nil {
		p.blockedClients = map[uint64]*blockedClient{}
	}
	p.blockedClients[number] = w
	if p.watch == nil {
		p.last = p.heard.Load()
		p.watch = time.AfterFunc(aliveTimeout, p.checkAlive)
	}
	p.mu.Unlock()
	for _, other := range refused {
		other.cancel(quitRefused)
	}
	if w.state.Load() != blockedCancelled {
		p.n.serveRequest(w.req)
		return nil
	}
	// Another peer's command may have taken its room before it was in the map. Then nobody else takes it out.
	p.mu.Lock()
	delete(p.blockedClients, number)
	p.mu.Unlock()
	return nil
}

// serveCancel cancels an unanswered blocking command. For any other call it notes that the client was cut off.
func (p *peerConn) serveCancel(call uint64, body []byte) error {
	if len(body) != 1 {
		return frame.ErrMalformed
	}
	p.mu.Lock()
	w := p.blockedClients[call]
	p.mu.Unlock()
	if w != nil {
		w.cancel(min(int32(body[0]), quitNow))
	} else {
		p.cutOff.note(call)
	}
	return nil
}

// serveClaim makes this connection the only one for the peer's writes and blocking commands. The answer has a log position and
// the connection's token.
func (p *peerConn) serveClaim(call uint64, body []byte) error {
	if len(body) != 16 {
		return frame.ErrMalformed
	}
	c := &claim{origin: binary.BigEndian.Uint64(body), token: binary.BigEndian.Uint64(body[8:])}
	p.origin = c.origin
	if c.token == 0 {
		if err := p.mayClaim(); err != nil {
			return p.refuseClaim(call, err)
		}
	}
	p.claimed.Store(true)
	p.n.serveRequest(p.n.claimRequest(c, func(position uint64, err error) {
		// If the link is gone, the peer finds out by itself.
		_ = p.out.Send(forward.Result, call, func(b []byte) []byte {
			why, refused := errors.AsType[store.Error](err)
			switch {
			case refused && !p.older: // version 0.1.0 knows no refusal of a claim
				return forward.AppendReplies(b, []store.Reply{store.Err(why)})
			case err != nil:
				return append(b, forward.NotExecuted)
			}
			return forward.AppendReplies(b, []store.Reply{store.Int(int64(position)), store.Int(int64(c.token))})
		})
	}))
	return nil
}

func (p *peerConn) refuseClaim(call uint64, why error) error {
	if !p.stranger {
		p.n.cfg.Logger.Warn("a node that is no member of this cluster is not served", "id", p.id, "remote", p.conn.RemoteAddr().String(), "error", why)
	}
	p.stranger = true
	return p.out.Send(forward.Result, call, func(b []byte) []byte { return append(b, forward.NotExecuted) })
}
