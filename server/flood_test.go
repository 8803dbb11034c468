package server

import (
	"crypto"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/cluster/turns"
)

// slowKey is a key whose signature takes a while, as an RSA key's does.
type slowKey struct{ crypto.Signer }

const signature = 7 * time.Millisecond

func (k slowKey) Sign(rand io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	time.Sleep(signature)
	return k.Signer.Sign(rand, digest, opts)
}

// fromConn is a connection from an address.
type fromConn struct {
	net.Conn
	from string
}

func (c fromConn) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(c.from), 1))
}

// floodedHandshakes returns the TLS side of a slowly signing server, and a function that connects a client. The caller must be in a
// synctest bubble.
func floodedHandshakes(t *testing.T) (*handshakes, func(from string) net.Conn, *tls.Config) {
	kept, client := testCertificates(t)
	config := kept.Config().Clone()
	pair := config.Certificates[0]
	pair.PrivateKey = slowKey{pair.PrivateKey.(crypto.Signer)}
	config.Certificates = []tls.Certificate{pair}
	h := newHandshakes(kept, slog.New(slog.DiscardHandler), maxHandshakes)
	h.turns = turns.New(1, false)
	return h, func(from string) net.Conn {
		near, far := net.Pipe()
		h.begin(fromConn{far, from}, config, time.Now, func(w *wire) { _ = w.Close() })
		return near
	}, client
}

// TestHandshakeFlood: while one address floods the node with ClientHellos, clients of other addresses wait little, and others of that
// address get in later.
func TestHandshakeFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, dial, client := floodedHandshakes(t)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		enter := func(from string) error {
			near := dial(from)
			defer near.Close()
			return tls.Client(slowConn{near}, client).Handshake()
		}
		start := time.Now()
		if err := enter("192.0.2.1"); err != nil {
			t.Fatal(err)
		}
		calm := time.Since(start)
		for range 300 {
			wg.Go(func() {
				for {
					near := dial("198.51.100.7")
					go func() { _ = tls.Client(hello{near}, client).Handshake() }()
					select {
					case <-time.After(time.Second):
					case <-stop:
						return
					}
					defer near.Close()
				}
			})
			time.Sleep(time.Second / 300)
		}
		time.Sleep(4 * time.Second)
		for i := range 20 {
			start := time.Now()
			err := enter("192.0.2.1")
			if took := time.Since(start); err != nil || took > calm+4*signature {
				t.Errorf("client %d from another address: %v after %v, %v without a flood", i, err, took, calm)
			}
		}
		in := 0
		var mu sync.Mutex
		var same sync.WaitGroup
		for range 50 {
			same.Go(func() {
				if enter("198.51.100.7") == nil {
					mu.Lock()
					defer mu.Unlock()
					in++
				}
			})
			time.Sleep(20 * time.Millisecond)
		}
		same.Wait()
		if in < 15 {
			t.Errorf("%d of 50 from the same address came in", in)
		}
		t.Logf("calm %v, %d of 50 from the same address came in", calm, in)
		close(stop)
		wg.Wait()
		h.stop()
		time.Sleep(time.Second) // a signature in progress is not interrupted
	})
}

// slowConn is the connection of a distant client: each write takes 20 ms.
type slowConn struct{ net.Conn }

func (c slowConn) Write(p []byte) (int, error) {
	time.Sleep(20 * time.Millisecond)
	return c.Conn.Write(p)
}

// hello is a client that sends a ClientHello and nothing more, and reads nothing.
type hello struct{ net.Conn }

func (c hello) Read([]byte) (int, error) { return 0, io.EOF }

// TestTheProcessorRests: on a machine with one processor, a flood of handshakes takes at most half of the time, and commands
// have the rest.
func TestTheProcessorRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, dial, client := floodedHandshakes(t)
		h.turns = turns.New(1, true)
		start := time.Now()
		var wg sync.WaitGroup
		const flood = 50
		for range flood {
			near := dial("198.51.100.7")
			go func() { _ = tls.Client(hello{near}, client).Handshake() }()
			wg.Go(func() { _, _ = io.ReadAll(io.LimitReader(near, 1)) })
		}
		wg.Wait()
		if took := time.Since(start); took < (2*flood-1)*signature {
			t.Errorf("%d signatures of %v took %v", flood, signature, took)
		}
		h.stop()
		time.Sleep(time.Second)
	})
}

// TestHandshakesOfManyAddresses: one address has at most a quarter of the open handshakes. The server cuts off no client of an address
// with few.
func TestHandshakesOfManyAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, dial, _ := floodedHandshakes(t)
		var conns []net.Conn
		call := func(from string, n int) {
			for range n {
				conns = append(conns, dial(from))
			}
		}
		open := func(from string) int {
			h.mu.Lock()
			defer h.mu.Unlock()
			return len(h.open[netip.MustParseAddr(from)])
		}
		call("192.0.2.1", 2)
		floods := []string{"198.51.100.7", "198.51.100.8", "198.51.100.9", "198.51.100.10", "2001:db8::"}
		for _, from := range floods[:4] {
			call(from, 2*maxHandshakes)
		}
		if n := open("198.51.100.7"); n > maxFromOne || n < maxHandshakes/4-2 {
			t.Errorf("%d of one address", n)
		}
		// These addresses belong to one IPv6 network, so they count as one address.
		for i := range 2 * maxHandshakes {
			call(netip.AddrFrom16([16]byte{0x20, 1, 13, 0xb8, 12: byte(i >> 8), 15: byte(i)}).String(), 1)
		}
		call("192.0.2.2", 3)
		synctest.Wait()
		for from, want := range map[string]int{"192.0.2.1": 2, "192.0.2.2": 3} {
			if n := open(from); n != want {
				t.Errorf("%d are left from %s, not %d", n, from, want)
			}
		}
		sum := 0
		for _, from := range floods {
			if n := open(from); n < maxHandshakes/len(floods)-2 {
				t.Errorf("%d are left from %s", n, from)
			}
			sum += open(from)
		}
		if sum != maxHandshakes-5 {
			t.Errorf("%d are left of the floods", sum)
		}
		for _, c := range conns {
			_ = c.Close()
		}
		synctest.Wait()
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.count != 0 || len(h.open) != 0 || !h.turns.Idle(1) {
			t.Errorf("%d handshakes of %d addresses are left, idle: %t", h.count, len(h.open), h.turns.Idle(1))
		}
	})
}

// endsLate is a connection whose Close waits until the test closes the channel end.
type endsLate struct {
	net.Conn
	end <-chan struct{}
}

func (c endsLate) Close() error {
	<-c.end
	return c.Conn.Close()
}

// TestCutHandshakesAreCounted: if cut handshakes end too slowly, the server waits before it takes new strangers. Otherwise file
// descriptors could run out.
func TestCutHandshakesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept, _ := testCertificates(t)
		const most, callers = 8, 100
		h := newHandshakes(kept, slog.New(slog.DiscardHandler), most)
		end := make(chan struct{})
		taken := 0
		var all sync.WaitGroup
		all.Go(func() {
			for i := range callers {
				_, far := net.Pipe()
				from := netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}).String()
				h.begin(fromConn{endsLate{far, end}, from}, kept.Config(), time.Now, func(w *wire) { _ = w.Close() })
				taken++
			}
		})
		synctest.Wait()
		if taken != most+most/2 {
			t.Errorf("%d connections are open, want %d", taken, most+most/2)
		}
		close(end)
		all.Wait()
		if h.stop(); taken != callers {
			t.Errorf("%d of %d callers were taken", taken, callers)
		}
		synctest.Wait()
		if h.count != 0 || h.ending != 0 {
			t.Errorf("%d handshakes in progress, %d end", h.count, h.ending)
		}
	})
}
