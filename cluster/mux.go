package cluster

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"lockstep/cluster/internal/frame"
)

// The protocols of the peer port. The first byte of a connection chooses one.
const (
	protoRaft    = 'R' // hashicorp/raft's own transport
	protoAppend  = 'A' // entries and heartbeats: append.go
	protoForward = 'F' // requests to the leader: wire.go
	protoFacts   = 'D' // the facts that the nodes exchange: facts.go
	protoJoin    = 'J' // a node that wants to become a member: join.go
)

// peerPort is the one port through which nodes reach each other. It passes each connection to Raft or
// to the handler of its protocol.
type peerPort struct {
	ln      net.Listener
	self    string // address under which the other nodes know this one
	forward func(net.Conn)
	facts   func(net.Conn)
	join    func(net.Conn)
	log     *slog.Logger
	dial    func(addr string, proto byte, timeout time.Duration) (net.Conn, error)
	gate    *peerGate // nil: peers need not prove anything
	raft    chan net.Conn
	appends chan net.Conn

	arrivals  *arrivals
	strangers *strangers

	mu    sync.Mutex
	conns map[net.Conn]struct{} // connections that this node opened
	done  bool
	stop  chan struct{}
}

var _ raft.StreamLayer = (*peerPort)(nil)

// greetTimeout is how long a new connection may take to name its protocol.
const greetTimeout = 5 * time.Second

func newPeerPort(ln net.Listener, cfg *Config, hooks raftHooks) *peerPort {
	if cfg.strangers == nil {
		cfg.strangers = newStrangers(cfg.Logger)
	}
	p := &peerPort{ln: ln, self: cfg.peerAddr(), forward: hooks.forward, facts: hooks.facts, join: hooks.join, log: cfg.Logger, dial: cfg.dialPeer, gate: cfg.gate,
		arrivals: newArrivals(cfg.strangers, cfg.gate.addrs()), strangers: cfg.strangers,
		raft: make(chan net.Conn), appends: make(chan net.Conn), conns: map[net.Conn]struct{}{}, stop: make(chan struct{})}
	go p.accept()
	if p.gate != nil {
		go p.gate.watch(p.stop)
	}
	return p
}

func (p *peerPort) accept() {
	for {
		conn, err := p.ln.Accept()
		if err != nil {
			select {
			case <-p.stop:
				return
			default:
			}
			p.log.Warn("peer port: accept failed", "error", err)
			// The process may be out of file descriptors: wait until some are free again.
			time.Sleep(100 * time.Millisecond)
			continue
		}
		if a := p.arrivals.admit(quiet(conn)); a != nil {
			go p.sort(a)
		}
	}
}

// sort reads the protocol byte and passes the connection to the handler of that protocol.
func (p *peerPort) sort(a *arrival) {
	proto, err := p.open(a)
	if err != nil {
		a.Close()
		return
	}
	switch proto {
	case protoRaft:
		a.keep()
		p.hand(&raftArrival{arrival: a}, p.raft)
	case protoAppend:
		p.hand(a, p.appends)
	case protoForward:
		p.forward(a)
	case protoFacts:
		p.facts(a)
	case protoJoin:
		p.join(a)
	default:
		p.strangers.note(noPeer, a.RemoteAddr().String(), nil)
		a.Close()
	}
}

// open reads which protocol a caller wants. Before that, the caller proves that it is a peer, if the
// gate asks for a proof.
func (p *peerPort) open(a *arrival) (proto byte, err error) {
	var first [1]byte
	if _, err := io.ReadFull(a, first[:]); err != nil {
		return 0, err
	}
	remote := a.RemoteAddr().String()
	switch {
	case p.gate == nil && first[0] == tlsHandshake:
		p.strangers.note(noTLSHere, remote, nil)
		return 0, frame.ErrMalformed
	case p.gate != nil && first[0] != tlsHandshake && !p.gate.cfg.Optional:
		p.strangers.note(noTLSThere, remote, nil)
		return 0, frame.ErrMalformed
	case first[0] != tlsHandshake:
		return first[0], nil
	}
	within, err := p.gate.accept(a, first[0])
	if err != nil {
		if !a.wasCutOff() { // the cut-off has been logged already
			p.strangers.note(notTrusted, remote, err)
		}
		return 0, err
	}
	a.prove(within)
	_, err = io.ReadFull(a, first[:])
	return first[0], err
}

// hand passes a connection to the reader of a channel, or closes it if the port closes first.
func (p *peerPort) hand(conn net.Conn, to chan<- net.Conn) {
	select {
	case to <- conn:
	case <-p.stop:
		conn.Close()
	}
}

func (p *peerPort) track(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done {
		conn.Close()
		return false
	}
	p.conns[conn] = struct{}{}
	return true
}

func (p *peerPort) untrack(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, conn)
}

// Accept returns the next connection for Raft.
func (p *peerPort) Accept() (net.Conn, error) {
	select {
	case conn := <-p.raft:
		return conn, nil
	case <-p.stop:
		return nil, net.ErrClosed
	}
}

// Close closes the port and its connections, except the incoming ones that Raft has accepted.
func (p *peerPort) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done {
		return nil
	}
	p.done = true
	close(p.stop)
	for conn := range p.conns {
		conn.Close()
	}
	p.arrivals.close()
	p.strangers.close()
	return p.ln.Close()
}

// peerNetAddr is the advertised address of the port. Unlike the address of the listener it may be a host name.
type peerNetAddr string

func (a peerNetAddr) Network() string { return "tcp" }
func (a peerNetAddr) String() string  { return string(a) }

// Addr returns the address that Raft tells the other nodes.
func (p *peerPort) Addr() net.Addr { return peerNetAddr(p.self) }

// Dial connects Raft to a peer. It connects Raft to itself without the network, because this node may not
// reach its own advertised address. Dial gives up after dialTimeout, although Raft would wait longer: packets
// to an unreachable peer are sent again at growing intervals, and the lookup of a name may take seconds. A new
// attempt finds the peer soon after it has come back.
func (p *peerPort) Dial(addr raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	if string(addr) == p.self {
		return p.dialSelf()
	}
	return p.connect(addr, protoRaft, timeout)
}

// connect connects to a peer for one of the protocols. The connection ends with the port.
func (p *peerPort) connect(addr raft.ServerAddress, proto byte, timeout time.Duration) (net.Conn, error) {
	timeout = min(timeout, dialTimeout)
	type result struct {
		conn net.Conn
		err  error
	}
	dialed := make(chan result, 1)
	go func() {
		conn, err := p.dial(string(addr), proto, timeout)
		dialed <- result{conn, err}
	}()
	select {
	case r := <-dialed:
		if r.err != nil {
			return nil, r.err
		}
		if !p.track(r.conn) {
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

// ownConn is a connection that this node opened. It ends with the port, so that Raft can stop while it waits
// for an answer of a peer.
type ownConn struct {
	net.Conn
	port *peerPort
}

func (c ownConn) Close() error {
	c.port.untrack(c.Conn)
	return c.Conn.Close()
}

func (p *peerPort) dialSelf() (net.Conn, error) {
	near, far := net.Pipe()
	if !p.track(far) {
		near.Close()
		return nil, net.ErrClosed
	}
	select {
	case p.raft <- far:
		return near, nil
	case <-p.stop: // Close closes far
		near.Close()
		return nil, net.ErrClosed
	}
}

// listenPeers opens the port.
func (c *Config) listenPeers() (net.Listener, error) {
	if c.listen != nil {
		return c.listen(c.PeerListen)
	}
	return net.Listen("tcp", c.PeerListen)
}

// dialPeer connects to a peer for one of the protocols. Both sides prove that they are peers, if there is a gate.
func (c *Config) dialPeer(addr string, proto byte, timeout time.Duration) (net.Conn, error) {
	if c.gate == nil {
		return c.dialPlain(addr, proto, timeout)
	}
	conn, err := c.dialOnly(addr, proto, timeout)
	if err != nil {
		return nil, err
	}
	within, err := c.gate.call(conn, addr, proto, timeout)
	switch {
	case err == nil:
		return within, nil
	case c.gate.cfg.Optional && speaksPlain(err):
		return c.dialPlain(addr, proto, timeout)
	}
	c.turnedAway(addr, err)
	if speaksPlain(err) {
		err = fmt.Errorf("%w: %w", errPlainPeer, err)
	}
	// Callers must see a failed dial, not a broken connection: Raft repeats requests on the latter.
	return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: peerNetAddr(addr), Err: err}
}

var errPlainPeer = errors.New("it speaks no TLS: if it is a port of clients, name a member's --peer-listen; if it is a member, give it this node's --peer-secret-file, or certificates, or start this node without")

// turnedAway logs which side does not trust the other, if that is why the call failed.
func (c *Config) turnedAway(addr string, err error) {
	op, _ := errors.AsType[*net.OpError](err)
	_, untrusted := errors.AsType[unproven](err)
	_, strange := errors.AsType[tls.RecordHeaderError](err)
	switch {
	case c.strangers == nil:
	case op != nil && op.Op == "remote error":
		c.strangers.note(peerRefuses, addr, err)
	case untrusted || strange || op != nil && op.Op == "local error":
		c.strangers.note(peerUntrusted, addr, err)
	}
}

// dialPlain is dialPeer without a gate.
func (c *Config) dialPlain(addr string, proto byte, timeout time.Duration) (net.Conn, error) {
	conn, err := c.dialOnly(addr, proto, timeout)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Write([]byte{proto}); err != nil {
		conn.Close()
		return nil, fmt.Errorf("greeting %s: %w", addr, err)
	}
	return conn, nil
}

// dialOnly connects and sends nothing.
func (c *Config) dialOnly(addr string, proto byte, timeout time.Duration) (net.Conn, error) {
	dial := c.dial
	if dial == nil {
		dial = dialTCP
	}
	conn, err := dial(addr, proto, timeout)
	if err != nil {
		return nil, err
	}
	return quiet(conn), nil
}

// dialTCP connects by TCP and looks up the name with a new resolver each time. The default resolver shares
// one query among all callers that ask for a name. A query that was lost while the network was
// partitioned would delay all of them for ten seconds after the network is back.
func dialTCP(addr string, _ byte, timeout time.Duration) (net.Conn, error) {
	d := net.Dialer{Timeout: timeout, Resolver: new(net.Resolver)}
	return d.Dial("tcp", addr)
}
