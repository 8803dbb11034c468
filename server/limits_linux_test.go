package server

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// TestKeepAlive: a socket gets the keep-alive times of tcp-keepalive when the server accepts it.
func TestKeepAlive(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		ts := newTestServer(t, withLoops(loops))
		op := ts.dial(t)
		for _, c := range []struct {
			seconds          string
			on, idle, probes int
		}{{"300", 1, 300, 3}, {"60", 1, 60, 3}, {"0", 0, 0, 0}} {
			op.do("CONFIG SET tcp-keepalive "+c.seconds, "+OK\r\n")
			id := ts.dial(t).ask("CLIENT", "ID").Text
			s := ts.session(number(id))
			option := func(level, name int) (value int) {
				t.Helper()
				get := func(fd uintptr) {
					var err error
					if value, err = unix.GetsockoptInt(int(fd), level, name); err != nil {
						t.Error(err)
					}
				}
				switch conn := s.conn.Conn.(type) {
				case *fdConn:
					conn.mu.Lock()
					defer conn.mu.Unlock()
					get(uintptr(conn.fd))
				case *net.TCPConn:
					raw, err := conn.SyscallConn()
					if err == nil {
						err = raw.Control(get)
					}
					if err != nil {
						t.Error(err)
					}
				default:
					t.Fatalf("a connection of type %T", conn)
				}
				return value
			}
			if on := option(unix.SOL_SOCKET, unix.SO_KEEPALIVE); on != c.on {
				t.Errorf("tcp-keepalive %s: on: %d", c.seconds, on)
			}
			if c.on == 0 {
				continue
			}
			if idle, probes := option(unix.IPPROTO_TCP, unix.TCP_KEEPIDLE), option(unix.IPPROTO_TCP, unix.TCP_KEEPCNT); idle != c.idle || probes != c.probes {
				t.Errorf("tcp-keepalive %s: after %d s, %d times", c.seconds, idle, probes)
			}
		}
	})
}
