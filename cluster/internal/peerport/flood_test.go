package peerport

import (
	"context"
	"crypto"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/clustertest"
)

// slowKey signs as an RSA key of 4096 bits does, on a machine with one processor.
type slowKey struct {
	crypto.Signer
	processor chan struct{}
	signed    *atomic.Int64
}

const signature = 8 * time.Millisecond

func (k slowKey) Sign(rand io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	k.processor <- struct{}{}
	defer func() { <-k.processor }()
	time.Sleep(signature)
	k.signed.Add(1)
	return k.Signer.Sign(rand, digest, opts)
}

// flooded is a peer port that counts its signatures, each of which takes time.
type flooded struct {
	*callers
	signed atomic.Int64
	wg     sync.WaitGroup
}

func floodedPort(t *testing.T, with TLS) *flooded {
	f := &flooded{callers: portOf(t, with)}
	keys := *f.port.dialer.gate.keys.Load()
	keys.cert.PrivateKey = slowKey{keys.cert.PrivateKey.(crypto.Signer), make(chan struct{}, 1), &f.signed}
	f.port.dialer.gate.keys.Store(&keys)
	return f
}

// call makes a connection from an address.
func (f *flooded) call(addr string) net.Conn {
	near, far := clustertest.Pair(clustertest.Addr(addr), "host:1", 0)
	if a := f.port.arrivals.admit(far); a != nil {
		go f.port.sort(a)
	}
	return near
}

// flood sends 300 ClientHellos a second and reads nothing.
func (f *flooded) flood(ctx context.Context, addr func(i int) string) {
	for i := 0; ctx.Err() == nil; i++ {
		near := f.call(addr(i))
		f.wg.Go(func() {
			defer near.Close()
			_ = tls.Client(helloOnly{near}, &tls.Config{InsecureSkipVerify: true}).Handshake()
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Second):
			}
		})
		time.Sleep(time.Second / 300)
	}
}

// helloOnly is a client that reads nothing.
type helloOnly struct{ net.Conn }

func (helloOnly) Read([]byte) (int, error) { return 0, io.EOF }

// A flood of ClientHellos takes at most half of a processor. A peer still gets in, after some attempts if it looks like the strangers.
func TestFloodOfHandshakesAtThePeerPort(t *testing.T) {
	clustertest.Slow(t)
	one := func(int) string { return "198.51.100.7:1" }
	each := func(i int) string { return fmt.Sprintf("198.51.%d.%d:1", i>>8&255, i&255) }
	for name, tc := range map[string]struct {
		from  func(int) string
		seen  bool // the peer has been there before
		peer  string
		tries int
		least int // how many of the attempts must succeed
	}{
		"from one address":                    {one, false, "10.0.0.1:1", 20, 20},
		"from everywhere":                     {each, true, "10.0.0.1:1", 20, 20},
		"from the peer's address":             {one, true, "198.51.100.7:9", 100, 2},
		"from the peer's, which is not known": {one, false, "198.51.100.7:9", 100, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				with := peerOf(clustertest.NewCA(t, "peers"), "host")
				f := floodedPort(t, with)
				peer := f.as(with)
				enter := func() bool {
					conn, err := peer.gate.call(f.call(tc.peer), "host:1", ProtoForward, DialTimeout)
					if err == nil {
						conn.Close()
					}
					return err == nil
				}
				if tc.seen && !enter() {
					t.Fatal("a peer does not get in when nobody else calls")
				}
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				f.wg.Go(func() { f.flood(ctx, tc.from) })
				time.Sleep(4 * time.Second)
				began, before, in := time.Now(), f.signed.Load(), 0
				for range tc.tries {
					if enter() {
						in++
					}
					time.Sleep(50 * time.Millisecond)
				}
				share := float64(time.Duration(f.signed.Load()-before)*signature) / float64(time.Since(began))
				t.Logf("%d of %d got in, %.0f %% of a processor", in, tc.tries, 100*share)
				if in < tc.least {
					t.Errorf("%d of %d attempts got in, want %d", in, tc.tries, tc.least)
				}
				if share > 0.55 {
					t.Errorf("signatures took %.0f %% of a processor", 100*share)
				}
				stop()
				f.wg.Wait()
				time.Sleep(10 * time.Second)
				if !f.port.dialer.gate.turns.Idle(1) {
					t.Error("turns are left over")
				}
			})
		})
	}
}
