package peerport

import (
	"fmt"
	"net"
	"os"
	"testing"
	"time"
)

func loopback(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

// Callers come out of the kernel's queue in order, with their addresses. A caller that has reset its connection does no harm.
func TestTakeWaiting(t *testing.T) {
	ln := loopback(t)
	limitQueue(ln, 16)
	var far []net.Conn
	for range 4 {
		conn, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		far = append(far, conn)
	}
	_ = far[3].(*net.TCPConn).SetLinger(0)
	far[3].Close()
	var got []net.Conn
	take := func(conn net.Conn) { got = append(got, conn) }
	for deadline := time.Now().Add(10 * time.Second); len(got) < 2 && time.Now().Before(deadline); {
		if !takeWaiting(ln, 2-len(got), take) {
			time.Sleep(time.Millisecond)
		}
	}
	for deadline := time.Now().Add(10 * time.Second); len(got) < 4 && time.Now().Before(deadline); {
		if takeWaiting(ln, 100, take) {
			t.Fatal("it says that there are more")
		}
	}
	if len(got) < 3 {
		t.Fatalf("took %d", len(got))
	}
	for i, conn := range got {
		if from, want := conn.RemoteAddr().String(), far[i].LocalAddr().String(); from != want {
			t.Errorf("number %d comes from %s, want %s", i, from, want)
		}
	}
	conn, err := got[0].(*unopened).open()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, ok := conn.(*quietConn); !ok {
		t.Errorf("opened a %T", conn)
	}
	said := make([]byte, 5)
	_, _ = far[0].Write([]byte("hello"))
	if _, err := conn.Read(said); err != nil || string(said) != "hello" || conn.RemoteAddr().String() != far[0].LocalAddr().String() {
		t.Errorf("%q, %v, from %v", said, err, conn.RemoteAddr())
	}
	if err := got[1].Close(); err != nil {
		t.Error(err)
	}
	_ = far[1].SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := far[1].Read(said); err == nil || os.IsTimeout(err) {
		t.Errorf("the one that was closed: %v", err)
	}
	if err := got[2].Close(); err != nil {
		t.Error(err)
	}
	if len(got) > 3 {
		if conn, err := got[3].(*unopened).open(); err == nil {
			conn.Close()
		}
	}
	ln.Close()
	if takeWaiting(ln, 1, take) {
		t.Error("a closed listener has more")
	}
}

// The kernel's queue of a peer port is short: a caller that would wait behind many is not let in.
func TestQueueIsShort(t *testing.T) {
	ln := loopback(t)
	limitQueue(ln, 4)
	in := 0
	for range 8 {
		d := net.Dialer{Timeout: 100 * time.Millisecond}
		if conn, err := d.Dial("tcp", ln.Addr().String()); err == nil {
			defer conn.Close()
			in++
		}
	}
	if in < 4 || in > 5 {
		t.Errorf("%d callers got into the queue", in)
	}
}

// A port over TCP admits many callers that come at once, and cuts off those above the limit.
func TestManyCallersOverTCP(t *testing.T) {
	c := portOf(t, TLS{})
	ln := loopback(t)
	p := New(ln, "host:2", c.as(TLS{}), nil)
	defer p.Close()
	var calls []net.Conn
	for i := range 2 * maxStrangers {
		conn, err := net.DialTimeout("tcp", ln.Addr().String(), 10*time.Second)
		if err != nil {
			t.Fatal(fmt.Errorf("call %d: %w", i, err))
		}
		defer conn.Close()
		calls = append(calls, conn)
	}
	for i, conn := range calls[:maxStrangers] {
		_ = conn.SetReadDeadline(time.Now().Add(4 * time.Second))
		if _, err := conn.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
			t.Fatalf("call %d is not cut off: %v", i, err)
		}
	}
	p.arrivals.mu.Lock()
	defer p.arrivals.mu.Unlock()
	if n := len(p.arrivals.unproven); n != maxStrangers {
		t.Errorf("%d strangers are left", n)
	}
}
