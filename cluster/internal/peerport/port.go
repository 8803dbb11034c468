// Package peerport is the port through which nodes reach each other: who may speak there, what a stranger can cost, and
// which protocol a connection is for.
package peerport

import (
	"io"
	"net"
	"sync"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/frame"
)

// The protocols of the peer port. The first byte of a connection chooses one.
const (
	ProtoRaft    = 'R' // hashicorp/raft's own transport
	ProtoAppend  = 'A' // entries and heartbeats: raftnode/append.go
	ProtoForward = 'F' // requests to the leader: cluster/internal/forward/wire.go
	ProtoFacts   = 'D' // the status that each node tells the others: cluster/internal/peers/status.go
	ProtoJoin    = 'J' // a node that wants to become a member: cluster/join.go
)

// Port is the one port through which nodes reach each other. It passes each connection to Raft or
// to the handler of its protocol.
type Port struct {
	ln      net.Listener
	self    string // address under which the other nodes know this one
	serve   map[byte]func(net.Conn)
	dialer  *Dialer
	raft    chan net.Conn
	appends chan net.Conn

	arrivals *arrivals

	mu     sync.Mutex
	conns  map[net.Conn]string // connections that this node opened, with the addresses that were dialed
	closed bool
	stop   chan struct{}
}

// DialTimeout bounds an attempt to connect to a peer.
const DialTimeout = 500 * time.Millisecond

// HandshakeTimeout is how long a new connection may take until the caller has sent what a peer sends first (handshakeDone).
const HandshakeTimeout = 5 * time.Second

// New serves the callers of ln. self is this node's address for others. serve has the handlers of all protocols except Raft's two.
func New(ln net.Listener, self string, d *Dialer, serve map[byte]func(net.Conn)) *Port {
	p := &Port{ln: ln, self: self, serve: serve, dialer: d, arrivals: newArrivals(d.Strangers, d.gate.addrs()),
		raft: make(chan net.Conn), appends: make(chan net.Conn), conns: map[net.Conn]string{}, stop: make(chan struct{})}
	limitQueue(ln, queueLength)
	go p.accept()
	if d.gate != nil {
		go d.gate.watch(p.stop)
	}
	return p
}

func (p *Port) accept() {
	for {
		conn, err := p.ln.Accept()
		if err != nil {
			select {
			case <-p.stop:
				return
			default:
			}
			p.dialer.Strangers.Note(notAccepted, p.ln.Addr().String(), err)
			// Wait until descriptors are free again.
			time.Sleep(100 * time.Millisecond)
			continue
		}
		if a := p.arrivals.admit(quiet(conn)); a != nil {
			go p.sort(a)
		}
		p.admitWaiting(takeWaiting)
	}
}

// sort reads the protocol byte and passes the connection to the handler of that protocol.
func (p *Port) sort(a *arrival) {
	proto, err := p.open(a)
	if err != nil {
		a.Close()
		return
	}
	switch serve := p.serve[proto]; {
	case proto == ProtoRaft:
		a.keep()
		p.hand(&raftArrival{arrival: a}, p.raft)
	case proto == ProtoAppend:
		p.hand(a, p.appends)
	case serve != nil:
		serve(a)
	default:
		p.dialer.Strangers.Note(noPeer, a.RemoteAddr().String(), nil)
		a.Close()
	}
}

// open reads which protocol a caller wants. With a gate, the caller must first prove that it is a peer, unless TLS is optional.
func (p *Port) open(a *arrival) (proto byte, err error) {
	var first [1]byte
	if _, err := io.ReadFull(a, first[:]); err != nil {
		return 0, err
	}
	remote, gate, strangers := a.RemoteAddr().String(), p.dialer.gate, p.dialer.Strangers
	switch {
	case gate == nil && first[0] == tlsHandshake:
		strangers.Note(noTLSHere, remote, nil)
		return 0, frame.ErrMalformed
	case gate != nil && first[0] != tlsHandshake && !gate.cfg.Optional:
		strangers.Note(noTLSThere, remote, nil)
		return 0, frame.ErrMalformed
	case first[0] != tlsHandshake:
		return first[0], nil
	}
	within, err := gate.accept(a, first[0])
	if err != nil {
		if !a.wasCutOff() { // the cut-off has been logged already
			strangers.Note(notTrusted, remote, err)
		}
		return 0, err
	}
	a.prove(within)
	_, err = io.ReadFull(a, first[:])
	return first[0], err
}

// hand passes a connection to the reader of a channel, or closes it if the port closes first.
func (p *Port) hand(conn net.Conn, to chan<- net.Conn) {
	select {
	case to <- conn:
	case <-p.stop:
		conn.Close()
	}
}

// track notes a connection that was opened to an address, unless the port is closed.
func (p *Port) track(conn net.Conn, addr string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		conn.Close()
		return false
	}
	p.conns[conn] = addr
	return true
}

func (p *Port) untrack(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, conn)
}

// Accept returns the next connection for Raft.
func (p *Port) Accept() (net.Conn, error) { return p.next(p.raft) }

// AcceptAppends returns the next connection for entries and heartbeats.
func (p *Port) AcceptAppends() (net.Conn, error) { return p.next(p.appends) }

func (p *Port) next(from <-chan net.Conn) (net.Conn, error) {
	select {
	case conn := <-from:
		return conn, nil
	case <-p.stop:
		return nil, net.ErrClosed
	}
}

// Done returns a channel that is closed when the port closes.
func (p *Port) Done() <-chan struct{} { return p.stop }

// Close closes the port and its connections, except the incoming ones that Raft has accepted.
func (p *Port) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	close(p.stop)
	for conn := range p.conns {
		conn.Close()
	}
	p.arrivals.close()
	p.dialer.Strangers.close()
	return p.ln.Close()
}

// peerNetAddr is the advertised address of a node's peer port. Unlike the address of a listener it may be a host name.
type peerNetAddr string

func (a peerNetAddr) Network() string { return "tcp" }
func (a peerNetAddr) String() string  { return string(a) }

// Addr returns the address that Raft tells the other nodes.
func (p *Port) Addr() net.Addr { return peerNetAddr(p.self) }

// DialRaft connects Raft to a peer; to itself without the network, because this node may not reach its own advertised address.
func (p *Port) DialRaft(addr string, timeout time.Duration) (net.Conn, error) {
	if addr == p.self {
		return p.dialSelf()
	}
	return p.Connect(addr, ProtoRaft, timeout)
}

// Connect connects to a peer. timeout, DialTimeout at most, bounds the TCP connect and the TLS handshake separately. The connection ends
// with the port.
func (p *Port) Connect(addr string, proto byte, timeout time.Duration) (net.Conn, error) {
	timeout = min(timeout, DialTimeout)
	type result struct {
		conn net.Conn
		err  error
	}
	dialed := make(chan result, 1)
	go func() {
		conn, err := p.dialer.Dial(addr, proto, timeout)
		dialed <- result{conn, err}
	}()
	select {
	case r := <-dialed:
		if r.err != nil {
			return nil, r.err
		}
		if !p.track(r.conn, addr) {
			return nil, net.ErrClosed
		}
		return ownConn{r.conn, p}, nil
	case <-p.stop:
		go func() {
			if r := <-dialed; r.conn != nil {
				r.conn.Close()
			}
		}()
		return nil, net.ErrClosed
	}
}

// HangUp closes the connections that this node has opened to an address.
func (p *Port) HangUp(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn, to := range p.conns {
		if to == addr {
			conn.Close() // the owner notices, and forgets it
		}
	}
}

// ownConn is a connection that this node opened. It ends with the port, so that Raft can stop while it waits.
type ownConn struct {
	net.Conn
	port *Port
}

func (c ownConn) Close() error {
	c.port.untrack(c.Conn)
	return c.Conn.Close()
}

func (p *Port) dialSelf() (net.Conn, error) {
	near, far := net.Pipe()
	if !p.track(far, "") {
		near.Close()
		return nil, net.ErrClosed
	}
	select {
	case p.raft <- ownConn{far, p}:
		return near, nil
	case <-p.stop: // the method Close closes the connection far
		near.Close()
		return nil, net.ErrClosed
	}
}
