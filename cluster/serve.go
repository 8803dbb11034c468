package cluster

import (
	"bufio"
	"context"
	"encoding/binary"
	"net"

	"lockstep/store"
)

// serveForward answers a peer that forwards to this node.
func (n *Node) serveForward(conn net.Conn) {
	defer conn.Close()
	select {
	case <-n.opened:
	case <-n.ctx.Done():
		return
	}
	r := bufio.NewReaderSize(conn, 1<<16)
	peer, err := readGreeting(r)
	if err != nil {
		n.cfg.Logger.Warn("peer connection refused", "remote", conn.RemoteAddr().String(), "error", err)
		return
	}
	if _, err := conn.Write(n.greeting().append(nil)); err != nil {
		return
	}
	n.learn(peer)
	n.served.Add(1)
	defer n.served.Add(-1)
	out := newOutbox(conn)
	go out.run()
	defer out.close()
	for {
		f, err := readFrame(r)
		if err != nil {
			return
		}
		if err := n.serveFrame(f, out); err != nil {
			n.cfg.Logger.Error("peer connection closed", "peer", peer.id, "error", err)
			return
		}
	}
}

func (n *Node) serveFrame(f frame, out *outbox) error {
	switch f.kind {
	case frameSubmit:
		calls, err := readCalls(f.body, n.cfg.Table)
		if err != nil {
			return err
		}
		n.serveSubmit(f.id, calls, out)
	case frameKill:
		reply := n.killHere()
		return out.send(frameResult, f.id, func(b []byte) []byte {
			return appendReplies(b, []store.Reply{reply})
		})
	case frameTransfer:
		r := fieldReader{b: f.body}
		id := string(r.bytes())
		if r.bad {
			return errFrame
		}
		go func() {
			reply := store.OK
			if err := n.cons.Transfer(id); err != nil {
				reply = store.Err(store.Error("ERR " + err.Error()))
			}
			// A lost link is the asking node's business.
			_ = out.send(frameResult, f.id, func(b []byte) []byte {
				return appendReplies(b, []store.Reply{reply})
			})
		}()
	case framePosition:
		return n.servePosition(f.id, out)
	default:
		return errFrame
	}
	return nil
}

// serveSubmit queues a forwarded request. No goroutine waits for it: whoever
// completes it puts the result into the outbox.
func (n *Node) serveSubmit(id uint64, calls []Call, out *outbox) {
	req := &request{calls: calls, replies: make([]store.Reply, 0, len(calls))}
	req.finish = func(r *request) {
		// If the link is gone, the peer has given the request up as unknown.
		_ = out.send(frameResult, id, func(b []byte) []byte {
			switch r.err {
			case nil:
				return appendReplies(b, r.replies)
			case errNotExecuted:
				return append(b, statusNotExecuted)
			default:
				return append(b, statusUnknown)
			}
		})
	}
	if seq := n.routes.get().seq; seq != nil {
		seq.submit(req)
		return
	}
	req.complete(errNotExecuted)
}

// ask sends a control frame to the leader and waits for its reply.
func (n *Node) ask(ctx context.Context, l *link, kind byte, body []byte) (store.Reply, error) {
	type result struct {
		body []byte
		err  error
	}
	results := make(chan result, 1)
	giveUp := l.call(kind, func(b []byte) []byte { return append(b, body...) },
		func(body []byte, err error) { results <- result{body, err} })
	select {
	case <-ctx.Done():
		giveUp()
		return store.Reply{}, ctx.Err()
	case r := <-results:
		if r.err != nil {
			return store.Reply{}, r.err
		}
		replies, err := readResult(r.body, nil)
		if err != nil || len(replies) != 1 {
			return store.Reply{}, errFrame
		}
		return replies[0], nil
	}
}

func transferBody(id string) []byte {
	return append(binary.AppendUvarint(nil, uint64(len(id))), id...)
}
