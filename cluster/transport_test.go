package cluster

import (
	"errors"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// peer is a transport that says yes to everything, at an address.
type peer struct {
	*transport
	stop chan struct{}
}

func newPeer(t *testing.T, addr string) *peer {
	t.Helper()
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Default()
	cfg.PeerListen, cfg.Logger = ln.Addr().String(), slog.New(slog.DiscardHandler)
	p := &peer{stop: make(chan struct{})}
	port := newPeerPort(ln, &cfg, raftHooks{})
	p.transport = newTransport(port, &cfg, hclog.NewNullLogger(), p.stop)
	yes := func(rpc raft.RPC) { rpc.Respond(&raft.AppendEntriesResponse{Success: true}, nil) }
	p.SetHeartbeatHandler(yes)
	go func() {
		for {
			select {
			case rpc := <-p.Consumer():
				yes(rpc)
			case <-p.closed:
				return
			}
		}
	}()
	t.Cleanup(func() {
		p.Close()
		port.Close()
	})
	return p
}

var (
	aHeartbeat = raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{Addr: []byte("a")}, Term: 1}
	anEntry    = raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{Addr: []byte("a")}, Term: 1, PrevLogEntry: 7, PrevLogTerm: 1}
)

func (p *peer) send(to string, req raft.AppendEntriesRequest) error {
	return p.AppendEntries("b", raft.ServerAddress(to), &req, &raft.AppendEntriesResponse{})
}

// Entries for a peer that is away arrive when it answers a heartbeat, however
// long it was away.
func TestEntriesWaitForThePeer(t *testing.T) {
	a, b := newPeer(t, "127.0.0.1:0"), newPeer(t, "127.0.0.1:0")
	addr := b.address()
	b.Close()
	sent := make(chan error, 1)
	go func() { sent <- a.send(addr, anEntry) }()
	if err := a.send(addr, aHeartbeat); err == nil {
		t.Fatal("a heartbeat arrived nowhere")
	}
	select {
	case err := <-sent:
		t.Fatal("entries were not held back:", err)
	case <-time.After(100 * ms):
	}
	newPeer(t, addr)
	if err := a.send(addr, aHeartbeat); err != nil {
		t.Fatal(err)
	}
	if err := <-sent; err != nil {
		t.Error("the peer is back:", err)
	}
}

// Who stops waits for nobody.
func TestEntriesForNobody(t *testing.T) {
	a, b := newPeer(t, "127.0.0.1:0"), newPeer(t, "127.0.0.1:0")
	addr := b.address()
	b.Close()
	sent := make(chan error, 1)
	go func() { sent <- a.send(addr, anEntry) }()
	time.Sleep(20 * ms)
	close(a.stop)
	var op *net.OpError
	if err := <-sent; !errors.As(err, &op) {
		t.Error("the peer is away:", err)
	}
}

// address is where the peer listens.
func (p *peer) address() string { return string(p.LocalAddr()) }
