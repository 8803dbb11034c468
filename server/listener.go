package server

import (
	"errors"
	"net"
	"sync"
	"time"
)

// listener puts a guard on every connection. After an error, its Accept tries again itself, because redcon would not pause. After Close,
// it returns only when connections may be cut (Server.drained), because redcon then cuts them all.
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
			switch c := c.(type) {
			case *net.TCPConn:
				l.srv.prepare(c)
			case *net.UnixConn:
				l.srv.warnOfNoLimit(limitUnsentLocal(c))
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
	// strangersInput is how much unread input the system keeps for a client that has not authenticated. The input takes twice as much
	// memory.
	strangersInput = 16 << 10
	// clientsInput is the most that the system keeps for an authenticated client: enough for 20 MB/s at a round trip of 10 ms.
	clientsInput = 208 << 10
)

// inputOf returns how much unread input the system may keep for a client; known means that the client has authenticated. The limit follows
// maxmemory-clients, because small containers have little memory.
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

// limitWindow offers new clients no larger TCP window than they get after AUTH. Otherwise a client could choose packets that do not fit
// later.
func (srv *Server) limitWindow(ln net.Listener) {
	if tcp, ok := ln.(*net.TCPListener); ok {
		srv.warnOfNoLimit(limitInput(tcp, srv.inputOf(true)))
	}
}

// warnOfNoLimit logs only the first error: a system that does not know an option refuses it for every client.
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

// keepAlive makes the system probe a client after tcp-keepalive silent seconds (0: never), and end a dead connection after about twice
// that time.
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
