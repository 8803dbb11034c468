package server

import (
	"net"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// ask calls fn with the descriptor of the only client's socket.
func (ts *testServer) ask(t *testing.T, fn func(fd int) (int, error)) (n int) {
	t.Helper()
	all := ts.each()
	if len(all) != 1 {
		t.Fatalf("%d clients", len(all))
	}
	var fault error
	switch c := all[0].conn.Conn.(type) {
	case *fdConn:
		n, fault = c.asked(fn)
	case *tlsConn:
		n, fault = c.asked(fn)
	default:
		raw, err := tcpOf(t, c).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		if err := raw.Control(func(fd uintptr) { n, fault = fn(int(fd)) }); err != nil {
			t.Fatal(err)
		}
	}
	if fault != nil {
		t.Fatal(fault)
	}
	return n
}

// asked calls fn with the descriptor. It holds mu, because the loop closes the descriptor at the end of the connection.
func (c *fdConn) asked(fn func(fd int) (int, error)) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fn(c.fd)
}

// option returns an option of the only client's socket.
func (ts *testServer) option(t *testing.T, name int) int {
	t.Helper()
	return ts.ask(t, func(fd int) (int, error) { return unix.GetsockoptInt(fd, unix.SOL_SOCKET, name) })
}

// queue returns the result of an ioctl about the queues of the only client's socket, in bytes. The argument what is the number of the
// ioctl.
func (ts *testServer) queue(t *testing.T, what uint) int {
	t.Helper()
	return ts.ask(t, func(fd int) (int, error) { return unix.IoctlGetInt(fd, what) })
}

func tcpOf(t *testing.T, conn net.Conn) *net.TCPConn {
	t.Helper()
	for {
		switch c := conn.(type) {
		case *net.TCPConn:
			return c
		case interface{ NetConn() net.Conn }:
			conn = c.NetConn()
		default:
			t.Fatalf("a %T", conn)
		}
	}
}

const unsentBytes = 0x894b // SIOCOUTQNSD

// TestTheSystemKeepsLittleForClients: the operating system keeps little of the output that a client does not read, because the
// server does not count that memory.
func TestTheSystemKeepsLittleForClients(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		ts := newTestServer(t, withLoops(loops))
		c := ts.dial(t)
		c.do("PING", "+PONG\r\n")
		go c.conn.Write([]byte(strings.Repeat(array("ECHO", strings.Repeat("x", 1<<20)), 16))) // without a limit, the system keeps 4 MiB
		until(t, "output to be kept here", func() bool { return ts.each()[0].out.size() > 1<<20 })
		if n := ts.queue(t, unsentBytes); n > unsentLimit+1<<20 {
			t.Errorf("the system keeps %d bytes for a client that does not read", n)
		}
		c.conn.Close()
	})
}

// TestStrangersSendLittleAhead: the operating system keeps little unread input of each stranger. For all clients together, it keeps
// no more than maxmemory-clients.
func TestStrangersSendLittleAhead(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		ts := newTestServer(t, func(c *Config) { withLoops(loops)(c); c.RequirePass = "secret" })
		c := ts.dial(t)
		c.do("PING", "-NOAUTH Authentication required.\r\n")
		if n := ts.option(t, unix.SO_RCVBUF); n != 2*strangersInput { // Linux doubles the size that is set
			t.Errorf("%d bytes for a stranger", n)
		}
		c.do("AUTH secret", "+OK\r\n")
		if n := ts.option(t, unix.SO_RCVBUF); n != 2*clientsInput {
			t.Errorf("%d bytes for a client", n)
		}
		small := newTestServer(t, func(c *Config) { withLoops(loops)(c); c.MaxMemoryClients, c.MaxClients = 300<<20, 10_000 })
		small.dial(t).do("PING", "+PONG\r\n")
		if n := small.option(t, unix.SO_RCVBUF); n > 2*300<<20/10_000 || n < 2*strangersInput {
			t.Errorf("%d bytes for a client where there is little memory", n)
		}
	})
}

// TestNoClientIsOfferedMoreThanItMaySend: a client's first TCP window is not larger than later ones. Otherwise its packets would wait.
func TestNoClientIsOfferedMoreThanItMaySend(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		ts := newTestServer(t, func(c *Config) { withLoops(loops)(c); c.MaxMemoryClients, c.MaxClients = 300<<20, 10_000 })
		ts.dial(t).do("PING", "+PONG\r\n") // afterwards, the server is known to serve
		c := ts.dial(t)
		c.do("PING", "+PONG\r\n")
		raw, err := c.conn.(syscall.Conn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		var info *unix.TCPInfo
		if fault := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) }); fault != nil || err != nil {
			t.Fatal(fault, err)
		}
		if most := uint32(2 * ts.inputOf(true)); info.Snd_wnd > most {
			t.Errorf("a client was offered %d bytes, and may send %d", info.Snd_wnd, most)
		}
	})
}

// TestCutOffClientsLeaveNothing: the server resets the connection of a client that it cuts off, so that the system keeps no output.
func TestCutOffClientsLeaveNothing(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		ts := newTestServer(t, withLoops(loops))
		c := ts.dial(t)
		c.send(array("SET", "k", strings.Repeat("x", 1<<20)))
		c.expect("+OK\r\n")
		c.send(strings.Repeat("GET k\r\n", 16))
		until(t, "output to be kept here", func() bool { return ts.each()[0].out.size() > 1<<20 })
		ts.each()[0].out.cut()
		raw, err := c.conn.(syscall.Conn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		until(t, "the reset", func() bool {
			fault := 0
			err := raw.Control(func(fd uintptr) { fault, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR) })
			// The error is EPIPE if the client's system had received all output before the reset.
			return err == nil && (syscall.Errno(fault) == syscall.ECONNRESET || syscall.Errno(fault) == syscall.EPIPE)
		})
	})
}

// TestStrangersSendLittleDuringTheHandshake: the system keeps little input of a client before the end of the TLS handshake, and more after
// it.
func TestStrangersSendLittleDuringTheHandshake(t *testing.T) {
	ts, _, _, _ := secretServer(t, 1)
	c, err := net.Dial("tcp", ts.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var tcp *net.TCPConn
	until(t, "the handshake to begin", func() bool {
		ts.hands.mu.Lock()
		defer ts.hands.mu.Unlock()
		for _, list := range ts.hands.open {
			tcp = tcpOf(t, list[0].Conn.Conn)
		}
		return tcp != nil
	})
	raw, err := tcp.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	size := 0
	fault := raw.Control(func(fd uintptr) { size, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF) })
	if fault != nil || err != nil || size != 2*strangersInput { // Linux doubles the size that is set
		t.Errorf("%d bytes, %v, %v", size, fault, err)
	}
	ts.dial(t).do("PING", "+PONG\r\n")
	if n := ts.option(t, unix.SO_RCVBUF); n != 2*clientsInput {
		t.Errorf("%d bytes after the handshake", n)
	}
}
