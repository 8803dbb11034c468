package server

import (
	"crypto/tls"
	"net"
	"time"
)

// secureListener accepts connections that have completed the TLS handshake. Server.Listener and servers
// without event loops use it.
type secureListener struct {
	net.Listener
	srv    *Server
	config func() *tls.Config
	ready  chan net.Conn
	fault  chan error
}

// secureConn is a TLS connection with a quick Close. The Close of crypto/tls could try for seconds to send an alert.
type secureConn struct {
	*tls.Conn
	wire *wire
}

func (c secureConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.wire.hears()
	}
	return n, err
}

func (c secureConn) Close() error {
	defer time.AfterFunc(10*time.Millisecond, func() { _ = c.NetConn().Close() }).Stop()
	return c.Conn.Close()
}

func (srv *Server) newSecureListener(ln net.Listener, config func() *tls.Config) *secureListener {
	l := &secureListener{Listener: ln, srv: srv, config: config, ready: make(chan net.Conn), fault: make(chan error)}
	go l.run()
	return l
}

// Listener makes the listener of another protocol (HTTP) speak TLS with this server's certificates. It asks for no client certificate:
// clients have passwords.
func (srv *Server) Listener(ln net.Listener) net.Listener {
	return srv.newSecureListener(ln, func() *tls.Config {
		c := srv.hands.certs.Config()
		if c != nil {
			c = c.Clone()
			c.ClientAuth, c.ClientCAs = tls.NoClientCert, nil
		}
		return c
	})
}

func (l *secureListener) run() {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			select {
			case l.fault <- err:
				continue // Accept has returned err: its caller decides whether to call it again
			case <-l.srv.drained:
				return
			}
		}
		if tcp, ok := c.(*net.TCPConn); ok {
			l.srv.prepare(tcp)
		}
		l.srv.hands.begin(c, l.config(), l.srv.cfg.Clock, func(w *wire) {
			select {
			case l.ready <- secureConn{w.tls, w}:
			case <-l.srv.drained:
				_ = w.Conn.Close()
			}
		})
	}
}

// Accept implements net.Listener.
func (l *secureListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.ready:
		return c, nil
	case err := <-l.fault:
		return nil, err
	case <-l.srv.drained:
		return nil, net.ErrClosed
	}
}
