package raftnode

import (
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/lockstep-io/lockstep/cluster/internal/clustertest"
	"github.com/lockstep-io/lockstep/cluster/internal/peerport"
)

// peer is a transport with an address. It accepts every request, unless the field answer has another answer.
type peer struct {
	*transport
	port *peerport.Port
	stop chan struct{}

	answer atomic.Pointer[raft.AppendEntriesResponse] // nil: the peer accepts the request
}

func newPeer(t *testing.T, addr string, change ...func(*Config)) *peer {
	t.Helper()
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{ID: "n1", Addr: ln.Addr().String(), HeartbeatTimeout: 500 * time.Millisecond, ElectionTimeout: 500 * time.Millisecond,
		Time: clustertest.NewClock(), Logger: slog.New(slog.DiscardHandler)}
	if cfg.Dialer, err = peerport.NewDialer(peerport.TLS{}, time.Now, cfg.Logger); err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(&cfg)
	}
	p := &peer{stop: make(chan struct{})}
	port := peerport.New(ln, cfg.Addr, cfg.Dialer, nil)
	p.port = port
	p.transport = newTransport(port, &cfg, hclog.NewNullLogger(), p.stop, "", func() string { return "" }, func(_, _, _ []byte) error { return nil })
	go p.relay()
	go p.answerAppends(port)
	yes := func(rpc raft.RPC) {
		if a := p.answer.Load(); a != nil {
			rpc.Respond(a, nil)
			return
		}
		rpc.Respond(&raft.AppendEntriesResponse{RPCHeader: raft.RPCHeader{ID: []byte("b"), Addr: []byte("b\x00D")}, Success: true}, nil)
	}
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
	ofA        = raft.RPCHeader{ID: []byte("a"), Addr: []byte("a:1\x00D\x00cluster=C")}
	aHeartbeat = raft.AppendEntriesRequest{RPCHeader: ofA, Term: 1}
	anEntry    = raft.AppendEntriesRequest{RPCHeader: ofA, Term: 1, PrevLogEntry: 7, PrevLogTerm: 1}
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
	case <-time.After(100 * time.Millisecond):
	}
	newPeer(t, addr)
	if err := a.send(addr, aHeartbeat); err != nil {
		t.Fatal(err)
	}
	if err := <-sent; err != nil {
		t.Error("the peer is back:", err)
	}
}

// cutOff is a connection. Once it is cut, what is written to it is lost, and the writer gets no error.
type cutOff struct {
	net.Conn
	cut *atomic.Bool
}

func (c cutOff) Write(b []byte) (int, error) {
	if c.cut.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// After a network cut the node soon finds its peer again, although the kept connections are dead and entries wait on one.
func TestHeartbeatsAfterTheNetworkWasCut(t *testing.T) {
	cut := new(atomic.Bool) // cuts the connections that are made from now on
	a := newPeer(t, "127.0.0.1:0", func(cfg *Config) {
		cfg.HeartbeatTimeout = 50 * time.Millisecond
		cfg.Dialer.Network = func(addr string, proto byte, timeout time.Duration) (net.Conn, error) {
			if timeout > peerport.DialTimeout {
				t.Errorf("an attempt may take %v", timeout)
			}
			conn, err := peerport.DialTCP(addr, proto, timeout)
			return cutOff{conn, cut}, err
		}
	})
	b := newPeer(t, "127.0.0.1:0")
	addr := b.address()
	for _, req := range []raft.AppendEntriesRequest{aHeartbeat, anEntry} {
		if err := a.send(addr, req); err != nil {
			t.Fatal(err)
		}
	}
	cut.Store(true)
	cut = new(atomic.Bool)
	entries := make(chan error, 1)
	go func() { entries <- a.send(addr, anEntry) }()
	start := time.Now()
	if err := a.send(addr, aHeartbeat); err == nil {
		t.Error("a heartbeat went over a connection that is cut")
	}
	if err := a.send(addr, aHeartbeat); err != nil {
		t.Error("the network is mended:", err)
	}
	if took := time.Since(start); took > transportTimeout/2 {
		t.Errorf("the peer was found after %v", took)
	}
	close(a.stop)
	a.Close()
	b.Close()
}

// A node that stops does not wait for a peer that is away.
func TestEntriesForNobody(t *testing.T) {
	a, b := newPeer(t, "127.0.0.1:0"), newPeer(t, "127.0.0.1:0")
	addr := b.address()
	b.Close()
	sent := make(chan error, 1)
	go func() { sent <- a.send(addr, anEntry) }()
	time.Sleep(20 * time.Millisecond)
	close(a.stop)
	var op *net.OpError
	if err := <-sent; !errors.As(err, &op) {
		t.Error("the peer is away:", err)
	}
}

// address is where the peer listens.
func (p *peer) address() string { return string(p.LocalAddr()) }
