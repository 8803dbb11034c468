package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/peerport"
	"github.com/lockstep-io/lockstep/cluster/internal/peers"
)

// discoverable gives each of the three nodes addresses that it announces.
func discoverable(cfg *Config) {
	n := cfg.ID[1:]
	cfg.SentinelAdvertise, cfg.ClusterAdvertise = "sentinel-"+n+":26379", "cluster-"+n+":7000"
	cfg.RunID = "run-" + n
	cfg.DownAfter = 400 * ms
}

// seen waits until the function pleases returns true for the topology of each running node.
func (c *three) seen(what string, pleases func(i int, t *Topology) bool) {
	c.t.Helper()
	c.until(what, func() bool {
		for i, n := range c.nodes {
			if n != nil && !pleases(i, n.Topology()) {
				return false
			}
		}
		return true
	})
}

// TestTopology: every node knows the addresses of all members, which one leads and which ones are
// down. Only the leader has links to the other nodes.
func TestTopology(t *testing.T) {
	c := startThree(t, discoverable)
	c.start(0, 1, 2)
	all := func(_ int, top *Topology) bool {
		for _, n := range top.Nodes {
			if !n.Up {
				return false
			}
		}
		return len(top.Nodes) == 3 && top.Leader != ""
	}
	c.seen("all members on all nodes", all)
	for i, n := range c.nodes {
		top := n.Topology()
		if top.Self != c.cfg[i].ID || top.Members != 3 || top.Quorum() != 2 || top.Up() != 3 || top.Last != top.Leader {
			t.Errorf("%s sees %+v", c.cfg[i].ID, top)
		}
		for j := range 3 {
			want := Addresses{Plain: fmt.Sprintf("client-%d:6379", j+1), Sentinel: fmt.Sprintf("sentinel-%d:26379", j+1), Cluster: fmt.Sprintf("cluster-%d:7000", j+1)}
			if got := top.Node(c.cfg[j].ID); got.Addresses != want || got.RunID != fmt.Sprintf("run-%d", j+1) {
				t.Errorf("%s sees %+v of %s", c.cfg[i].ID, got, c.cfg[j].ID)
			}
		}
		members, err := n.Members()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range members {
			if m.Client == "" {
				t.Errorf("%s does not know where clients find %s", c.cfg[i].ID, m.ID)
			}
		}
	}

	old := c.leader()
	next := (old + 1) % 3
	outdated := c.nodes[old].Topology()
	c.transfer(c.nodes[old], next)
	c.seen("the next leader", func(_ int, top *Topology) bool { return top.Leader == c.cfg[next].ID && top.Last == top.Leader })
	select {
	case <-outdated.Changed:
	default:
		t.Error("a topology that has been replaced does not say so")
	}

	// A node that dies is down. When it starts again, it is up, and counts as another process.
	gone := c.leader()
	c.crash(gone)
	c.seen("the dead one down", func(_ int, top *Topology) bool {
		n := top.Node(c.cfg[gone].ID)
		return n != nil && !n.Up && n.Silence >= 400*ms && top.Leader != "" && top.Leader != c.cfg[gone].ID && top.Up() == 2
	})
	c.cfg[gone].RunID = "run-again"
	c.start(gone)
	c.seen("it back", func(i int, top *Topology) bool {
		return all(i, top) && top.Node(c.cfg[gone].ID).RunID == "run-again"
	})
}

// TestTopologyWithoutLeader: while nobody leads, the nodes know who led last.
func TestTopologyWithoutLeader(t *testing.T) {
	c := startThree(t, discoverable)
	c.start(0, 1, 2)
	old := c.leader()
	c.seen("all members on all nodes", func(_ int, top *Topology) bool { return len(top.Nodes) == 3 })
	alone := (old + 1) % 3
	c.crash((old + 2) % 3)
	c.crash(old)
	c.seen("nobody leading", func(_ int, top *Topology) bool {
		return top.Leader == "" && top.Last == c.cfg[old].ID && top.Up() == 1 && !top.Node(c.cfg[old].ID).Up
	})
	if c.nodes[alone].Reaches() {
		t.Error("a node alone is ready")
	}
}

// TestTopologyOfEphemeralNode: an ephemeral node leads, and is the only member.
func TestTopologyOfEphemeralNode(t *testing.T) {
	c := startThree(t, discoverable)
	cfg := c.cfg[0]
	cfg.Ephemeral, cfg.Peers = true, nil
	n, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}()
	top := n.Topology()
	if top.Leader != "n1" || top.Self != "n1" || len(top.Nodes) != 1 || !top.Nodes[0].Up || top.Quorum() != 1 {
		t.Errorf("topology %+v", top)
	}
}

var (
	earlyFacts  = peers.Status{ID: "n1", Addrs: Addresses{Plain: "a:1", Sentinel: "b:2", Cluster: "c:3"}, RunID: "0123", Applied: 300, Cluster: "blue", You: peers.Stranger, Peer: "p:4", Directory: "D5"}
	sampleFacts = peers.Status{ID: "n1", Addrs: Addresses{Plain: "a:1", Sentinel: "b:2", Cluster: "c:3"}, RunID: "0123", Applied: 300, Cluster: "blue", You: peers.Stranger, Peer: "p:4", Directory: "D5", ToldMembers: true, Members: []string{"n1", "n2"}}
)

// TestFactsFromStrangers: facts from a node that is no member change nothing.
func TestFactsFromStrangers(t *testing.T) {
	c := startThree(t, discoverable)
	c.start(0, 1, 2)
	c.seen("all members on all nodes", func(_ int, top *Topology) bool { return len(top.Nodes) == 3 })
	c.until("that no member counts as one of version 0.1.0", func() bool { return !c.nodes[0].peers.Older() })
	conn, err := (&peerport.Dialer{Network: peerport.DialTCP}).Dial(c.cfg[0].PeerListen, peerport.ProtoFacts, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stranger := sampleFacts
	stranger.ID = "stranger"
	if _, err := conn.Write(stranger.Append(nil)); err != nil {
		t.Fatal(err)
	}
	if f, err := peers.Read(reader(mustRead(t, conn))); err != nil || f.ID != "n1" {
		t.Errorf("answer %+v, %v", f, err)
	}
	if top := c.nodes[0].Topology(); top.Node("stranger") != nil || top.Members != 3 {
		t.Errorf("topology %+v", top)
	}
}

func mustRead(t *testing.T, conn interface{ Read([]byte) (int, error) }) []byte {
	t.Helper()
	b := make([]byte, 512)
	n, err := conn.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return b[:n]
}
