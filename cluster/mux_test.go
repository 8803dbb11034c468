package cluster

import (
	"io"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// neverAccepts is a listener without callers.
type neverAccepts struct{ stop chan struct{} }

func (l neverAccepts) Accept() (net.Conn, error) { <-l.stop; return nil, net.ErrClosed }
func (l neverAccepts) Addr() net.Addr            { return peerNetAddr("test") }
func (l neverAccepts) Close() error              { close(l.stop); return nil }

// closedAt reads until the other side closes and returns when that was.
func closedAt(t *testing.T, conn net.Conn) time.Time {
	t.Helper()
	if _, err := io.Copy(io.Discard, conn); err != nil {
		t.Error(err)
	}
	return time.Now()
}

func TestPeerPortSortsConnections(t *testing.T) {
	bubble(t, func(t *testing.T) {
		forwarded := make(chan net.Conn, 1)
		cfg := Default()
		cfg.PeerListen, cfg.Logger = "host:1", slog.New(slog.DiscardHandler)
		p := newPeerPort(neverAccepts{make(chan struct{})}, &cfg, raftHooks{forward: func(c net.Conn) {
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
		if at := closedAt(t, dial("*1\r\n$4\r\nPING\r\n"[:1])); at != start {
			t.Errorf("a client was kept for %v", at.Sub(start))
		}
		if at := closedAt(t, dial("")); at.Sub(start) != greetTimeout {
			t.Errorf("a connection that says nothing was kept for %v", at.Sub(start))
		}
		waiting := dial("R") // Raft does not take it
		synctest.Wait()
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		closedAt(t, waiting)
		closedAt(t, forward)
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
		closedAt(t, late)
	})
}

// A peer that greets wrongly, or sends what is no request, loses its
// connection; the node goes on.
func TestServeForwardRefusesNonsense(t *testing.T) {
	hello := greeting{speaks: current, id: "n2", client: "client:1"}.append(nil)
	for name, b := range map[string][]byte{
		"not a greeting":     []byte("GET / HTTP/1.1\r\n"),
		"unknown kind":       append(hello[:len(hello):len(hello)], oneFrame(99, 1, nil)...),
		"a result":           append(hello[:len(hello):len(hello)], oneFrame(frameResult, 1, nil)...),
		"malformed calls":    append(hello[:len(hello):len(hello)], oneFrame(frameSubmit, 1, []byte{1, 2})...),
		"malformed transfer": append(hello[:len(hello):len(hello)], oneFrame(frameTransfer, 1, []byte{9})...),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n := newTestNode(t)
				n.lead()
				near, far := net.Pipe()
				served := make(chan struct{})
				go func() { n.serveForward(far); close(served) }()
				go func() { _, _ = near.Write(b) }()
				closedAt(t, near)
				<-served
				if got := n.served.Load(); got != 0 {
					t.Errorf("%d peers are counted", got)
				}
				n.expect("1", "INCR counter")
			})
		})
	}
}
