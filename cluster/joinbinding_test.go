package cluster

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/datadir"
	"github.com/lockstep-io/lockstep/cluster/internal/raftnode"
	"github.com/lockstep-io/lockstep/conformance/ports"
)

// anotherThree starts another cluster, with the ids m1, m2 and m3.
func anotherThree(t *testing.T) *three {
	var peers []Peer
	for i, addr := range ports.Addrs(t, 3) {
		peers = append(peers, Peer{ID: fmt.Sprint("m", i+1), Addr: addr})
	}
	w := newWires()
	other := newThree(t, peers, w.attach, discoverable)
	t.Cleanup(w.heal)
	other.start(0, 1, 2)
	return other
}

// A new node takes nothing from another cluster that was told its address, even while it cannot reach its own.
func TestJoiningNodeFollowsNoOtherCluster(t *testing.T) {
	c, w := wired(t, discoverable)
	c.start(0, 1, 2)
	other := anotherThree(t)
	for range 20 {
		other.do(0, "INCR there")
	}
	c.expect(0, "OK", "SET lock owner")
	i := c.newcomer(w, "n4", 0)
	c.cfg[i].PromoteAfter = 300 * ms
	if err := other.nodes[other.leader()].Add("n4", c.cfg[i].PeerListen); err != nil {
		t.Fatal(err)
	}
	w.cut([]string{"n4"}, []string{"n1", "n2", "n3"})
	n, err := Open(c.cfg[i])
	if err != nil {
		t.Fatal(err)
	}
	c.nodes[i] = n
	time.Sleep(time.Second) // the leader of the other cluster calls it meanwhile
	if f := n.cons.Facts(); f.Term != 0 || f.Applied != 0 || n.cons.Cluster() != "" {
		t.Errorf("it has followed the other cluster: %+v in %q", f, n.cons.Cluster())
	}
	w.heal()
	c.voters("n1", "n2", "n3", "n4")
	c.expect(i, "owner", "GET lock")
	if got := n.cons.Cluster(); got != c.nodes[0].cons.Cluster() {
		t.Errorf("it belongs to %q", got)
	}
	c.same()
}

// A node that has begun to join one cluster may join another after a restart, unless it has taken something of the first.
func TestJoiningNodeIsToldAnotherCluster(t *testing.T) {
	c, w := wired(t, discoverable)
	c.start(0, 1, 2)
	other := anotherThree(t)
	i := c.newcomer(w, "n4", 0)
	bind := func(cluster string, taken bool) {
		dir, err := datadir.Open(c.cfg[i].Data, datadir.Options{Disk: c.cfg[i].disk, ID: "n4", LogStore: LogWAL})
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		if taken {
			err = dir.Stable.SetUint64([]byte("CurrentTerm"), 3)
		}
		if err := errors.Join(err, dir.Finish("", true), dir.Bind(cluster)); err != nil {
			t.Fatal(err)
		}
	}
	bind(other.nodes[0].cons.Cluster(), true)
	told := make(chan error, 1)
	serious := c.cfg[i].Fatal
	c.cfg[i].Fatal = func(err error) { told <- err }
	n, err := Open(c.cfg[i])
	if err != nil {
		t.Fatal(err)
	}
	if err := (<-told).Error(); !strings.Contains(err, "has begun to join another cluster") || !strings.Contains(err, c.cfg[i].Data) {
		t.Errorf("it stops with %q", err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	c.cfg[i].Fatal, c.cfg[i].Data = serious, t.TempDir()
	bind(other.nodes[0].cons.Cluster(), false)
	c.start(i)
	c.voters("n1", "n2", "n3", "n4")
}

// TestJoiningNodeThatHasTakenNothing: a joining node without data that hears of another cluster logs what to do, and continues to
// ask.
func TestJoiningNodeThatHasTakenNothing(t *testing.T) {
	c, w := wired(t, discoverable)
	i := c.newcomer(w, "n4", 0) // nobody answers: the others do not run
	n, err := Open(c.cfg[i])
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if err := n.cons.Bind("blue"); err != nil {
		t.Fatal(err)
	}
	if err := n.cons.Bind("green"); !errors.Is(err, raftnode.ErrBegun) || errors.Is(err, datadir.ErrOtherCluster) {
		t.Errorf("%v", err)
	}
	if got := n.cons.Cluster(); got != "blue" {
		t.Errorf("it joins %q", got)
	}
}
