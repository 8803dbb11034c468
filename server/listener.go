package server

import (
	"errors"
	"net"
	"sync"
	"time"
)

// listener puts a guard on every connection. Its Accept also works around two habits of redcon. First, redcon would call a
// failed Accept again at once, so Accept itself tries again, after acceptPause. Second, when Accept returns net.ErrClosed,
// redcon cuts all connections. So the Accept of a closed listener waits until they may be cut (Server.drained).
type listener struct {
	net.Listener
	srv    *Server
	face   Face
	secret bool
}

// acceptPause is how long Accept waits after a temporary failure, such as too many open files.
const acceptPause = 50 * time.Millisecond

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err == nil {
			if tcp, ok := c.(*net.TCPConn); ok {
				l.srv.prepare(tcp)
			}
			g := newGuard(c)
			g.face, g.secret = l.face, l.secret
			return g, nil
		}
		if errors.Is(err, net.ErrClosed) {
			<-l.srv.drained
			return nil, net.ErrClosed
		}
		l.srv.seldom.accept.note(l.srv.cfg.Clock(), "error", err)
		select {
		case <-time.After(acceptPause):
		case <-l.srv.drained:
			return nil, net.ErrClosed
		}
	}
}

const (
	// strangersInput is how much unread input the operating system keeps for a client that has not authenticated. Much of the input
	// of such clients waits in the system, because loops serve them one after the other (loop_shares_linux.go). The system takes
	// twice as much memory, because it also stores data about the input.
	strangersInput = 16 << 10
	// clientsInput is the most that the system keeps for a client that has authenticated: enough for 20 MB/s at a round trip of
	// 10 ms. Without a limit, the system would keep up to 6 MiB for a client whose commands wait.
	clientsInput = 208 << 10
)

// inputOf returns how much unread input the operating system may keep for a client; the argument known is true if the
// client has authenticated. A small container needs memory for this input besides the memory of the clients in this
// process. So an authenticated client gets maxmemory-clients divided by maxclients, but at least strangersInput and at
// most clientsInput. If maxmemory-clients is 0, it gets clientsInput.
func (srv *Server) inputOf(known bool) int {
	limit, clients := srv.params.clientLimit.Load(), srv.params.maxClients.Load()
	switch {
	case !known:
		return strangersInput
	case limit <= 0:
		return clientsInput
	}
	return int(min(max(limit/clients, strangersInput), clientsInput))
}

// prepare sets the options of a client's socket.
func (srv *Server) prepare(c *net.TCPConn) {
	srv.keepAlive(c)
	srv.warnOfNoLimit(errors.Join(limitUnsent(c), limitInput(c, srv.inputOf(srv.hub.accounts.ruling().open.Load()))))
}

// limitWindow makes a listener offer new clients no larger TCP window than they get after AUTH (inputOf). In a small
// container, that window may be small. If the first window were larger, a client would choose packets that do not fit into
// the later one. On loopback, such a client would send only one packet each 200 ms.
func (srv *Server) limitWindow(ln net.Listener) {
	if tcp, ok := ln.(*net.TCPListener); ok {
		srv.warnOfNoLimit(limitInput(tcp, srv.inputOf(true)))
	}
}

// warnOfNoLimit logs the first error of setting an option that limits what the system keeps. It logs no later error: a
// system that does not know an option refuses it for every client.
func (srv *Server) warnOfNoLimit(err error) {
	if err != nil {
		srv.saidNoLimit.Do(func() {
			srv.cfg.Log.Warn("cannot limit what the operating system keeps for clients", "error", err)
		})
	}
}

// maxKeepAlive is the longest time in seconds after which Linux probes a client (MAX_TCP_KEEPIDLE). Linux refuses a longer
// time.
const maxKeepAlive = 32767

// keepAlive makes the system probe a client that has sent nothing for tcp-keepalive seconds (0: never). If the client is
// dead, the system ends the connection after about twice that time.
func (srv *Server) keepAlive(c *net.TCPConn) {
	secs := min(srv.params.keepAlive.Load(), maxKeepAlive)
	cfg := net.KeepAliveConfig{Enable: secs > 0}
	if secs > 0 {
		// As in Redis's anetKeepAlive: three probes, each a third of tcp-keepalive after the one before.
		cfg.Idle = time.Duration(secs) * time.Second
		cfg.Interval = max(time.Duration(secs)*time.Second/3, time.Second)
		cfg.Count = 3
	}
	if err := c.SetKeepAliveConfig(cfg); err != nil {
		srv.seldom.keepAlive.note(srv.cfg.Clock(), "error", err)
	}
}

// single is a listener that accepts one given connection. After that, Accept waits until the channel gone is closed,
// and returns net.ErrClosed.
type single struct {
	mu   sync.Mutex
	conn net.Conn
	gone <-chan struct{}
}

func (l *single) Accept() (net.Conn, error) {
	l.mu.Lock()
	c := l.conn
	l.conn = nil
	l.mu.Unlock()
	if c != nil {
		return newGuard(c), nil
	}
	<-l.gone
	return nil, net.ErrClosed
}

func (l *single) Close() error   { return nil }
func (l *single) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }
