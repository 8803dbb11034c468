package server

import (
	"errors"
	"net"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockstep-io/lockstep/store"
)

// serveLoops does the work of ServeAs with event loops. served is false if the listener or the configuration rules them out.
func (srv *Server) serveLoops(ln net.Listener, face Face, secret bool) (served bool, err error) {
	tcp, ok := ln.(*net.TCPListener)
	if !ok || srv.cfg.Loops < 0 {
		return false, nil
	}
	n := srv.cfg.Loops
	if n == 0 {
		n = max(1, runtime.GOMAXPROCS(0)/2)
	}
	var loops []*loop
	defer func() {
		for _, l := range loops {
			l.finishUp()
		}
	}()
	for range n {
		l, err := newLoop(srv)
		if err != nil {
			return true, err
		}
		loops = append(loops, l)
		go l.run(0)
		go l.watch()
	}
	srv.acceptInto(tcp, loops, face, secret)
	return true, nil
}

// acceptInto gives the clients of a listener to the loops in turn. It returns when Server.drained is closed.
func (srv *Server) acceptInto(ln *net.TCPListener, loops []*loop, face Face, secret bool) {
	var wait yielding
	for i := 0; ; i++ {
		srv.yield(&wait, &srv.garbage)
		conn, err := ln.AcceptTCP()
		if err == nil {
			srv.garbage.bytes.Add(newcomerGarbage)
			l := loops[i%len(loops)]
			if secret {
				srv.adoptLater(conn, l, face)
			} else {
				err = srv.adopt(conn, nil, l, face)
			}
		}
		if err == nil {
			continue
		}
		if errors.Is(err, net.ErrClosed) {
			<-srv.drained
			return
		}
		srv.seldom.accept.note(srv.cfg.Clock(), "error", err)
		select {
		case <-time.After(acceptPause):
		case <-srv.drained:
			return
		}
	}
}

// adoptLater calls adopt after the TLS handshake. Until then, the operating system keeps little of the client's input.
func (srv *Server) adoptLater(conn *net.TCPConn, l *loop, face Face) {
	srv.warnOfNoLimit(limitInput(conn, srv.inputOf(false)))
	srv.hands.begin(conn, srv.hands.certs.Config(), srv.cfg.Clock, func(w *wire) {
		if err := srv.adopt(conn, w, l, face); err != nil {
			srv.seldom.takeIn.note(srv.cfg.Clock(), "error", err)
		}
	})
}

// adopt hands a connection to loop l, or closes it if Server.enter refuses the client. w is nil without TLS.
func (srv *Server) adopt(conn *net.TCPConn, w *wire, l *loop, face Face) error {
	srv.prepare(conn)
	c := &loopConn{loop: l}
	c.remote, c.local = conn.RemoteAddr(), conn.LocalAddr()
	var err error
	if c.fd, err = takeSocket(conn); err != nil {
		return err
	}
	c.room = make(chan struct{}, 1)
	c.onClose = func() { l.tell(c, newsClosed) }
	var socket loopSocket = &c.fdConn
	if w != nil {
		c.tls = secure(&c.fdConn, w)
		socket = c.tls
	}
	c.guard = newGuard(socket)
	c.guard.direct, c.guard.face, c.guard.secret = true, face, w != nil
	s, refusal, in := srv.enter(c.guard)
	if !in {
		if refusal != "" {
			refused := store.Err(refusal)
			// The refused client may have closed the connection already.
			_, _ = socket.tryWrite(appendReply(nil, &refused, 2))
		}
		_ = socket.Close()
		c.release()
		return nil
	}
	c.s = s
	s.onLoop = true
	c.sub.Done = func() { l.tell(c, newsAnswered) }
	s.out.setOnPush(func() { l.tell(c, newsPushed) })
	c.onLoop.Store(true) // a Close before this line has not told the loop; loop.join looks at c.shut for it
	l.tell(c, newsJoined)
	return nil
}

// loopSocket is a connection that an event loop serves.
type loopSocket interface {
	net.Conn
	tryWriter
}

// takeSocket duplicates the socket's descriptor and closes conn, so that Go's runtime does not poll the
// socket any more.
func takeSocket(conn *net.TCPConn) (fd int, err error) {
	// When Close runs, the descriptor has been duplicated or takeSocket has failed, so an error of Close does not matter.
	defer func() { _ = conn.Close() }()
	raw, err := conn.SyscallConn()
	if err != nil {
		return -1, err
	}
	fault := raw.Control(func(old uintptr) {
		fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0)
	})
	return fd, errors.Join(err, fault)
}
