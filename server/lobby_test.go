package server

import (
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/cluster/turns"
)

// TestLobby: an honest client gets in although many clients of its address send a ClientHello, nothing more, and connect again whenever
// they are cut off.
func TestLobby(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, dial, client := floodedHandshakes(t)
		enter := func(from string) (time.Duration, error) {
			near := dial(from)
			defer near.Close()
			start := time.Now()
			err := tls.Client(slowConn{near}, client).Handshake()
			return time.Since(start), err
		}
		const flooded, other = "198.51.100.7", "192.0.2.1"
		calm, err := enter(other)
		if err != nil {
			t.Fatal(err)
		}
		var flood, honest sync.WaitGroup
		var over atomic.Bool
		for range 440 {
			flood.Go(func() {
				for !over.Load() {
					near := dial(flooded)
					go func() { _ = tls.Client(hello{near}, client).Handshake() }()
					_, _ = io.Copy(io.Discard, near)
					_ = near.Close()
					time.Sleep(time.Millisecond)
				}
			})
		}
		time.Sleep(3 * time.Second)
		for range 30 {
			honest.Go(func() {
				if took, err := enter(flooded); err != nil || took > 2*handshakeTime {
					t.Errorf("from the same address: %v after %v", err, took)
				}
			})
			time.Sleep(100 * time.Millisecond)
			if took, err := enter(other); err != nil || took > calm+4*signature {
				t.Errorf("from another address: %v after %v, %v without a flood", err, took, calm)
			}
		}
		honest.Wait()
		over.Store(true)
		h.stop()
		flood.Wait()
		time.Sleep(time.Second)
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.count != 0 || h.lobby.count != 0 || len(h.lobby.callers) != 0 || h.lobby.looks != nil {
			t.Errorf("%d handshakes and %d callers are left", h.count, h.lobby.count)
		}
	})
}

// TestNewcomersComeInBesideAFullLobby: honest clients get in although their address opens 2,000 connections a second without a whole
// ClientHello.
func TestNewcomersComeInBesideAFullLobby(t *testing.T) {
	for _, sent := range []string{"", "\x16\x03\x01\x40\x00\x01"} {
		synctest.Test(t, func(t *testing.T) {
			h, dial, client := floodedHandshakes(t)
			const flooded, pause = "198.51.100.7", time.Second / 2000
			var clients sync.WaitGroup
			for i := range 6000 {
				near := dial(flooded)
				clients.Go(func() {
					_, _ = near.Write([]byte(sent))
					_, _ = io.Copy(io.Discard, near)
					_ = near.Close()
				})
				time.Sleep(pause)
				if i < 2000 || i > 5000 || i%100 != 0 {
					continue
				}
				clients.Go(func() {
					near := dial(flooded)
					defer near.Close()
					if err := tls.Client(slowConn{near}, client).Handshake(); err != nil {
						t.Errorf("beside clients that send %q: %v", sent, err)
					}
				})
			}
			clients.Wait()
			h.stop()
			time.Sleep(time.Second)
		})
	}
}

// lateConn is the connection of a client that needs some time for its part of the handshake after the ClientHello.
type lateConn struct {
	net.Conn
	late time.Duration
	said bool
}

func (c *lateConn) Write(p []byte) (int, error) {
	if c.said {
		time.Sleep(c.late)
	}
	c.said = true
	return c.Conn.Write(p)
}

// TestSlowClientsOfOneAddress: slow clients of one address, twice as many as it may have handshakes in progress, all get in if nobody else
// wants the places.
func TestSlowClientsOfOneAddress(t *testing.T) {
	for _, most := range []int{maxHandshakes, 200} {
		synctest.Test(t, func(t *testing.T) {
			h, dial, client := floodedHandshakes(t)
			h.most = most
			var clients sync.WaitGroup
			var refused atomic.Int32
			for range 2 * h.fromOne() {
				clients.Go(func() {
					near := dial("192.0.2.1")
					defer near.Close()
					if tls.Client(&lateConn{Conn: near, late: time.Second}, client).Handshake() != nil {
						refused.Add(1)
					}
					_, _ = io.Copy(io.Discard, near)
				})
			}
			clients.Wait()
			if n := refused.Load(); n > 0 {
				t.Errorf("%d of %d clients were cut off", n, 2*h.fromOne())
			}
			h.stop()
			time.Sleep(time.Second)
		})
	}
}

// These are the bounds of handshakes and of the lobby with the default of Config.MaxHandshakes.
const (
	maxFromOne  = maxHandshakes / 4
	maxLobby    = lobbyShare * maxHandshakes
	maxLobbyOne = lobbyOne * maxFromOne
)

// TestLobbyIsBounded: the lobby has maxLobbyOne places for one address and maxLobby for all. A caller waits in it no longer
// than a handshake may take.
func TestLobbyIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, dial, _ := floodedHandshakes(t)
		count := func(from string) (one, all, open int, refused int64) {
			h.mu.Lock()
			defer h.mu.Unlock()
			return len(h.lobby.callers[netip.MustParseAddr(from)]), h.lobby.count, h.count, h.failed
		}
		var conns []net.Conn
		froms := []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"}
		for i, from := range froms {
			for range maxFromOne + maxLobbyOne + 10 {
				conns = append(conns, dial(from))
				synctest.Wait()
			}
			if one, all, open, _ := count(from); one != min(maxLobbyOne, maxLobby-i*maxLobbyOne) || all != min((i+1)*maxLobbyOne, maxLobby) || open != (i+1)*maxFromOne {
				t.Errorf("%d callers of %s wait, %d of all, beside %d handshakes", one, from, all, open)
			}
		}
		if _, _, _, refused := count(froms[0]); refused != int64(len(conns)-maxLobby-3*maxFromOne) {
			t.Errorf("%d of %d were refused", refused, len(conns))
		}
		time.Sleep(3 * handshakeTime)
		if _, all, open, refused := count(froms[0]); all+open != 0 || refused != int64(len(conns)) {
			t.Errorf("%d handshakes and %d callers are left, %d were refused", open, all, refused)
		}
		for _, c := range conns {
			_ = c.Close()
		}
		h.stop()
	})
}

// TestLobbyIsShared: if many addresses fill the lobby, each of them has as many places as any other, whichever came first.
func TestLobbyIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, dial, client := floodedHandshakes(t)
		h.turns = turns.New(0, false) // every handshake waits for the server
		froms := []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"}
		for _, from := range froms {
			for range maxFromOne + maxLobbyOne {
				near := dial(from)
				defer near.Close()
				go func() { _ = tls.Client(hello{near}, client).Handshake() }()
				synctest.Wait()
			}
		}
		h.mu.Lock()
		for _, from := range froms {
			if n := len(h.lobby.callers[netip.MustParseAddr(from)]); n < maxLobby/len(froms) {
				t.Errorf("%d callers of %s wait", n, from)
			}
		}
		if h.lobby.count != maxLobby {
			t.Errorf("%d callers wait", h.lobby.count)
		}
		h.mu.Unlock()
		h.stop()
	})
}
