package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// Every node serves every client: what one has acknowledged, all can read.
func TestThreeNodesServeAsOne(t *testing.T) {
	c := startThree(t)
	c.start(0, 1, 2)
	for i := range 3 {
		c.expect(i, "OK 1", fmt.Sprintf("SET k%d v%d", i, i), "INCR counter"+fmt.Sprint(i))
		for j := range 3 {
			c.expect(j, fmt.Sprintf("v%d 1", i), fmt.Sprintf("GET k%d", i), "GET counter"+fmt.Sprint(i))
		}
	}
	c.expect(c.follower(), "-ERR", "PANIC")
	c.expect(c.follower(), "OK", "SET lock owner-1 NX PX 30000")
	c.expect(c.leader(), "nil", "SET lock owner-2 NX PX 30000")
	// Read your writes, at once, from every node in turn.
	for i := range 60 {
		c.expect(i%3, fmt.Sprint(i+1), "INCR turn")
		c.expect((i+1)%3, fmt.Sprint(i+1), "GET turn")
	}
	l := c.startLoad(0, 1, 2)
	l.more(300)
	if failed := l.end(); len(failed) > 0 {
		t.Errorf("failures without a fault: %v", failed)
	}
	c.same()
	// Messages reach every node in the same order.
	if a := c.sinks[0].all(); len(a) < 300 || !slices.Equal(a, c.sinks[1].all()) || !slices.Equal(a, c.sinks[2].all()) {
		t.Errorf("the nodes published %d, %d and %d messages, or in different orders", len(a), len(c.sinks[1].all()), len(c.sinks[2].all()))
	}
}

func TestMembersAndTransfer(t *testing.T) {
	c := startThree(t)
	c.start(0, 1, 2)
	for round := range 3 {
		from := c.leader()
		to := (from + 1) % 3
		if round == 2 {
			to = (from + 2) % 3 // also from the node that leads
		}
		ask := c.nodes[to]
		if round == 2 {
			ask = c.nodes[from]
		}
		c.transfer(ask, to)
		for i, n := range c.nodes {
			members, err := n.Members()
			if err != nil || len(members) != 3 {
				t.Fatal(members, err)
			}
			for j, m := range members {
				if m.ID != c.cfg[j].ID || m.PeerAddr != c.cfg[j].PeerListen || !m.Voter || m.Leader != (j == to) {
					t.Errorf("n%d sees %+v", i+1, m)
				}
			}
			if id, addr := n.LeaderClient(); id != c.cfg[to].ID || addr != c.cfg[to].Advertise {
				t.Errorf("n%d: leader %s at %q", i+1, id, addr)
			}
		}
		c.expect(from, fmt.Sprint(round+1), "INCR counter")
	}
	for _, n := range c.nodes {
		if err := n.Transfer("n9"); err == nil || !strings.Contains(err.Error(), ErrNoSuchMember.Error()) {
			t.Errorf("transfer to nobody: %v", err)
		}
	}
}

// SCRIPT KILL, FUNCTION KILL and FUNCTION STATS work on every node.
func TestKillIsForwarded(t *testing.T) {
	c := startThree(t, func(cfg *Config) { cfg.Scripts = &killer{cfg.ID} })
	c.start(0, 1, 2)
	leader := c.leader()
	for i, n := range c.nodes {
		if got := n.KillScript(0).Str; got != "killed on "+c.cfg[leader].ID {
			t.Errorf("n%d: %q", i+1, got)
		}
		if got := n.KillFunction(0).Str; got != "function killed on "+c.cfg[leader].ID {
			t.Errorf("n%d: %q", i+1, got)
		}
		if got := n.RunningFunction(0).Str; got != "runs on "+c.cfg[leader].ID {
			t.Errorf("n%d: %q", i+1, got)
		}
	}
}

// The leader refuses to end a script for a client that may no longer do so, even before the client's node knows that.
func TestKillByOldUsers(t *testing.T) {
	c := startThree(t, func(cfg *Config) {
		cfg.Scripts = &killer{cfg.ID}
		cfg.UsersVersion = func() uint64 { return 5 }
	})
	c.start(0, 1, 2)
	n := c.nodes[(c.leader()+1)%3]
	for name, ask := range map[string]func(uint64) store.Reply{"SCRIPT KILL": n.KillScript, "FUNCTION KILL": n.KillFunction, "FUNCTION STATS": n.RunningFunction} {
		if got := ask(4); got.Str != string(store.ErrUsersChanged) {
			t.Errorf("%s by old users: %v", name, got)
		}
		for _, users := range []uint64{5, 6} {
			if got := ask(users); got.Kind == store.Failure {
				t.Errorf("%s by users %d: %v", name, users, got)
			}
		}
	}
}

type killer struct{ id string }

func (k *killer) Kill() store.Reply { return store.Status("killed on " + k.id) }
func (k *killer) KillFunction() store.Reply {
	return store.Status("function killed on " + k.id)
}
func (k *killer) RunningFunction() store.Reply { return store.Status("runs on " + k.id) }
func (k *killer) BusyError() store.Error       { return store.ErrBusyScript }
func (k *killer) TimeLimit() time.Duration     { return 0 }
func (k *killer) Abort()                       {}
func (k *killer) Forget()                      {}
func (k *killer) Settle()                      {}
func (k *killer) Undo()                        {}

// When a leader hands over before it stops, clients of the other nodes see no error.
func TestHandOverUnderLoad(t *testing.T) {
	c := startThree(t)
	c.start(0, 1, 2)
	for range 3 {
		leader := c.leader()
		l := c.startLoad((leader+1)%3, (leader+2)%3)
		l.more(50)
		start := time.Now()
		c.nodes[leader].HandOver()
		givenUp := time.Since(start) >= handoverTimeout
		c.stop(leader)
		l.more(50)
		failed := l.end()
		if givenUp { // a machine so busy that no election succeeds
			t.Log("leadership was not handed over in time")
			delete(failed, "-INDETERMINATE -INDETERMINATE")
		}
		if len(failed) > 0 {
			t.Errorf("clients of the survivors were told %v", failed)
		}
		c.start(leader)
		c.same()
	}
}

// The death of a leader is only a pause for the clients of other nodes: no error, and nothing is executed twice.
func TestCrashOfTheLeader(t *testing.T) {
	c := startThree(t)
	c.start(0, 1, 2)
	for range 3 {
		leader := c.leader()
		doomed, l := c.startLoad(leader), c.startLoad((leader+1)%3, (leader+2)%3)
		l.more(100)
		c.crash(leader)
		l.more(100)
		if c.leader() == leader {
			t.Error("no service")
		}
		if failed := l.end(); len(failed) > 0 {
			t.Errorf("clients of the survivors were told %v", failed)
		}
		failed := doomed.end()
		delete(failed, "-INDETERMINATE -INDETERMINATE") // what was in flight
		if failed["-CLUSTERDOWN -CLUSTERDOWN"] > 4 || len(failed) > 1 {
			t.Errorf("clients of the dead node were told %v", failed)
		}
		c.start(leader)
		c.same()
		c.expect(leader, "OK", "SET after v")
	}
}

// After a restart of all nodes everything that was acknowledged is there, and
// old messages are not sent again.
func TestRestartOfAll(t *testing.T) {
	c := startThree(t)
	c.start(0, 1, 2)
	l := c.startLoad(0, 1, 2)
	l.more(200)
	for i := range 3 {
		c.crash(i)
	}
	l.stop.Store(true)
	l.clients.Wait()
	before := slices.Clone(c.sinks)
	c.start(0, 1, 2)
	l.check()
	c.expect(0, "0", "PUBLISH news x")
	c.same()
	for i := range 3 {
		// A node that lacked a message before the restart takes it for new afterwards.
		got, old := c.sinks[i].all(), before[i].all()
		for _, message := range got {
			if slices.Contains(old, message) {
				t.Errorf("n%d sent %q again", i+1, message)
			}
		}
		if len(old) < 100 || len(got) == 0 || got[len(got)-1] != "news x" {
			t.Errorf("n%d sent %d messages before the restart, and then %q", i+1, len(old), got)
		}
	}
}

// A node was away for so long that the leader's log no longer begins early enough for it. It catches up by a snapshot.
func TestLaggingNodeGetsASnapshot(t *testing.T) {
	c := startThree(t, func(cfg *Config) {
		cfg.SnapshotThreshold, cfg.SnapshotInterval, cfg.TrailingLogs = 40, 20*ms, 5
	})
	c.start(0, 1, 2)
	away := c.follower()
	c.expect(away, "OK", "SET before v")
	c.same()
	last, err := raftOf(c.nodes[away]).Dir.Log.LastIndex()
	if err != nil {
		t.Fatal(err)
	}
	c.stop(away)
	on := c.leader()
	first := func(i int) uint64 {
		index, err := raftOf(c.nodes[i]).Dir.Log.FirstIndex()
		if err != nil {
			t.Fatal(err)
		}
		return index
	}
	k := 0
	for ; first(on) <= last+1; k++ {
		c.expect(on, "OK 0", fmt.Sprintf("SET k%d v PX 3600000", k), fmt.Sprintf("PUBLISH news %d", k))
		if k > 5000 {
			t.Fatal("the log is not shortened")
		}
	}
	c.start(away)
	c.same()
	// The first messages may still come by the log, in a request that the leader had made before it shortened the log.
	if heard := c.sinks[away].all(); len(heard) >= k {
		t.Errorf("the node caught up by the log: it has heard %d of %d messages", len(heard), k)
	}
	if n := c.nodes[away].Status(); n.Keys[0] < 20 || n.Deadlines[0] != n.Keys[0]-1 {
		t.Errorf("%d keys, %d deadlines", n.Keys[0], n.Deadlines[0])
	}
	c.transfer(c.nodes[away], away)
	c.expect(on, "v OK", "GET before", "SET k v")
	c.same()
	if err := c.nodes[on].Snapshot(); err != nil {
		t.Error(err)
	}
}

// TestTransferWaitsForALeader: a transfer that is asked for while there is no leader waits for one.
func TestTransferWaitsForALeader(t *testing.T) {
	c := startThree(t, func(cfg *Config) { cfg.FailoverWait = 30 * time.Second })
	c.start(0, 1, 2)
	one := c.leader()
	others := []int{(one + 1) % 3, (one + 2) % 3}
	for _, i := range others {
		c.crash(i)
	}
	c.until("no leader", func() bool { return c.nodes[one].routes.get().seq == nil })
	handed := make(chan error, 1)
	go func() { handed <- c.nodes[one].Transfer("") }()
	select {
	case err := <-handed:
		t.Fatalf("without a leader: %v", err)
	case <-time.After(200 * ms):
	}
	c.start(others...)
	// The heir may not have answered yet.
	if err := <-handed; err != nil && !errors.Is(err, ErrNoHeir) {
		t.Errorf("with a leader: %v", err)
	}
}

// Without a majority no request is acknowledged. The replies say which requests certainly had no effect.
func TestNoMajority(t *testing.T) {
	c := startThree(t, func(cfg *Config) { cfg.FailoverWait = 700 * ms })
	c.start(0, 1, 2)
	leader := c.leader()
	c.crash((leader + 1) % 3)
	c.crash((leader + 2) % 3)
	c.until("an answer without a majority", func() bool {
		got := c.do(leader, "INCR counter")
		if got != "-INDETERMINATE" && got != "-CLUSTERDOWN" {
			t.Errorf("got %q", got)
		}
		return got == "-CLUSTERDOWN"
	})
	c.expect(leader, "-CLUSTERDOWN", "GET counter")
	if err := c.nodes[leader].Transfer(""); !errors.Is(err, ErrNoLeader) {
		t.Errorf("transfer: %v", err)
	}
	if c.nodes[leader].Reaches() {
		t.Error("ready without a majority")
	}
	c.start((leader + 1) % 3)
	c.until("service", func() bool { return c.do(leader, "SET k v") == "OK" })
}
