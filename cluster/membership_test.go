package cluster

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/raftnode"
	"github.com/lockstep-io/lockstep/conformance/ports"
	"github.com/lockstep-io/lockstep/store"
)

// wired returns three nodes that are not started yet and give new members their vote soon, and their wires.
func wired(t *testing.T, change ...func(*Config)) (*three, *wires) {
	w := newWires()
	c := startThree(t, append(change, w.attach, func(cfg *Config) { cfg.PromoteAfter = 300 * ms })...)
	t.Cleanup(w.heal) // before the nodes are closed: Raft waits for its connections
	return c, w
}

// newcomer adds the place of a node that joins through others.
func (c *three) newcomer(w *wires, id string, through ...int) int {
	c.t.Helper()
	i := len(c.cfg)
	cfg := c.cfg[0]
	cfg.ID, cfg.Peers, cfg.PeerListen = id, nil, ports.Addrs(c.t, 1)[0]
	cfg.Data = filepath.Join(c.t.TempDir(), id)
	cfg.Advertise, cfg.RunID = fmt.Sprintf("client-%d:6379", i+1), fmt.Sprint("run-", i+1)
	for _, j := range through {
		cfg.Join = append(cfg.Join, c.cfg[j].PeerListen)
	}
	w.attach(&cfg)
	c.cfg, c.nodes, c.sinks = append(c.cfg, cfg), append(c.nodes, nil), append(c.sinks, nil)
	return i
}

// voters waits until every running node that is a member knows just these
// voters, and shows them to clients.
func (c *three) voters(want ...string) {
	c.t.Helper()
	slices.Sort(want)
	var last string
	c.until("the voters "+strings.Join(want, " "), func() bool {
		for i, n := range c.nodes {
			if n == nil || n.Membership() == Removed {
				continue
			}
			members, err := n.Members()
			if err != nil {
				c.t.Fatal(err)
			}
			var ids, seen []string
			for _, m := range members {
				if m.Voter {
					ids = append(ids, m.ID)
				}
			}
			for _, s := range n.Topology().Nodes {
				if !s.NoVote {
					seen = append(seen, s.ID)
				}
			}
			slices.Sort(ids)
			last = fmt.Sprintf("n%d: members %v, seen %v, counted %d", i+1, ids, seen, n.Topology().Members)
			if !slices.Equal(ids, want) || n.Topology().Members != len(want) || len(seen) > len(want) {
				return false
			}
			for _, id := range seen {
				if !slices.Contains(want, id) {
					return false
				}
			}
		}
		return true
	})
	_ = last
}

func (c *three) mustRemove(ask int, id string) {
	c.t.Helper()
	if err := c.nodes[ask].Remove(id); err != nil {
		c.t.Fatalf("removal of %s through n%d: %v", id, ask+1, err)
	}
}

func (l *load) endWithout(failures string) {
	l.c.t.Helper()
	if failed := l.end(); len(failed) > 0 {
		l.c.t.Errorf("%s: %v", failures, failed)
	}
}

// A new node joins through a follower, gets its vote, serves, and is removed. Clients notice nothing.
func TestJoinPromoteRemove(t *testing.T) {
	c, w := wired(t)
	for i := range c.cfg {
		c.cfg[i].PromoteAfter = 2 * time.Second
	}
	c.start(0, 1, 2)
	l := c.startLoad(0, 1, 2)
	l.more(100)
	follower := c.follower()
	i := c.newcomer(w, "n4", follower)
	c.start(i)
	c.until("its being a member", func() bool { return c.nodes[i].Membership() != Joining })
	if m := c.nodes[i].Membership(); m != NonVoter {
		t.Errorf("the new node begins as %s", m)
	}
	if top := c.nodes[follower].Topology(); top.Members != 3 || top.Node("n4") != nil {
		t.Errorf("a node without a vote counts: %+v", top)
	}
	c.voters("n1", "n2", "n3", "n4")
	if top := c.nodes[0].Topology(); top.Quorum() != 3 {
		t.Errorf("a majority of four is %d", top.Quorum())
	}
	c.expect(i, "OK", "SET lock me NX PX 60000")
	c.expect(0, "nil", "SET lock other NX PX 60000")
	l.more(100)
	l.endWithout("clients of the three were told")
	c.same()
	for _, n := range c.nodes {
		if name := n.cons.Cluster(); name == "" || name != c.nodes[0].cons.Cluster() {
			t.Errorf("the name of the cluster is %q", name)
		}
	}

	// It can lead, too.
	c.transfer(c.nodes[0], i)
	c.transfer(c.nodes[i], 0)
	l = c.startLoad(0, 1, 2)
	l.more(50)
	c.mustRemove(i, "n4") // through itself
	c.voters("n1", "n2", "n3")
	l.more(50)
	l.endWithout("clients of those who stay were told")
	c.until("the removed node's knowing", func() bool { return c.nodes[i].Membership() == Removed })
	if got := c.nodes[i].Submit((&testNode{Node: c.nodes[i], t: t, table: c.cfg[0].Table}).call("GET lock"), nil)[0].Str; got != string(ErrRemoved) {
		t.Errorf("the removed node says %q", got)
	}
	if c.nodes[i].Reaches() || c.nodes[i].Topology().Leader != "" {
		t.Error("the removed node looks as if it could serve")
	}
	c.stop(i)
	c.same()
}

// A dead member is removed, and another node takes its place: with a new id, or with the old id and an empty directory.
func TestReplaceADeadMember(t *testing.T) {
	c, w := wired(t)
	c.start(0, 1, 2)
	dead := c.follower()
	id, stay := c.cfg[dead].ID, []int{(dead + 1) % 3, (dead + 2) % 3}
	l := c.startLoad(stay...)
	l.more(50)
	c.crash(dead)

	// A node with the old id and an empty directory has forgotten its votes, so it is refused.
	again := c.newcomer(w, id, stay...)
	refusals := make(chan error, 10)
	c.cfg[again].Fatal = func(err error) { refusals <- err }
	n, err := Open(c.cfg[again])
	if err != nil {
		t.Fatal(err)
	}
	if err := <-refusals; !strings.Contains(err.Error(), "lockstep remove "+id) {
		t.Errorf("refused with %v", err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}

	// Two of the three members live. Neither of them may be removed, because the other would be no majority.
	for _, i := range stay {
		if err := c.nodes[i].Remove(c.cfg[stay[0]].ID); err == nil || !strings.Contains(err.Error(), "no majority") {
			t.Errorf("a removal that leaves no majority: %v", err)
		}
	}
	c.mustRemove(stay[0], id)
	if err := c.nodes[stay[1]].Remove(id); err == nil || !strings.Contains(err.Error(), ErrNoMember.Error()) {
		t.Errorf("removed twice: %v", err)
	}
	c.cfg[again].Fatal = c.cfg[0].Fatal
	c.start(again)
	c.voters("n1", "n2", "n3")
	next := c.newcomer(w, "n4", stay...)
	c.start(next)
	c.voters("n1", "n2", "n3", "n4")
	l.more(50)
	l.endWithout("clients of those who stay were told")
	c.same()
}

// interrupted is a Sink that counts how often it is told that it misses something.
type interrupted struct {
	notes
	missed atomic.Int32
}

func (s *interrupted) Applied([]byte) {}
func (s *interrupted) Missed()        { s.missed.Add(1) }

var _ store.KeySink = (*interrupted)(nil)

// A node that was taken out while it was away comes back with its old data: it
// disturbs nobody, serves nobody and says why.
func TestRemovedNodeReturns(t *testing.T) {
	// On a loaded machine, short timers cause elections without need.
	c, _ := wired(t, func(cfg *Config) {
		cfg.HeartbeatTimeout, cfg.ElectionTimeout, cfg.LeaderLease = time.Second, time.Second, time.Second
		cfg.FailoverWait = 5 * time.Second
	})
	c.start(0, 1, 2)
	gone := c.follower()
	stay := []int{(gone + 1) % 3, (gone + 2) % 3}
	c.expect(gone, "OK", "SET lock me NX PX 600000")
	c.stop(gone)
	c.mustRemove(stay[0], c.cfg[gone].ID)
	l := c.startLoad(stay...)
	l.more(50)
	leader, term := c.leader(), c.nodes[stay[0]].Status().Term
	for range 2 {
		sink := &interrupted{}
		c.cfg[gone].Sink = sink
		n, err := Open(c.cfg[gone])
		if err != nil {
			t.Fatal(err)
		}
		c.nodes[gone] = n
		c.until("its knowing that it was removed", func() bool { return n.Membership() == Removed })
		if got := c.do(gone, "GET lock"); got != "-CLUSTERDOWN" {
			t.Errorf("the removed node answers %s", got)
		}
		c.until("its sink's knowing", func() bool { return sink.missed.Load() > 0 })
		// The removed node may believe that it has a leader, when the last entries that Raft has for it come late.
		n.setLeader(raftnode.Leadership{ID: c.cfg[leader].ID, Addr: c.cfg[leader].peerAddr()})
		c.until("its believing that it has a leader", func() bool { return n.Membership() != Removed })
		if got := c.do(gone, "GET lock"); got != "-CLUSTERDOWN" {
			t.Errorf("the removed node, with a leader, answers %s", got)
		}
		n.setLeader(raftnode.Leadership{})
		time.Sleep(3 * c.cfg[0].ElectionTimeout) // as long as it takes to disturb an election
		if err := n.Transfer(""); err == nil {
			t.Error("it transfers leadership")
		}
		if err := n.Remove(c.cfg[stay[0]].ID); err == nil {
			t.Error("it removes others")
		}
		c.stop(gone)
	}
	l.more(50)
	l.endWithout("clients of the members were told")
	if c.leader() != leader || c.nodes[leader].Status().Term != term {
		t.Error("the removed node has disturbed the others")
	}
}

// A leader that is removed hands over first: clients of the other nodes see a
// pause, and nothing is executed twice.
func TestRemoveTheLeader(t *testing.T) {
	c, w := wired(t)
	c.start(0, 1, 2)
	c.start(c.newcomer(w, "n4", 0))
	c.voters("n1", "n2", "n3", "n4")
	leader := c.leader()
	var others []int
	for i := range c.nodes {
		if i != leader {
			others = append(others, i)
		}
	}
	l, own := c.startLoad(others...), c.startLoad(leader)
	l.more(50)
	c.mustRemove(leader, c.cfg[leader].ID)
	c.until("its knowing", func() bool { return c.nodes[leader].Membership() == Removed })
	own.stop.Store(true)
	own.clients.Wait()
	c.stop(leader)
	l.more(50)
	l.endWithout("clients of the others were told")
	failed := own.end()
	delete(failed, "-CLUSTERDOWN -CLUSTERDOWN") // once it is removed
	delete(failed, "-INDETERMINATE -INDETERMINATE")
	if len(failed) > 0 {
		t.Errorf("its own clients were told %v", failed)
	}
	c.same()
}

// Every node refuses what an operator may get wrong, with an error that says why.
func TestMembershipRefusals(t *testing.T) {
	c, w := wired(t, func(cfg *Config) { cfg.FailoverWait = 3 * time.Second })
	c.start(0, 1, 2)
	stranger := c.newcomer(w, "n9")
	c.start(stranger) // a cluster of its own
	for i, n := range c.nodes[:3] {
		for what, refused := range map[string]struct {
			err  error
			want string
		}{
			"no address":       {n.Add("n4", "nowhere"), "host:port"},
			"no id":            {n.Add("n 4", "127.0.0.1:1"), "is no id"},
			"address taken":    {n.Add("n4", c.cfg[1].PeerListen), "there is n2, not n4"},
			"another cluster":  {n.Add("n9", c.cfg[stranger].PeerListen), "another cluster"},
			"nobody there":     {n.Add("n2", "127.0.0.1:1"), "nobody answers"},
			"remove a nobody":  {n.Remove("n7"), ErrNoMember.Error()},
			"wrong one there":  {n.Add("n2", c.cfg[2].PeerListen), "there is n3, not n2"},
			"transfer to none": {n.Transfer("n7"), ErrNoSuchMember.Error()},
		} {
			if refused.err == nil || !strings.Contains(refused.err.Error(), refused.want) {
				t.Errorf("n%d: %s: %v", i+1, what, refused.err)
			}
		}
		if err := n.Remove("n7"); !errors.Is(err, ErrNoMember) || strings.Count(err.Error(), ErrNoMember.Error()) != 1 {
			t.Errorf("n%d: a member that there is not: %v", i+1, err)
		}
		if err := n.Add("n2", c.cfg[1].PeerListen); err != nil {
			t.Errorf("n%d: what is so already: %v", i+1, err)
		}
	}
	if err := c.nodes[stranger].Remove("n9"); err == nil || !strings.Contains(err.Error(), "only voting member") {
		t.Errorf("the last one: %v", err)
	}
	c.stop(stranger)
	c.voters("n1", "n2", "n3")
	if err := c.nodes[1].Transfer(c.cfg[c.leader()].ID); err != nil {
		t.Errorf("to whoever leads: %v", err)
	}
}

// Members refuse an entry with more members than a cluster may have: a leader that made one would commit nothing any more.
func TestNoMoreMembersThanMembersAccept(t *testing.T) {
	n := openNode(t, dataConfig(t, t.TempDir()))
	defer closeNode(t, n)
	dead := func(i int) error { return n.Add(fmt.Sprint("x", i), fmt.Sprintf("127.0.0.1:%d", 1+i%7)) }
	for i := range 7 {
		if err := dead(i); err != nil {
			t.Fatal(err)
		}
	}
	for i := 8; i < raftnode.MaxMembers; i++ {
		err := n.cons.Reconfigure(t.Context(), func([]raftnode.Member) (raftnode.Change, error) {
			return raftnode.Change{Kind: raftnode.AddNonVoter, ID: fmt.Sprint("x", i), Addr: fmt.Sprint("host:", i)}, nil
		})
		if err != nil {
			t.Fatalf("member %d: %v", i+1, err)
		}
	}
	if err := n.Add("one-more", "127.0.0.1:9"); err == nil || !strings.Contains(err.Error(), "64 members, and may not have more") {
		t.Errorf("member 65: %v", err)
	}
	for what, c := range map[string]raftnode.Change{
		"member 65":  {Kind: raftnode.AddNonVoter, ID: "one-more", Addr: "host:1000"},
		"an address": {Kind: raftnode.AddVoter, ID: "x3", Addr: "nowhere"},
		"no voter":   {Kind: raftnode.RemoveMember, ID: "n1"},
	} {
		err := n.cons.Reconfigure(t.Context(), func([]raftnode.Member) (raftnode.Change, error) { return c, nil })
		if !errors.Is(err, errNotExecuted) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got := lines(t, n, "SET k v"); got != "OK" {
		t.Errorf("a write afterwards: %s", got)
	}
}

// An operator may announce a node before it starts, and give a member another
// address.
func TestAddBeforeStartAndChangeAddress(t *testing.T) {
	c, w := wired(t)
	c.start(0, 1, 2)
	i := c.newcomer(w, "n4", 0)
	if err := c.nodes[c.follower()].Add("n4", c.cfg[i].PeerListen); err != nil {
		t.Fatal(err)
	}
	c.until("a member that does not answer", func() bool {
		members, err := c.nodes[0].Members()
		return err == nil && len(members) == 4 && !members[3].Voter && !members[3].Up
	})
	c.expect(0, "OK", "SET before v")
	c.start(i)
	c.voters("n1", "n2", "n3", "n4")

	for _, moves := range []int{i, c.leader()} {
		c.stop(moves)
		c.leader()
		c.cfg[moves].PeerListen, c.cfg[moves].Peers, c.cfg[moves].Join = ports.Addrs(t, 1)[0], nil, nil
		w.attach(&c.cfg[moves])
		n, err := Open(c.cfg[moves])
		if err != nil {
			t.Fatal(err)
		}
		c.nodes[moves] = n
		ask := c.nodes[(moves+1)%4]
		c.until("its new address", func() bool {
			err := ask.Add(c.cfg[moves].ID, c.cfg[moves].PeerListen)
			if err != nil {
				t.Log(err)
			}
			return err == nil
		})
		c.until("its serving", n.Ready)
		c.expect(moves, "v", "GET before")
		c.voters("n1", "n2", "n3", "n4")
	}
	c.same()
}

// A node that the leader cannot reach goes on asking, until it can.
func TestJoinWhileTheLeaderCannotReach(t *testing.T) {
	c, w := wired(t)
	c.start(0, 1, 2)
	follower := c.follower()
	i := c.newcomer(w, "n4", follower)
	asked := make(chan string, 100)
	c.cfg[i].Logger = slog.New(slog.NewTextHandler(said(asked), nil))
	c.cfg[i].Fatal = func(err error) { t.Errorf("the new node gives up: %v", err) }
	w.cut([]string{"n4"}, slices.DeleteFunc([]string{"n1", "n2", "n3"}, func(id string) bool { return id == c.cfg[follower].ID }))
	go func() {
		for line := range asked {
			if strings.Contains(line, "cannot reach n4") {
				w.heal()
				return
			}
		}
	}()
	c.start(i) // and waits until it is ready
	c.voters("n1", "n2", "n3", "n4")
	c.same()
}

// said sends what is logged over a channel. It drops a message if nobody receives it at that moment.
type said chan string

func (l said) Write(p []byte) (int, error) {
	select {
	case l <- string(p):
	default:
	}
	return len(p), nil
}
