package peerport

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/clustertest"
)

// neverAccepts is a listener without callers.
type neverAccepts struct{ stop chan struct{} }

func (l neverAccepts) Accept() (net.Conn, error) { <-l.stop; return nil, net.ErrClosed }
func (l neverAccepts) Addr() net.Addr            { return peerNetAddr("test") }
func (l neverAccepts) Close() error              { close(l.stop); return nil }

// noDescriptors is a listener that cannot accept, as if no descriptor were free.
type noDescriptors struct{ neverAccepts }

func (l noDescriptors) Accept() (net.Conn, error) { return nil, errors.New("too many open files") }

// TestFailedAcceptsFillNoLog: while the port cannot accept callers, it logs that about once a minute.
func TestFailedAcceptsFillNoLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log clustertest.Log
		d, err := NewDialer(TLS{}, time.Now, log.Logger())
		if err != nil {
			t.Fatal(err)
		}
		p := New(noDescriptors{neverAccepts{make(chan struct{})}}, "host:1", d, nil)
		time.Sleep(150 * time.Second)
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // accept ends
		if n := len(log.Lines("Cannot accept")); n != 3 {
			t.Errorf("%d log lines in two and a half minutes", n)
		}
		if n := d.Strangers.Total.Load(); n != 0 {
			t.Errorf("%d strangers", n)
		}
	})
}

func TestPeerPortSortsConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		forwarded := make(chan net.Conn, 1)
		log := slog.New(slog.DiscardHandler)
		d, err := NewDialer(TLS{}, time.Now, log)
		if err != nil {
			t.Fatal(err)
		}
		p := New(neverAccepts{make(chan struct{})}, "host:1", d, map[byte]func(net.Conn){ProtoForward: func(c net.Conn) {
			forwarded <- c
			_, _ = io.Copy(io.Discard, c) // serves until the end
		}})
		dial := func(first string) net.Conn {
			near, far := net.Pipe()
			go p.sort(p.arrivals.admit(far))
			if first != "" {
				if _, err := near.Write([]byte(first)); err != nil {
					t.Error(err)
				}
			}
			return near
		}
		raft := dial("R")
		far, err := p.Accept()
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = far.Write([]byte("to raft")) }()
		b := make([]byte, 7)
		if _, err := io.ReadFull(raft, b); err != nil || string(b) != "to raft" {
			t.Errorf("raft: %q, %v", b, err)
		}
		forward := dial("F")
		<-forwarded
		start := time.Now()
		if at := clustertest.ClosedAt(t, dial("*1\r\n$4\r\nPING\r\n"[:1])); at != start {
			t.Errorf("a client was kept for %v", at.Sub(start))
		}
		if at := clustertest.ClosedAt(t, dial("")); at.Sub(start) != HandshakeTimeout {
			t.Errorf("a connection that says nothing was kept for %v", at.Sub(start))
		}
		waiting := dial("R") // no Raft accepts this connection
		synctest.Wait()
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		clustertest.ClosedAt(t, waiting)
		clustertest.ClosedAt(t, forward)
		if _, err := p.Accept(); err == nil {
			t.Error("accepts after Close")
		}
		if err := p.Close(); err != nil {
			t.Errorf("the second Close: %v", err)
		}
		late, far := net.Pipe()
		if p.arrivals.admit(far) != nil {
			t.Error("a connection is let in after Close")
		}
		clustertest.ClosedAt(t, late)
	})
}

// When a connection of the node to itself ends, the port keeps nothing of it.
func TestConnectionsToItselfAreForgotten(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	d, err := NewDialer(TLS{}, time.Now, log)
	if err != nil {
		t.Fatal(err)
	}
	p := New(neverAccepts{make(chan struct{})}, "host:1", d, nil)
	defer p.Close()
	for range 3 {
		dialed := make(chan error, 1)
		go func() {
			near, err := p.DialRaft("host:1", time.Second)
			if err == nil {
				err = near.Close()
			}
			dialed <- err
		}()
		far, err := p.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(<-dialed, far.Close()); err != nil {
			t.Fatal(err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.conns) > 0 {
		t.Errorf("%d connections are remembered", len(p.conns))
	}
}
