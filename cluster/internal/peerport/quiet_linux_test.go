package peerport

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/nettest"
	"golang.org/x/sys/unix"
)

// tcpPair returns both ends of a connection as nodes have them.
func tcpPair(t *testing.T) (near, far net.Conn) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	dialed, err := DialTCP(ln.Addr().String(), ProtoAppend, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return quiet(dialed), quiet(accepted)
}

// A quietConn is a net.Conn in everything that the net package asks of one.
func TestQuietConnIsAConnection(t *testing.T) {
	nettest.TestConn(t, func() (near, far net.Conn, stop func(), err error) {
		near, far = tcpPair(t)
		return near, far, func() { near.Close(); far.Close() }, nil
	})
}

// TestSilenceIsNoticed: the kernel ends a connection between peers, at either end, when the other end has been silent for some seconds.
func TestSilenceIsNoticed(t *testing.T) {
	near, far := tcpPair(t)
	defer near.Close()
	defer far.Close()
	for name, c := range map[string]net.Conn{"the caller's end": near, "the called end": far} {
		var got int
		var fault error
		err := c.(*quietConn).raw.Control(func(fd uintptr) { got, fault = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT) })
		if err := errors.Join(err, fault); err != nil || got != int(silence.Milliseconds()) {
			t.Errorf("%s: after %d ms, want %v; %v", name, got, silence, err)
		}
	}
}

// The errors of a quietConn are those of the net package.
func TestQuietConnErrors(t *testing.T) {
	near, far := tcpPair(t)
	defer near.Close()
	if _, ok := near.(*quietConn); !ok {
		t.Fatalf("a %T", near)
	}
	var one [1]byte
	if err := near.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := near.Read(one[:]); !errors.Is(err, os.ErrDeadlineExceeded) || Broken(err) {
		t.Errorf("late: %v", err)
	}
	if err := near.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if err := far.(*quietConn).Conn.(*net.TCPConn).SetLinger(0); err != nil {
		t.Fatal(err)
	}
	far.Close() // tells near that the connection is reset
	if _, err := near.Read(one[:]); !errors.Is(err, syscall.ECONNRESET) || !Broken(err) {
		t.Errorf("reset: %v", err)
	}
	if n, err := near.Write(one[:]); n != 0 || !errors.Is(err, syscall.EPIPE) || !Broken(err) {
		t.Errorf("written to what was reset: %d, %v", n, err)
	}
	if _, err := far.Read(one[:]); !errors.Is(err, net.ErrClosed) || !Broken(err) {
		t.Errorf("closed: %v", err)
	}
	if _, err := far.Write(one[:]); !errors.Is(err, net.ErrClosed) || !Broken(err) {
		t.Errorf("closed: %v", err)
	}
}
