package nodes

import (
	"crypto/tls"
	"testing"

	"github.com/lockstep-io/lockstep/conformance/certs"
	"github.com/lockstep-io/lockstep/server/respclient"
)

// Secret is what a client needs to connect to nodes with TLS.
type Secret struct {
	certs.Files
	Client *tls.Config
}

// StartSecret does what StartDiscoverable does, for nodes that have each client port twice: without TLS, and with TLS.
func StartSecret(t testing.TB, n int, flags ...string) ([]*Node, Secret) {
	t.Helper()
	files, client, err := certs.Make(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	setup := Setup{Flags: append([]string{"--tls-cert-file", files.Cert, "--tls-key-file", files.Key, "--tls-ca-cert-file", files.CA}, flags...)}
	return StartSetupSecret(t, n, setup), Secret{files, client}
}

// StartSetupSecret is StartSetupDiscoverable with a TLS port beside each client port. The setup's flags must name the certificates.
func StartSetupSecret(t testing.TB, n int, setup Setup) []*Node {
	t.Helper()
	setup.own, setup.of = 5, func(node *Node, addrs []string) []string {
		node.SentinelAddr, node.ClusterAddr = addrs[0], addrs[1]
		node.TLSAddr, node.TLSSentinelAddr, node.TLSClusterAddr = addrs[2], addrs[3], addrs[4]
		return []string{"--sentinel-listen", node.SentinelAddr, "--cluster-listen", node.ClusterAddr,
			"--tls-listen", node.TLSAddr, "--tls-sentinel-listen", node.TLSSentinelAddr, "--tls-cluster-listen", node.TLSClusterAddr}
	}
	return StartSetup(t, n, setup)
}

// Dial connects to an address with TLS. The connection ends with the test.
func (s Secret) Dial(t testing.TB, addr string) *respclient.Conn {
	t.Helper()
	conn, err := tls.Dial("tcp", addr, s.Client)
	if err != nil {
		t.Fatal(err)
	}
	c := respclient.NewConn(conn)
	t.Cleanup(func() { c.Close() })
	return c
}
