package cluster

import (
	"github.com/lockstep-io/lockstep/cluster/internal/clustertest"
	"github.com/lockstep-io/lockstep/cluster/internal/forward"
	"net"
	"testing"
)

// A peer that makes a wrong handshake, or sends bytes that are no request, loses its connection.
// The node goes on.
func TestServeForwardRefusesNonsense(t *testing.T) {
	hello := forward.Handshake{Speaks: current, ID: "n2", Client: "client:1"}.Append(nil)
	for name, b := range map[string][]byte{
		"not a handshake":    []byte("GET / HTTP/1.1\r\n"),
		"unknown kind":       append(hello[:len(hello):len(hello)], oneFrame(99, 1, nil)...),
		"a result":           append(hello[:len(hello):len(hello)], oneFrame(forward.Result, 1, nil)...),
		"malformed calls":    append(hello[:len(hello):len(hello)], oneFrame(forward.Submit, 1, []byte{1, 2})...),
		"malformed transfer": append(hello[:len(hello):len(hello)], oneFrame(forward.Transfer, 1, []byte{9})...),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n := newTestNode(t)
				n.lead()
				near, far := net.Pipe()
				served := make(chan struct{})
				go func() { n.serveForward(far); close(served) }()
				go func() { _, _ = near.Write(b) }()
				clustertest.ClosedAt(t, near)
				<-served
				if got := n.served.Load(); got != 0 {
					t.Errorf("%d peers are counted", got)
				}
				n.expect("1", "INCR counter")
			})
		})
	}
}
