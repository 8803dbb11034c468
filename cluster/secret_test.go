package cluster

import (
	"fmt"
	"testing"

	"github.com/lockstep-io/lockstep/cluster/internal/clustertest"
	"github.com/lockstep-io/lockstep/cluster/internal/peerport"
)

// Nodes with one secret form a cluster. A node with another secret gets no answer.
func TestThreeBySecret(t *testing.T) {
	c, w := wired(t, func(cfg *Config) { cfg.PeerTLS.Secret = clustertest.Secret })
	c.start(0, 1, 2)
	for i := range c.nodes {
		c.expect(i, "OK", fmt.Sprintf("SET k%d v", i))
	}
	joins := c.newcomer(w, "n4", 0, 1, 2)
	c.start(joins)
	c.voters("n1", "n2", "n3", "n4")
	c.expect(joins, "v v v", "GET k0", "GET k1", "GET k2")

	var log clustertest.Log
	strange := c.newcomer(w, "n5", 0, 1, 2)
	c.cfg[strange].PeerTLS.Secret, c.cfg[strange].Logger = clustertest.OtherSecret, log.Logger()
	n, err := Open(c.cfg[strange])
	if err != nil {
		t.Fatal(err)
	}
	c.until("its being turned away", func() bool {
		return len(log.Lines(string(peerport.PeerUntrusted))) > 0 && len(log.Lines("Not a member yet")) > 0
	})
	if m, s := n.Membership(), n.Status(); m != Joining || s.Applied != 0 || s.Keys[0] != 0 {
		t.Errorf("one of another secret is %v and has %d keys at entry %d", m, s.Keys[0], s.Applied)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	c.nodes, c.cfg = c.nodes[:strange], c.cfg[:strange]
	c.voters("n1", "n2", "n3", "n4")
	c.transfer(c.nodes[c.leader()], joins)
	c.expect(joins, "OK", "SET k0 w")
	c.same()
}

// A cluster changes its connections from plain to a secret, and to another secret, node by node.
func TestThreeFromPlainToAnotherSecret(t *testing.T) {
	path, write := clustertest.SecretFile(t, clustertest.Secret)
	c := startThree(t)
	c.start(0, 1, 2)
	restart := func(with peerport.TLS) {
		t.Helper()
		for i := range c.nodes {
			leads := c.leader()
			if leads == i {
				c.transfer(c.nodes[i], (i+1)%3)
			}
			c.stop(i)
			c.cfg[i].PeerTLS = with
			c.start(i)
		}
	}
	c.expect(0, "1", "INCR counter")
	restart(peerport.TLS{SecretFile: path, Optional: true})
	c.expect(0, "2", "INCR counter")
	c.expect(1, "3", "INCR counter")
	restart(peerport.TLS{SecretFile: path})
	c.expect(2, "4", "INCR counter")
	for _, text := range []string{clustertest.Secret + "\n" + clustertest.OtherSecret, clustertest.OtherSecret + "\n" + clustertest.Secret, clustertest.OtherSecret} {
		write(text)
		for i := range c.nodes {
			if err := c.nodes[i].ReloadPeerTLS(); err != nil {
				t.Error(err)
			}
			c.stop((i + 1) % 3) // so that the two other nodes connect to it anew
			c.start((i + 1) % 3)
			c.leader()
		}
	}
	c.expect(1, "5", "INCR counter")
	c.same()
}
