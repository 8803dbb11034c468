package server

import (
	"container/list"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"time"
)

const (
	// handshakeTime is how long a client may take to show that it may come in.
	handshakeTime = 5 * time.Second
	// maxHandshakes is how many may be at it at once. Who has been at it for longest
	// goes when another comes: an honest client needs milliseconds.
	maxHandshakes = 512
	// handshakeSilence is how far apart two log lines about failures are.
	handshakeSilence = 10 * time.Second
)

var errHandshakeTime = fmt.Errorf("the handshake was not over after %v", handshakeTime)

// handshakes are the TLS connections that have no session yet. Each has a goroutine, so
// that who says nothing keeps nobody waiting.
type handshakes struct {
	certs *Certificates
	log   *slog.Logger
	turns chan struct{} // one word for each that may compute

	mu   sync.Mutex
	open list.List // of *wire, the oldest first
	over bool      // the server closes

	failed   int64 // since the last log line
	lastWhy  string
	lastFrom string
	said     time.Time
	failures int64 // in all
}

func newHandshakes(certs *Certificates, log *slog.Logger) *handshakes {
	h := &handshakes{certs: certs, log: log}
	// The loops want processors, too.
	h.turns = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))
	for range cap(h.turns) {
		h.turns <- struct{}{}
	}
	return h
}

// wire is what stands between crypto/tls and a socket.
type wire struct {
	net.Conn
	tls   *tls.Conn
	turns chan struct{} // nil once hands have been shaken
	place *list.Element
}

// Read gives the turn back while it waits.
func (w *wire) Read(p []byte) (int, error) {
	turns := w.turns
	if turns == nil {
		return w.Conn.Read(p)
	}
	turns <- struct{}{}
	n, err := w.Conn.Read(p)
	<-turns
	return n, err
}

// begin shakes hands with a client and passes the connection on to then. It does not
// wait.
func (h *handshakes) begin(conn net.Conn, now func() time.Time, then func(*wire)) {
	w := &wire{Conn: conn, turns: h.turns}
	config := h.certs.Config()
	if config == nil || !h.enter(w) {
		_ = conn.Close() // nothing can be said to who speaks TLS
		return
	}
	w.tls = tls.Server(w, config)
	go func() {
		err := w.shake()
		h.leave(w)
		if err != nil {
			h.refuse(conn.RemoteAddr().String(), err, now())
			_ = conn.Close()
			return
		}
		then(w)
	}()
}

// shake is the handshake, within its time.
func (w *wire) shake() error {
	late := time.AfterFunc(handshakeTime, func() { _ = w.Conn.Close() })
	<-w.turns
	err := w.tls.Handshake()
	w.turns <- struct{}{}
	w.turns = nil
	if !late.Stop() {
		return errHandshakeTime
	}
	return err
}

func (h *handshakes) enter(w *wire) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return false
	}
	if h.open.Len() >= maxHandshakes {
		oldest := h.open.Front()
		h.open.Remove(oldest)
		_ = oldest.Value.(*wire).Conn.Close()
	}
	w.place = h.open.PushBack(w)
	return true
}

func (h *handshakes) leave(w *wire) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open.Remove(w.place) // nothing happens if it has been
}

// stop ends the handshakes that are in progress.
func (h *handshakes) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
	for e := h.open.Front(); e != nil; e = e.Next() {
		_ = e.Value.(*wire).Conn.Close()
	}
}

// refuse notes a failure. A stranger decides how many there are, so only one is told of
// in a while, and how many there have been.
func (h *handshakes) refuse(from string, err error, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return
	}
	why := err.Error()
	h.failed++
	h.failures++
	h.lastWhy, h.lastFrom = why[:min(len(why), 2*maxQuoted)], from
	h.say(now)
}

// say writes the log line that is due.
func (h *handshakes) say(now time.Time) {
	if h.failed == 0 || now.Sub(h.said) < handshakeSilence {
		return
	}
	h.log.Warn("clients failed at the TLS handshake", "count", h.failed, "last", h.lastFrom, "error", h.lastWhy)
	h.failed, h.said = 0, now
}

// sayRest is say for the failures since the last log line.
func (h *handshakes) sayRest(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.say(now)
}

// total is how many have failed since the start.
func (h *handshakes) total() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failures
}

// secureListener accepts those who have shaken hands. It is for where there are no event
// loops.
type secureListener struct {
	net.Listener
	srv   *Server
	ready chan net.Conn
	fault chan error
}

// secureConn closes soon: crypto/tls would take leave of a client that does not read for
// seconds, and whoever closes a connection must not wait.
type secureConn struct{ *tls.Conn }

func (c secureConn) Close() error {
	defer time.AfterFunc(10*time.Millisecond, func() { _ = c.NetConn().Close() }).Stop()
	return c.Conn.Close()
}

func (srv *Server) newSecureListener(ln net.Listener) *secureListener {
	l := &secureListener{Listener: ln, srv: srv, ready: make(chan net.Conn), fault: make(chan error)}
	go l.run()
	return l
}

func (l *secureListener) run() {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			select {
			case l.fault <- err:
				continue // who asks again decides whether there is more
			case <-l.srv.drained:
				return
			}
		}
		if tcp, ok := c.(*net.TCPConn); ok {
			l.srv.keepAlive(tcp)
		}
		l.srv.hands.begin(c, l.srv.cfg.Clock, func(w *wire) {
			select {
			case l.ready <- secureConn{w.tls}:
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

// FailedHandshakes is how many clients have failed since the start.
func (srv *Server) FailedHandshakes() int64 { return srv.hands.total() }
