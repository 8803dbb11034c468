package cluster

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/forward"
	"github.com/lockstep-io/lockstep/cluster/internal/frame"
	"github.com/lockstep-io/lockstep/store"
	"github.com/lockstep-io/lockstep/store/codec"
)

// Questions to other nodes for their clients: LOCK.INFO and LOCK.LIST tell the addresses of those that hold locks.

// ClientName is what a node says of one of its clients.
type ClientName struct {
	Addr, Name string
	Gone       bool // it has closed its connection
}

// MostClients is how many clients one question may name.
const MostClients = 1000

// clientsTimeout is how long a node may take to answer.
const clientsTimeout = time.Second

// ClientsOf asks a node for clients with these ids, at most MostClients. ok is false if the node does not answer.
func (n *Node) ClientsOf(ctx context.Context, node string, ids []uint64) (names []ClientName, ok bool) {
	if n.cfg.Clients == nil || len(ids) > MostClients {
		return nil, false
	}
	if node == n.cfg.ID {
		return n.cfg.Clients(ids), true
	}
	members, err := n.cons.Members()
	if err != nil {
		return nil, false
	}
	for _, m := range members {
		if m.ID == node {
			return n.askClients(ctx, m.ID, m.PeerAddr, ids)
		}
	}
	return nil, false
}

func (n *Node) askClients(ctx context.Context, id, addr string, ids []uint64) (names []ClientName, ok bool) {
	l, r, err := n.connect(id, addr)
	if err != nil {
		return nil, false
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
	ctx, cancel := context.WithTimeout(ctx, clientsTimeout)
	defer cancel()
	body := binary.AppendUvarint(nil, uint64(len(ids)))
	for _, id := range ids {
		body = binary.AppendUvarint(body, id)
	}
	reply, err := n.ask(ctx, l, forward.Clients, body)
	if err != nil || len(reply.Elems) != len(ids) {
		return nil, false
	}
	for _, e := range reply.Elems {
		switch {
		case e.Kind == store.Null:
			names = append(names, ClientName{Gone: true})
		case len(e.Elems) == 2:
			names = append(names, ClientName{Addr: e.Elems[0].Str, Name: e.Elems[1].Str})
		default:
			return nil, false
		}
	}
	return names, true
}

// serveClients answers a peer's question for clients of this node.
func (n *Node) serveClients(f frame.Frame, out *forward.Outbox) error {
	r := codec.Reader{B: f.Body}
	ids := make([]uint64, 0, 16)
	for left := r.Count(1); left > 0 && !r.Bad; left-- {
		ids = append(ids, r.Uvarint())
	}
	if r.Bad || len(r.B) > 0 || len(ids) > MostClients {
		return frame.ErrMalformed
	}
	var elems []store.Reply
	if n.cfg.Clients != nil {
		for _, c := range n.cfg.Clients(ids) {
			if c.Gone {
				elems = append(elems, store.Nil)
			} else {
				elems = append(elems, store.List(store.Str(c.Addr), store.Str(c.Name)))
			}
		}
	}
	return out.Send(forward.Result, f.ID, func(b []byte) []byte { return forward.AppendReplies(b, []store.Reply{store.List(elems...)}) })
}
