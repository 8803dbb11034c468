package cluster

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"reflect"
	"testing"
	"time"

	"lockstep/cluster/internal/peerport"
)

// discoverable has the three nodes say where they are.
func discoverable(cfg *Config) {
	n := cfg.ID[1:]
	cfg.SentinelAdvertise, cfg.ClusterAdvertise = "sentinel-"+n+":26379", "cluster-"+n+":7000"
	cfg.RunID = "run-" + n
	cfg.DownAfter = 400 * ms
}

// seen waits until every running node sees a topology that pleases.
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

// TestTopology: every node knows all members with their addresses, who leads
// and who is down, though only the leader has links to the others.
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

	// A node that dies is down; one that starts again is up, as another process.
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

// TestTopologyWithoutLeader: while nobody leads, the last leader is known.
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

// TestTopologyOfEphemeralNode: it leads, and there is nobody else.
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
	earlyFacts  = facts{id: "n1", addrs: Addresses{Plain: "a:1", Sentinel: "b:2", Cluster: "c:3"}, runID: "0123", applied: 300, cluster: "blue", you: asStranger, peer: "p:4", directory: "D5"}
	sampleFacts = facts{id: "n1", addrs: Addresses{Plain: "a:1", Sentinel: "b:2", Cluster: "c:3"}, runID: "0123", applied: 300, cluster: "blue", you: asStranger, peer: "p:4", directory: "D5", toldMembers: true, members: []string{"n1", "n2"}}
	secretFacts = facts{id: "n1", addrs: Addresses{"a:1", "b:2", "c:3", "d:4", "", "e:5"}, runID: "0123", applied: 300, cluster: "blue", you: asStranger, peer: "p:4", directory: "D5", toldMembers: true, members: []string{"n1", "n2"}}
)

// TestFactsGolden holds the bytes still.
func TestFactsGolden(t *testing.T) {
	const want = "00000035" + "01" + "00" + "026e31" + "03613a31" + "03623a32" + "03633a33" + "0430313233" + "ac02" + "04626c7565" + "02" + "03703a34" + "024435" +
		"02" + "026e31" + "026e32" + "03643a34" + "00" + "03653a35"
	if got := hex.EncodeToString(secretFacts.append(nil)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestFactsRoundTrip(t *testing.T) {
	whole := secretFacts.append(nil)
	same := func(got, want facts) bool { return reflect.DeepEqual(got, want) }
	if got, err := readFacts(reader(whole)); err != nil || !same(got, secretFacts) {
		t.Errorf("got %+v, %v", got, err)
	}
	// A later version may say more.
	body := append(bytes.Clone(whole[6:]), "more"...)
	if got, err := readFacts(reader(oneFrame(frameFacts, 0, body))); err != nil || !same(got, secretFacts) {
		t.Errorf("with more behind: %+v, %v", got, err)
	}
	// Earlier ones say less.
	size, early := len(whole)-6, secretFacts
	early.addrs.TLSPlain, early.addrs.TLSCluster = "", ""
	if got, err := readFacts(reader(oneFrame(frameFacts, 0, body[:size-9]))); err != nil || !same(got, early) {
		t.Errorf("without TLS: %+v, %v", got, err)
	}
	early.members, early.toldMembers = nil, false
	if got, err := readFacts(reader(oneFrame(frameFacts, 0, body[:size-16]))); err != nil || !same(got, early) {
		t.Errorf("without members: %+v, %v", got, err)
	}
	early.directory = ""
	if got, err := readFacts(reader(oneFrame(frameFacts, 0, body[:size-19]))); err != nil || !same(got, early) {
		t.Errorf("without a directory: %+v, %v", got, err)
	}
	early.cluster, early.you, early.peer = "", asUnknown, ""
	if got, err := readFacts(reader(oneFrame(frameFacts, 0, body[:size-29]))); err != nil || !same(got, early) {
		t.Errorf("with less: %+v, %v", got, err)
	}
	for n := range body[:size] {
		if n == size-9 || n == size-16 || n == size-19 || n == size-29 {
			continue
		}
		if got, err := readFacts(reader(oneFrame(frameFacts, 0, body[:n]))); err == nil {
			t.Errorf("cut to %d bytes: %+v", n, got)
		}
	}
	if got, err := readFacts(reader(oneFrame(frameSubmit+1, 0, body))); err == nil {
		t.Errorf("of another kind: %+v", got)
	}
}

// TestTold: a client is told the address of its own kind, and the other one if there is
// none.
func TestTold(t *testing.T) {
	top := &Topology{Nodes: []Sighting{{ID: "n1", Addresses: Addresses{Plain: "p1", TLSPlain: "t1", Cluster: "c1"}}, {ID: "n2", Addresses: Addresses{Plain: "p2"}}, {ID: "n3", Addresses: Addresses{TLSPlain: "t3", TLSCluster: "u3"}}}}
	for secret, want := range map[bool][]Addresses{
		false: {{Plain: "p1", Cluster: "c1"}, {Plain: "p2"}, {Plain: "t3", Cluster: "u3"}},
		true:  {{Plain: "t1", Cluster: "c1"}, {Plain: "p2"}, {Plain: "t3", Cluster: "u3"}},
	} {
		for i, n := range top.Told(secret).Nodes {
			if n.Addresses != want[i] {
				t.Errorf("%s, TLS %v: %+v, want %+v", n.ID, secret, n.Addresses, want[i])
			}
		}
	}
	if top.Nodes[0].TLSPlain != "t1" {
		t.Error("the topology itself was changed")
	}
	plain := &Topology{Nodes: []Sighting{{ID: "n2", Addresses: Addresses{Plain: "p2"}}}}
	if plain.Told(true) != plain {
		t.Error("a copy without need")
	}
}

// TestFactsFromStrangers: what a node says that is no member changes nothing.
func TestFactsFromStrangers(t *testing.T) {
	c := startThree(t, discoverable)
	c.start(0, 1, 2)
	c.seen("all members on all nodes", func(_ int, top *Topology) bool { return len(top.Nodes) == 3 })
	conn, err := (&peerport.Dialer{Network: peerport.DialTCP}).Dial(c.cfg[0].PeerListen, peerport.ProtoFacts, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stranger := sampleFacts
	stranger.id = "stranger"
	if _, err := conn.Write(stranger.append(nil)); err != nil {
		t.Fatal(err)
	}
	if f, err := readFacts(reader(mustRead(t, conn))); err != nil || f.id != "n1" {
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
