package clustertest

import (
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Net is a network in memory, for bubbles of testing/synctest, where time stands still during real network calls. A writer never
// waits.
type Net struct {
	delay time.Duration // from a write until its bytes can be read

	mu    sync.Mutex
	ports map[string]*memPort
}

// NewNet returns a network in which written bytes arrive after delay.
func NewNet(delay time.Duration) *Net {
	return &Net{delay: delay, ports: map[string]*memPort{}}
}

// memError wraps an error of the operation op as package net does.
func memError(op string, err error) error { return &net.OpError{Op: op, Net: "mem", Err: err} }

// Listen opens a port. It fails if the port is open already.
func (m *Net) Listen(addr string) (net.Listener, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ports[addr] != nil {
		return nil, memError("listen", syscall.EADDRINUSE)
	}
	p := &memPort{net: m, addr: addr, in: make(chan net.Conn, 64), done: make(chan struct{})}
	m.ports[addr] = p
	return p, nil
}

// Dial waits for one round trip, and fails if nobody listens. It then waits for a place in the listener's queue, until timeout.
func (m *Net) Dial(addr string, timeout time.Duration) (net.Conn, error) {
	time.Sleep(2 * m.delay)
	m.mu.Lock()
	p := m.ports[addr]
	m.mu.Unlock()
	if p == nil {
		return nil, memError("dial", syscall.ECONNREFUSED)
	}
	near, far := Pair("dialer", Addr(addr), m.delay)
	late := time.NewTimer(timeout)
	defer late.Stop()
	select {
	case p.in <- far:
		return near, nil
	case <-p.done:
		return nil, memError("dial", syscall.ECONNREFUSED)
	case <-late.C:
		return nil, memError("dial", os.ErrDeadlineExceeded)
	}
}

// Pair returns the two ends of a connection between the addresses a and b.
func Pair(a, b Addr, delay time.Duration) (atA, atB net.Conn) {
	there, back := newMemStream(delay), newMemStream(delay)
	return &memConn{in: back, out: there, local: a, remote: b}, &memConn{in: there, out: back, local: b, remote: a}
}

// Addr is an address in a Net.
type Addr string

func (Addr) Network() string  { return "mem" }
func (a Addr) String() string { return string(a) }

// AddrPort returns the address as a netip.AddrPort, or the zero AddrPort if it has a host name instead of an IP address.
func (a Addr) AddrPort() netip.AddrPort {
	addr, _ := netip.ParseAddrPort(string(a))
	return addr
}

// memPort is an open port of a Net.
type memPort struct {
	net  *Net
	addr string
	in   chan net.Conn
	done chan struct{}
	once sync.Once
}

func (p *memPort) Addr() net.Addr { return Addr(p.addr) }

func (p *memPort) Accept() (net.Conn, error) {
	select {
	case c := <-p.in:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// Close also closes the connections that nobody has accepted yet.
func (p *memPort) Close() error {
	p.once.Do(func() {
		p.net.mu.Lock()
		delete(p.net.ports, p.addr)
		p.net.mu.Unlock()
		close(p.done)
	})
	for {
		select {
		case c := <-p.in:
			c.Close()
		default:
			return nil
		}
	}
}

// memStream is one direction of a connection. Nobody may hold mu while time passes: a bubble's time stands still while a
// goroutine waits for mu.
type memStream struct {
	delay time.Duration

	mu       sync.Mutex
	cond     *sync.Cond // signals that the method read has to look again
	chunks   []memChunk // written and not yet read
	ended    bool       // the writer has closed: no more chunks come
	gone     bool       // the reader has closed
	deadline time.Time  // when read fails; zero: never
	due      *time.Timer
}

type memChunk struct {
	b  []byte
	at time.Time // when it can be read
}

func newMemStream(delay time.Duration) *memStream {
	s := &memStream{delay: delay}
	s.cond = sync.NewCond(&s.mu)
	s.due = time.AfterFunc(time.Hour, s.wake)
	s.due.Stop()
	return s
}

func (s *memStream) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cond.Broadcast()
}

func (s *memStream) read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		now := time.Now()
		switch {
		case s.gone:
			return 0, memError("read", net.ErrClosed)
		case !s.deadline.IsZero() && !now.Before(s.deadline):
			return 0, memError("read", os.ErrDeadlineExceeded)
		case len(s.chunks) > 0 && !now.Before(s.chunks[0].at):
			n := copy(b, s.chunks[0].b)
			if s.chunks[0].b = s.chunks[0].b[n:]; len(s.chunks[0].b) == 0 {
				s.chunks = s.chunks[1:]
			}
			return n, nil
		case len(s.chunks) == 0 && s.ended:
			return 0, io.EOF
		}
		// One timer wakes the method read at the arrival of the next chunk or at the deadline, whichever comes first.
		next := s.deadline
		if len(s.chunks) > 0 && (next.IsZero() || s.chunks[0].at.Before(next)) {
			next = s.chunks[0].at
		}
		if !next.IsZero() {
			s.due.Reset(time.Until(next))
		}
		s.cond.Wait()
	}
}

func (s *memStream) write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended:
		return 0, memError("write", net.ErrClosed)
	case s.gone:
		return 0, memError("write", syscall.EPIPE)
	}
	s.chunks = append(s.chunks, memChunk{append([]byte(nil), b...), time.Now().Add(s.delay)})
	s.cond.Broadcast()
	return len(b), nil
}

// end closes the stream for the writer.
func (s *memStream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.cond.Broadcast()
}

// leave closes the stream for the reader.
func (s *memStream) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone, s.chunks = true, nil
	s.due.Stop()
	s.cond.Broadcast()
}

func (s *memStream) setDeadline(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = at
	s.cond.Broadcast()
}

// memConn is one end of a connection.
type memConn struct {
	in, out       *memStream
	local, remote Addr
}

var _ net.Conn = (*memConn)(nil)

func (c *memConn) Read(b []byte) (int, error)  { return c.in.read(b) }
func (c *memConn) Write(b []byte) (int, error) { return c.out.write(b) }

func (c *memConn) Close() error {
	c.out.end()
	c.in.leave()
	return nil
}

func (c *memConn) LocalAddr() net.Addr  { return c.local }
func (c *memConn) RemoteAddr() net.Addr { return c.remote }

func (c *memConn) SetDeadline(at time.Time) error     { return c.SetReadDeadline(at) }
func (c *memConn) SetReadDeadline(at time.Time) error { c.in.setDeadline(at); return nil }

// SetWriteDeadline does nothing, because a write never waits.
func (c *memConn) SetWriteDeadline(time.Time) error { return nil }

// ClosedAt reads until the other side closes the connection, and returns the time at which it did.
func ClosedAt(t *testing.T, conn net.Conn) time.Time {
	t.Helper()
	if _, err := io.Copy(io.Discard, conn); err != nil {
		t.Error(err)
	}
	return time.Now()
}
