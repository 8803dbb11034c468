package server

import (
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestLobby: 440 connections of one address send a ClientHello each and wait, and are opened again as soon as they are closed. Clients
// from the same address come in all the same, and a client from another one at once.
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
		over := false // set while nobody else runs
		for range 440 {
			flood.Go(func() {
				for !over {
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
		over = true
		h.stop()
		flood.Wait()
		time.Sleep(time.Second)
		if h.count != 0 || h.lobby.count != 0 || len(h.lobby.callers) != 0 || h.lobby.looks != nil {
			t.Errorf("%d handshakes and %d callers are left", h.count, h.lobby.count)
		}
	})
}

// TestLobbyIsBounded: one address has maxLobbyOne places, and all have maxLobby. A caller of an address with few is let in in place of
// the last one of the address with most. A caller waits for as long as a handshake may take, at most.
func TestLobbyIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, dial, _ := floodedHandshakes(t)
		var conns []net.Conn
		call := func(from string, n int) {
			for range n {
				conns = append(conns, dial(from))
			}
		}
		waiting := func(from string) int {
			h.mu.Lock()
			defer h.mu.Unlock()
			return len(h.lobby.callers[netip.MustParseAddr(from)])
		}
		most := []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"}
		for _, from := range most {
			call(from, maxFromOne+maxLobbyOne+10)
		}
		sum := 0
		for _, from := range most {
			sum += waiting(from)
		}
		if waiting(most[0]) > maxLobbyOne || sum != maxLobby {
			t.Errorf("%d callers of one address wait, %d of all", waiting(most[0]), sum)
		}
		call("192.0.2.4", maxFromOne+20)
		if n := waiting("192.0.2.4"); n != 20 || h.lobby.count != maxLobby {
			t.Errorf("%d callers of another address wait, %d of all", n, h.lobby.count)
		}
		time.Sleep(3 * handshakeTime)
		for _, c := range conns {
			_ = c.Close()
		}
		synctest.Wait()
		if h.count != 0 || h.lobby.count != 0 {
			t.Errorf("%d handshakes and %d callers are left", h.count, h.lobby.count)
		}
		h.stop()
	})
}
