package server

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

func testUring(t *testing.T) *uring {
	u, err := newUring()
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(u.close)
	return u
}

// socketPair is two sockets that are connected; neither waits.
func socketPair(t *testing.T) (here, there int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fds[0]) })
	t.Cleanup(func() { _ = unix.Close(fds[1]) })
	return fds[0], fds[1]
}

// TestUring sends to as many sockets as one call can, more often than the queues have room
// for.
func TestUring(t *testing.T) {
	u := testUring(t)
	var from, to [uringEntries]int
	for i := range from {
		from[i], to[i] = socketPair(t)
	}
	for round := range 50 {
		n := 1 + (round*37)%uringEntries
		for i := range n {
			u.add(from[i], fmt.Append(nil, "round ", round, " to ", i))
		}
		if err := u.run(); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			want := fmt.Append(nil, "round ", round, " to ", i)
			if p, sent, err := u.result(i); !bytes.Equal(p, want) || sent != len(want) || err != nil {
				t.Errorf("%q: %d of %q sent, %v", want, sent, p, err)
			}
			got := make([]byte, 100)
			if k, err := unix.Read(to[i], got); err != nil || !bytes.Equal(got[:k], want) {
				t.Errorf("%q has arrived, %v; want %q", got[:max(k, 0)], err, want)
			}
		}
	}
}

// TestUringFaults: what is wrong with one socket is not another one's, and nothing waits for
// room.
func TestUringFaults(t *testing.T) {
	u := testUring(t)
	first, _ := socketPair(t)
	gone, peer := socketPair(t)
	if err := unix.Shutdown(peer, unix.SHUT_RDWR); err != nil {
		t.Fatal(err)
	}
	full, _ := socketPair(t)
	last, _ := socketPair(t)
	large := make([]byte, 8<<20)
	for round := range 2 {
		for _, to := range []struct {
			fd int
			p  []byte
		}{{first, []byte("a")}, {gone, []byte("b")}, {-1, []byte("c")}, {full, large}, {last, []byte("d")}} {
			u.add(to.fd, to.p)
		}
		if err := u.run(); err != nil {
			t.Fatal(err)
		}
		for i, want := range []error{nil, unix.EPIPE, unix.EBADF, nil, nil} {
			p, sent, err := u.result(i)
			if !errors.Is(err, want) || err == nil && i != 3 && sent != len(p) {
				t.Errorf("send %d: %d of %d bytes, %v; want %v", i, sent, len(p), err, want)
			}
			if i == 3 && (round == 0 && (sent == 0 || sent == len(p)) || round == 1 && sent != 0) {
				t.Errorf("round %d: %d of %d bytes to a socket that is full after some", round, sent, len(p))
			}
		}
	}
}

// TestOutboxLends: what was lent and not written goes before what has come since, and nobody
// else writes meanwhile.
func TestOutboxLends(t *testing.T) {
	var sent, cutOff atomic.Int64
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	o := newOutbox(here, &sent, &cutOff)
	add := func(s string) { o.add(func(b []byte) []byte { return append(b, s...) }) }
	if out := o.lend(); out != nil {
		t.Errorf("%q is lent of nothing", out)
	}
	for range 2 {
		add("abcdef")
		out := o.lend()
		add("gh")
		if again := o.lend(); string(out) != "abcdef" || again != nil || o.flushNow() || o.size() != 8 {
			t.Fatalf("%q and %q are lent, of %d bytes", out, again, o.size())
		}
		o.settle(out, 2, nil)
		if out = o.lend(); string(out) != "cdefgh" {
			t.Fatalf("%q is lent after that", out)
		}
		o.settle(out, 6, nil)
		if o.size() != 0 || !o.flushNow() {
			t.Errorf("%d bytes are left", o.size())
		}
	}
	if sent.Load() != 16 {
		t.Errorf("%d bytes were sent", sent.Load())
	}
	add("ij")
	o.settle(o.lend(), 0, unix.EPIPE)
	if add("kl"); !o.isOver() || o.lend() != nil {
		t.Error("the outbox of a client that is gone")
	}
}

// TestUringGivenUp: a loop whose io_uring fails sends without it.
func TestUringGivenUp(t *testing.T) {
	u := testUring(t)
	spoilt := *u
	spoilt.fd = -1 // enter fails
	here, _ := socketPair(t)
	for range 2 {
		spoilt.add(here, []byte("a"))
		if err := spoilt.run(); !errors.Is(err, unix.EBADF) {
			t.Fatal(err)
		}
		if p, sent, err := spoilt.result(0); string(p) != "a" || sent != 0 || err != nil {
			t.Errorf("%d of %q sent, %v", sent, p, err)
		}
	}
}
