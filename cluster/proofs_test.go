package cluster

import (
	"github.com/lockstep-io/lockstep/cluster/internal/clustertest"
	"github.com/lockstep-io/lockstep/cluster/internal/peerport"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"
)

// certsOf makes the certificate of a node.
func certsOf(ca *clustertest.CA) peerport.TLS {
	f := ca.Files("host")
	return peerport.TLS{CertFile: f.Cert, KeyFile: f.Key, CAFile: f.CA}
}

// TestProofsOfDifferentKinds: the error says how the proofs of two nodes differ, and not that a certificate has expired.
func TestProofsOfDifferentKinds(t *testing.T) {
	ca := clustertest.NewCA(t, "ca")
	bySecret, byCert := peerport.TLS{Secret: clustertest.Secret}, certsOf(ca)
	otherCA := certsOf(clustertest.NewCA(t, "other"))
	for name, who := range map[string]struct {
		server, client peerport.TLS
		says           string
	}{
		"a secret, to certificates": {byCert, bySecret, "it has a certificate, and this node a secret: give this node --peer-tls-cert-file"},
		"a certificate, to secrets": {bySecret, byCert, "it has a secret, and this node a certificate: give this node --peer-secret-file"},
		"another secret":            {peerport.TLS{Secret: clustertest.OtherSecret}, bySecret, "it has another secret than this node"},
		"another CA":                {otherCA, byCert, "unknown authority"},
		"nothing, to a secret":      {bySecret, peerport.TLS{}, "--peer-secret-file or certificates"},
		"nothing, to certificates":  {byCert, peerport.TLS{}, "--peer-secret-file or certificates"},
		"a secret, to nothing":      {peerport.TLS{}, bySecret, "it speaks no TLS"},
		"a certificate, to nothing": {peerport.TLS{}, byCert, "it speaks no TLS"},
	} {
		t.Run(name, func(t *testing.T) {
			network, log := clustertest.NewNet(0), slog.New(slog.DiscardHandler)
			serves, err := peerport.NewDialer(who.server, time.Now, log)
			if err != nil {
				t.Fatal(err)
			}
			ln, err := network.Listen("host:1")
			if err != nil {
				t.Fatal(err)
			}
			port := peerport.New(ln, "host:1", serves, nil)
			defer port.Close()
			d, err := peerport.NewDialer(who.client, time.Now, log)
			if err != nil {
				t.Fatal(err)
			}
			d.Network = func(addr string, _ byte, timeout time.Duration) (net.Conn, error) { return network.Dial(addr, timeout) }
			n := &Node{cfg: Config{ID: "n2", PeerListen: "host:2", peers: d}, ctx: t.Context()}
			if err := n.askToJoin("host:1", "directory"); err == nil || !strings.Contains(err.Error(), who.says) || strings.Contains(err.Error(), "expired") {
				t.Errorf("%v, want an error that says %q", err, who.says)
			}
		})
	}
}
