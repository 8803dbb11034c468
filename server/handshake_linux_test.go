package server

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/cluster/turns"
)

// TestHandshakeAtItsLimit: the late end of the time limit does not touch a connection whose handshake has succeeded.
func TestHandshakeAtItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept, client := testCertificates(t)
		near, far := net.Pipe()
		w := &wire{}
		ctx, end := context.WithCancelCause(t.Context())
		w.ctx, w.end = ctx, func(why error) {
			time.Sleep(2 * time.Millisecond) // as if no processor were free for the timer
			end(why)
		}
		w.Conn = turns.New(1, false).Conn(ctx, far, nil, netip.Addr{}, false, time.Now)
		w.tls = tls.Server(w, kept.Config())
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() {
			time.Sleep(handshakeTime + time.Millisecond)
			c := tls.Client(near, client)
			_ = c.Handshake()
			_, _ = io.Copy(io.Discard, c)
		})
		if err := w.shake(); err != nil {
			t.Fatal(err)
		}
		w.Conn.Conn = under{} // as for a connection that a session has taken over
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		_ = far.Close()
	})
}
