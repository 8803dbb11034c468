package cluster

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/datadir"
	"github.com/lockstep-io/lockstep/cluster/internal/forward"
	"github.com/lockstep-io/lockstep/conformance/ports"
)

// twins starts two clusters whose nodes have the same ids, each led by its n1. The other cluster has applied more.
func twins(t *testing.T, change ...func(*Config)) (c *three, w *wires, other *three) {
	t.Helper()
	change = append(change, discoverable)
	c, w = wired(t, change...)
	var peers []Peer
	for i, addr := range ports.Addrs(t, 3) {
		peers = append(peers, Peer{ID: c.cfg[i].ID, Addr: addr})
	}
	its := newWires()
	other = newThree(t, peers, append(change, its.attach)...)
	t.Cleanup(its.heal)
	for _, k := range []*three{c, other} {
		k.start(0, 1, 2)
		k.allMet()
		if k.leader() != 0 {
			k.transfer(k.nodes[k.leader()], 0)
		}
	}
	for range 40 {
		other.do(0, "INCR there")
	}
	return c, w, other
}

// n1 and n2 go on when the address of the dead n3 leads to the n3 of another cluster.
func TestFoundersOutliveAnotherCluster(t *testing.T) {
	c, w, other := twins(t)
	c.expect(0, "OK", "SET lock owner")
	c.stop(2)
	w.leadTo(c.cfg[2].PeerListen, other.cfg[2].PeerListen)
	for range 10 { // a call of the function Fatal is an error of this test
		c.expect(1, "owner", "GET lock")
		time.Sleep(100 * ms)
	}
}

// The leader's address is given to the leader of another cluster, who has the same id. The followers forward nothing to that
// node.
func TestCommandsReachNoOtherCluster(t *testing.T) {
	c, w, other := twins(t, func(cfg *Config) { cfg.FailoverWait = 300 * ms })
	other.expect(0, "OK", "SET who other")
	c.expect(0, "OK OK", "SET who this", "SET lock owner")
	c.same()
	w.leadTo(c.cfg[0].PeerListen, other.cfg[0].PeerListen)
	w.tear()
	for range 3 {
		for i := 1; i < 3; i++ {
			if got := c.do(i, "GET who"); got == "other" {
				t.Fatalf("%s reads from the other cluster", c.cfg[i].ID)
			}
			if got := c.do(i, "SET lock thief NX PX 10000"); got == "OK" {
				t.Fatalf("%s granted the lock twice", c.cfg[i].ID)
			}
		}
	}
	if got := other.do(0, "GET lock"); got != "nil" {
		t.Errorf("the other cluster has got a lock: %s", got)
	}
}

// tear closes all connections, as the death of a machine does.
func (w *wires) tear() {
	w.mu.Lock()
	var open []*wire
	for c := range w.conns {
		open = append(open, c)
	}
	w.mu.Unlock()
	for _, c := range open {
		c.Close()
	}
}

// When the n3 of another cluster answers for the dead n3, n2 cannot be removed, and n3 is not given the leadership.
func TestRemovalCountsNoStranger(t *testing.T) {
	c, w, other := twins(t)
	c.stop(2)
	w.leadTo(c.cfg[2].PeerListen, other.cfg[2].PeerListen)
	if err := c.nodes[0].Remove("n2"); err == nil {
		t.Error("n2 was removed: the cluster has no majority any more")
	}
	if err := c.nodes[0].Transfer("n3"); err == nil {
		t.Error("n3, which is dead, was given the leadership")
	}
	c.expect(1, "OK", "SET lock owner")
	c.leader()
	w.leadTo(c.cfg[2].PeerListen, c.cfg[2].PeerListen)
	w.tear()
	c.start(2)
	c.until("the removal with n3 back", func() bool { return c.nodes[0].Remove("n2") == nil })
	c.voters("n1", "n3")
}

// n3 is dead. At its address answers n2, or the n3 of another cluster. WAIT counts neither answer.
func TestWaitCountsMembersOnly(t *testing.T) {
	c, w, other := twins(t)
	c.stop(2)
	for _, at := range []string{c.cfg[1].PeerListen, other.cfg[2].PeerListen} {
		w.leadTo(c.cfg[2].PeerListen, at)
		c.expect(0, "OK", "SET lock owner")
		ctx, cancel := context.WithTimeout(context.Background(), 300*ms)
		if others, _ := c.nodes[0].Replicated(ctx, 2, false); others != 1 {
			t.Errorf("%d other members have the write, and only one of them runs", others)
		}
		cancel()
	}
}

// A node that calls itself a member, but names another cluster or data directory than that member's, is refused.
func TestIdentityOfALink(t *testing.T) {
	c, _ := wired(t, discoverable)
	c.start(0, 1, 2)
	c.allMet()
	n, own := c.nodes[0], c.nodes[1].handshake()
	said, err := own.Identity()
	if err != nil || said.Cluster == "" || said.Directory == "" {
		t.Fatalf("n2 says %+v, %v", said, err)
	}
	name := n.cons.Directory()
	older := own
	older.Speaks.Minor, older.More = 0, ""
	for what, k := range map[string]struct {
		by    forward.Handshake
		claim bool
		told  string
	}{
		"the member":         {own, true, name},
		"another directory":  {saying(own, forward.Identity{Cluster: said.Cluster, Directory: "other"}), false, ""},
		"another cluster":    {saying(own, forward.Identity{Cluster: "other", Directory: said.Directory}), false, ""},
		"no directory":       {saying(own, forward.Identity{Cluster: said.Cluster}), false, ""},
		"no name of cluster": {saying(own, forward.Identity{Directory: said.Directory}), true, name},
		"version 0.1.0":      {older, true, ""},
	} {
		said, err := k.by.Identity()
		if err != nil {
			t.Fatal(err)
		}
		p := &peerConn{n: n, id: "n2", said: said, older: k.by.Speaks.Minor < forward.MinorIdentity}
		if err := p.mayClaim(); (err == nil) != k.claim {
			t.Errorf("%s claims: %v", what, err)
		}
		if got, err := n.handshakeFor("n2", said).Identity(); err != nil || got.Directory != k.told || got.Cluster != n.cons.Cluster() {
			t.Errorf("%s is told %+v, %v", what, got, err)
		}
		if err := n.reaches("n2", k.by); (err == nil) != k.claim {
			t.Errorf("a link to %s: %v", what, err)
		}
	}
	if err := n.reaches("n2", saying(own, forward.Identity{Cluster: said.Cluster, Directory: "other"})); !errors.Is(err, datadir.ErrOtherDirectory) {
		t.Error(err)
	}
	own.More = "\xff"
	if _, err := own.Identity(); err == nil {
		t.Error("garbage is an identity")
	}
}

func saying(h forward.Handshake, i forward.Identity) forward.Handshake {
	h.More = i.More()
	return h
}
