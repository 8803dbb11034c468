package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func testUring(t *testing.T) *uring {
	u, err := newUring()
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.ENOSYS), errors.Is(err, errOldKernel):
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
	return u
}

// socketPair returns two connected sockets. Their system calls do not wait.
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

// TestUring sends to as many sockets as one call can. It does so more often than the queues have entries.
func TestUring(t *testing.T) {
	u := testUring(t)
	defer u.close()
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
			if p, sent := u.result(i); !bytes.Equal(p, want) || sent != len(want) {
				t.Errorf("%q: %d bytes of %q were sent", want, sent, p)
			}
			got := make([]byte, 100)
			if k, err := unix.Read(to[i], got); err != nil || !bytes.Equal(got[:k], want) {
				t.Errorf("%q has arrived, %v; want %q", got[:max(k, 0)], err, want)
			}
		}
	}
}

// TestUringFaults: an error of one socket does not affect another, and no send waits for
// room.
func TestUringFaults(t *testing.T) {
	u := testUring(t)
	defer u.close()
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
		for i, want := range []string{"a", "", "", "", "d"} {
			p, sent := u.result(i)
			some := i == 3 && round == 0 // there is room for only a part
			if !some && string(p[:sent]) != want || some && (sent == 0 || sent == len(p)) {
				t.Errorf("round %d, send %d: %d of %d bytes", round, i, sent, len(p))
			}
		}
	}
}

// TestOutboxLends: if the caller has not written all of the lent output, the rest goes before later output. While output is lent,
// nobody else writes.
func TestOutboxLends(t *testing.T) {
	var sent, cutOff atomic.Int64
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	o := newOutbox(here, &sent, &cutOff)
	add := func(s string) { o.add(0, func(b []byte) []byte { return append(b, s...) }) }
	if out := o.lend(time.Time{}); out != nil {
		t.Errorf("%q is lent of nothing", out)
	}
	for range 2 {
		add("abcdef")
		out := o.lend(time.Time{})
		add("gh")
		if again := o.lend(time.Time{}); string(out) != "abcdef" || again != nil || o.flushNow(time.Time{}) || o.size() != 8 {
			t.Fatalf("%q and %q are lent, of %d bytes", out, again, o.size())
		}
		o.settle(out, 2)
		if out = o.lend(time.Time{}); string(out) != "cdefgh" {
			t.Fatalf("%q is lent after that", out)
		}
		o.settle(out, 6)
		if o.size() != 0 || !o.flushNow(time.Time{}) {
			t.Errorf("%d bytes are left", o.size())
		}
	}
	if sent.Load() != 16 {
		t.Errorf("%d bytes were sent", sent.Load())
	}
	add("ij")
	out := o.lend(time.Time{})
	flushed := make(chan struct{})
	go func() {
		o.flush() // waits for what is lent, and sends the rest
		close(flushed)
	}()
	o.settle(out, 1)
	got := make([]byte, 1)
	if _, err := io.ReadFull(there, got); err != nil || got[0] != 'j' {
		t.Errorf("%q, %v instead of the rest", got, err)
	}
	<-flushed
	add(strings.Repeat("k", lendLimit+1))
	if out := o.lend(time.Time{}); out != nil {
		t.Errorf("%d bytes are lent", len(out))
	}
	go func() { _, _ = io.Copy(io.Discard, there) }()
	o.flush()
	add("l")
	out = o.lend(time.Time{})
	o.abort()
	o.settle(out, 0)
	if add("m"); !o.isOver() || o.lend(time.Time{}) != nil || o.size() != 0 {
		t.Error("the outbox of a client that was cut off while it had lent")
	}
}

// TestUringGivenUp: a loop whose io_uring fails goes on without it, and no output is lost.
func TestUringGivenUp(t *testing.T) {
	u := testUring(t)
	if err := unix.Close(u.fd); err != nil {
		t.Fatal(err)
	}
	u.fd = -1
	var sent, cutOff atomic.Int64
	srv := &Server{cfg: Default()}
	l := &loop{srv: srv, uring: u}
	var conns []*loopConn
	for i := range sendTogether {
		c := &loopConn{s: &session{out: newOutbox(nil, &sent, &cutOff)}}
		c.fd, _ = socketPair(t)
		c.s.out.add(0, func(b []byte) []byte { return fmt.Append(b, "to ", i) })
		conns = append(conns, c)
	}
	l.sendMany(conns)
	if l.uring != nil {
		t.Error("it is not given up")
	}
	for i, c := range conns {
		if want, p := fmt.Sprint("to ", i), c.s.out.lend(time.Time{}); string(p) != want {
			t.Errorf("%q is left, want %q", p, want)
		}
	}
}
