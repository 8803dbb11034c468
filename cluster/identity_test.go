package cluster

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/lockstep-io/lockstep/cluster/internal/clustertest"
	"github.com/lockstep-io/lockstep/conformance/ports"
)

// When n2's address leads to n4, the answers of n4 do not count twice.
func TestAddressOfAnotherMember(t *testing.T) {
	c, w := wired(t, discoverable, func(cfg *Config) { cfg.FailoverWait = time.Second })
	c.start(0, 1, 2)
	i, j := c.newcomer(w, "n4", 0), c.newcomer(w, "n5", 0)
	c.start(i, j)
	c.voters("n1", "n2", "n3", "n4", "n5")
	c.allMet()
	if c.leader() != 0 {
		c.transfer(c.nodes[0], 0)
	}
	c.same()
	c.stop(1)
	w.leadTo(c.cfg[1].PeerListen, c.cfg[i].PeerListen)
	c.expect(0, "OK", "SET lock somebody")
	w.cut([]string{"n1", "n4"}, []string{"n3", "n5"})
	if got := c.do(0, "SET lock owner"); got == "OK" {
		t.Error("acknowledged by two of five")
	}
	if got := c.do(0, "GET lock"); !strings.HasPrefix(got, "-") {
		t.Errorf("a read confirmed by two of five: %s", got)
	}
	w.heal()
}

// The entries of another cluster's leader do not get into n3's log, though n3 has the address of a member there.
func TestAddressOfAnotherCluster(t *testing.T) {
	c, _ := wired(t, discoverable)
	c.start(0, 1, 2)
	c.allMet()
	c.expect(0, "OK", "SET lock owner")
	c.same()
	var peers []Peer
	for i, addr := range ports.Addrs(t, 3) {
		peers = append(peers, Peer{ID: fmt.Sprintf("a%d", i+1), Addr: addr})
	}
	w := newWires()
	other := newThree(t, peers, w.attach, discoverable)
	t.Cleanup(w.heal)
	other.start(0, 1, 2)
	other.allMet()
	for range 10 { // so the other cluster is in a later term than this one reaches
		from := other.leader()
		other.transfer(other.nodes[from], (from+1)%2)
	}
	other.stop(2)
	term := other.nodes[0].Status().Term
	w.leadTo(peers[2].Addr, c.cfg[2].PeerListen)
	for i := range 10 {
		other.expect(0, fmt.Sprint(i+1), "INCR there")
		c.expect(0, fmt.Sprint(i+1), "INCR here")
		time.Sleep(100 * ms)
		if s := c.nodes[2].Status(); s.Term >= term || !slices.Contains([]string{"n1", "n2", "n3", ""}, s.LeaderID) {
			t.Fatalf("n3 follows %q in term %d, the other cluster is in term %d", s.LeaderID, s.Term, term)
		}
	}
	c.same()
}

// A node that was a cluster of its own holds what was acknowledged there. With --peers it
// does not start, and says what to do.
func TestOneNodeThenPeers(t *testing.T) {
	c, _ := wired(t, discoverable)
	peers := c.cfg[0].Peers
	c.cfg[0].Peers = nil
	c.start(0)
	c.expect(0, "OK", "SET lock owner")
	c.stop(0)
	c.cfg[0].Peers = peers
	n, err := Open(c.cfg[0])
	if err == nil {
		n.Close()
		t.Fatal("it starts")
	}
	if text := err.Error(); !strings.Contains(text, "without --peers") || !strings.Contains(text, "--join "+c.cfg[0].PeerListen) {
		t.Errorf("it does not say what to do: %v", err)
	}
	c.cfg[0].Peers = nil
	c.start(0)
	c.expect(0, "owner", "GET lock")
}

// After the end of a node's log is cut off, its subscribers get the messages of the new entries at those indexes.
func TestMessagesInThePlaceOfACutTail(t *testing.T) {
	const tail = 12
	c, _ := wired(t)
	c.start(0, 1, 2)
	c.same()
	odd := c.leader()
	a, b := (odd+1)%3, (odd+2)%3
	for _, i := range []int{a, b, odd} {
		c.stop(i)
	}
	cfg := &c.cfg[odd]
	dir := openStopped(t, cfg)
	last, err := dir.Log.LastIndex()
	if err != nil {
		t.Fatal(err)
	}
	var end raft.Log
	if err := dir.Log.GetLog(last, &end); err != nil {
		t.Fatal(err)
	}
	for range uint64(tail) {
		last++
		if err := dir.Log.StoreLog(&raft.Log{Index: last, Term: end.Term, Type: raft.LogBarrier}); err != nil {
			t.Fatal(err)
		}
	}
	dir.Close()
	c.start(a, b)
	c.leader()
	c.start(odd)
	var want []string
	for i := range tail {
		c.do(odd, fmt.Sprint("PUBLISH c m", i))
		want = append(want, fmt.Sprint("c m", i))
	}
	c.same()
	for _, i := range []int{odd, a} {
		if got := c.sinks[i].all(); !slices.Equal(got, want) {
			t.Errorf("a subscriber of %s heard %q, want %q", c.cfg[i].ID, got, want)
		}
	}
}

// A leader can be stopped although its proposals are not committed. The disks of its followers are
// full, but the followers answer its heartbeats.
func TestCloseOfALeaderThatCommitsNothing(t *testing.T) {
	clustertest.Slow(t)
	full := map[string]*atomic.Bool{}
	c, _ := wired(t, func(cfg *Config) {
		full[cfg.ID] = new(atomic.Bool)
		cfg.disk.Files = crampedFiles{full: full[cfg.ID]}
		cfg.FailoverWait = time.Second
	})
	c.start(0, 1, 2)
	c.same()
	odd := c.leader()
	a, b := full[c.cfg[(odd+1)%3].ID], full[c.cfg[(odd+2)%3].ID]
	a.Store(true)
	b.Store(true)
	if got := c.do(odd, "SET big "+strings.Repeat("x", 600_000)); got == "OK" {
		t.Fatal("acknowledged")
	}
	closed := make(chan error, 1)
	go func() { closed <- c.nodes[odd].Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("it has not ended after 20 s")
	}
	a.Store(false)
	b.Store(false)
	c.nodes[odd] = nil
}
