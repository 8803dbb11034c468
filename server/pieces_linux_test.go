package server

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"

	"github.com/lockstep-io/lockstep/cluster/turns"
)

// cutSocket takes and gives only a few bytes at a time. Each byte of plan is the number of bytes for one call.
type cutSocket struct {
	in, out []byte
	plan    []byte
	at      int
	room    bool // reads and writes are whole, whatever the plan says
}

func (p *cutSocket) next() int {
	if p.room || len(p.plan) == 0 {
		return 1 << 20
	}
	n := int(p.plan[p.at%len(p.plan)])
	p.at++
	return n
}

func (p *cutSocket) Read(b []byte) (int, error) {
	n := copy(b[:min(len(b), p.next())], p.in)
	p.in = p.in[n:]
	return n, nil
}

func (p *cutSocket) tryWrite(b []byte) (int, error) {
	n := min(len(b), p.next())
	p.out = append(p.out, b[:n]...)
	return n, nil
}

func (p *cutSocket) drained() bool { return len(p.in) == 0 }

// shaken returns the two ends of a connection after the TLS handshake. The server's end uses a cutSocket.
func shaken(t testing.TB, kept *Certificates, client *tls.Config) (*tlsConn, *cutSocket, *tls.Conn, *memConn) {
	t.Helper()
	near, far := net.Pipe()
	w := &wire{Conn: &turns.Conn{Conn: far}}
	w.tls = tls.Server(w, kept.Config())
	mem := &memConn{Conn: near}
	c := tls.Client(mem, client)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := w.tls.Handshake(); err != nil {
			t.Error(err)
		}
	})
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	mem.shaken = true
	socket := new(cutSocket)
	sc := &tlsConn{raw: socket, tls: w.tls, wire: w, more: true}
	w.Conn.Conn = under{c: sc}
	return sc, socket, c, mem
}

// memConn is the client's socket: a pipe during the handshake, and two buffers after it.
type memConn struct {
	net.Conn
	shaken bool
	in     bytes.Buffer
	out    []byte
}

func (m *memConn) Read(p []byte) (int, error) {
	if m.shaken {
		return m.in.Read(p)
	}
	return m.Conn.Read(p)
}

func (m *memConn) Write(p []byte) (int, error) {
	if m.shaken {
		m.out = append(m.out, p...)
		return len(p), nil
	}
	return m.Conn.Write(p)
}

// echo plays a loop that sends back what it gets. Each write begins with the rest of the write before.
func echo(t testing.TB, sc *tlsConn, socket *cutSocket, c *tls.Conn, mem *memConn, messages [][]byte) []byte {
	t.Helper()
	for _, m := range messages {
		if _, err := c.Write(m); err != nil {
			t.Fatal(err)
		}
	}
	socket.in, mem.out = mem.out, nil
	var pending []byte
	buf := make([]byte, 2048)
	for idle := 0; idle < 1000; idle++ {
		n, err := sc.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		pending = append(pending, buf[:n]...)
		wrote, err := sc.tryWrite(pending)
		if err != nil {
			t.Fatal(err)
		}
		pending = pending[wrote:]
		if n > 0 || wrote > 0 {
			idle = 0
		}
		if len(sc.sealed) > maxSealed+(32<<10) {
			t.Fatalf("%d bytes of ciphertext wait", len(sc.sealed))
		}
		socket.room = idle > 500
	}
	if len(pending) > 0 {
		t.Fatalf("%d bytes are left", len(pending))
	}
	mem.in.Write(socket.out)
	socket.out = nil
	got, err := io.ReadAll(c)
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return got
}

// FuzzPiecesOfTLS: the client receives the same data, in whatever pieces the ciphertext comes and goes.
func FuzzPiecesOfTLS(f *testing.F) {
	f.Add([]byte{1}, []byte("hello"), uint8(0))
	f.Add([]byte{7, 0, 3}, bytes.Repeat([]byte("x"), 400), uint8(1))
	f.Add([]byte{0, 255, 1, 0, 0, 90}, []byte("a\x00b\x00\x00c"), uint8(3))
	kept, client := testCertificates(f)
	f.Fuzz(func(t *testing.T, plan, text []byte, kind uint8) {
		version := client.Clone()
		if kind&1 == 0 {
			version.MaxVersion = tls.VersionTLS12
		}
		if bytes.Count(plan, []byte{0}) == len(plan) {
			plan = nil // TestFloodOfKeyUpdates tests a socket that never has room
		}
		sc, socket, c, mem := shaken(t, kept, version)
		socket.plan = plan
		messages := bytes.Split(text, []byte{0})
		if kind&2 != 0 {
			// This message is larger than what is encrypted at once.
			messages = append(messages, bytes.Repeat(append(text, '.'), (3*sealAtOnce)/(len(text)+1)))
		}
		want := bytes.Join(messages, nil)
		if got := echo(t, sc, socket, c, mem, messages); !bytes.Equal(got, want) {
			t.Errorf("got %d bytes, want %d", len(got), len(want))
		}
	})
}

// TestPiecesOfTLS plays conversations like those of the fuzz target, in random pieces.
func TestPiecesOfTLS(t *testing.T) {
	kept, client := testCertificates(t)
	r := rand.New(rand.NewPCG(1, 2))
	for range 30 {
		sc, socket, c, mem := shaken(t, kept, client)
		socket.plan = make([]byte, 1+r.IntN(40))
		for i := range socket.plan {
			socket.plan[i] = byte(r.IntN(256) * r.IntN(2))
		}
		socket.plan[0] = 1
		text := bytes.Repeat([]byte("0123456789"), r.IntN(20_000))
		if got := echo(t, sc, socket, c, mem, [][]byte{text}); !bytes.Equal(got, text) {
			t.Errorf("got %d bytes, want %d", len(got), len(text))
		}
	}
}

// TestFloodOfKeyUpdates: a client asks for new keys again and again, and reads no answer. The server cuts it off before the answers
// fill memory.
func TestFloodOfKeyUpdates(t *testing.T) {
	kept, client := testCertificates(t)
	sc, socket, c, mem := shaken(t, kept, client)
	socket.plan = []byte{0, 255} // reads have input, writes have no room
	sc.raw = deaf{socket}
	buf := make([]byte, 2048)
	for i := range 100_000 {
		// crypto/tls cannot make a client update its keys. So the test writes 27 bytes of ciphertext, as if the server answered a key
		// update.
		if _, err := (under{c: sc}).Write(make([]byte, 27)); err != nil {
			if i*27 < sealAtOnce {
				t.Errorf("after %d", i)
			}
			if held := (&session{out: &outbox{}, conn: &guard{Conn: sc}}).memory(); held < int64(i*27) {
				t.Errorf("%d bytes count of %d that wait", held, i*27)
			}
			return
		}
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		socket.in, mem.out = append(socket.in, mem.out...), nil
		if _, err := sc.Read(buf); err != nil {
			t.Fatal(err)
		}
	}
	t.Error("no end")
}

// deaf is a socket that takes no output.
type deaf struct{ *cutSocket }

func (deaf) tryWrite([]byte) (int, error) { return 0, nil }
func (d deaf) Read(b []byte) (int, error) {
	n := copy(b, d.in)
	d.in = d.in[n:]
	return n, nil
}
