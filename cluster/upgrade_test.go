package cluster

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/call"
	"github.com/lockstep-io/lockstep/cluster/internal/clustertest"
	"github.com/lockstep-io/lockstep/cluster/internal/forward"
	"github.com/lockstep-io/lockstep/store"
)

// heldLocks takes locks through all nodes. It returns a function that checks, through the given nodes, that each lock still
// belongs to its owner.
func (c *three) heldLocks(count int) (check func(through ...int)) {
	c.t.Helper()
	for i := range count {
		c.expect(i%3, "OK", fmt.Sprintf("SET held:%d owner-%d NX PX 600000", i, i))
	}
	return func(through ...int) {
		c.t.Helper()
		for _, on := range through {
			for i := range count {
				c.expect(on, fmt.Sprintf("owner-%d nil", i), fmt.Sprintf("GET held:%d", i), fmt.Sprintf("SET held:%d thief NX PX 10", i))
			}
		}
	}
}

// upgrade stops a node as SIGTERM does, and starts it with another version of the program.
func (c *three) upgrade(i int, speaks forward.Version) {
	c.nodes[i].HandOver()
	c.stop(i)
	c.cfg[i].speaks = speaks
}

// While nodes are upgraded to a later minor version, clients of the others notice nothing, and every lock stays.
func TestUpgradeOfAMinorVersion(t *testing.T) {
	c := startThree(t)
	c.start(0, 1, 2)
	check := c.heldLocks(30)
	first := c.leader()
	for _, i := range []int{(first + 1) % 3, (first + 2) % 3, first} {
		load := c.startLoad((i+1)%3, (i+2)%3)
		load.more(50)
		c.upgrade(i, forward.Version{Major: forward.Major, Minor: forward.Minor + 1})
		load.more(50)
		c.start(i)
		c.leader()
		load.more(50)
		if failed := load.end(); len(failed) > 0 {
			t.Errorf("while n%d was upgraded clients were told %v", i+1, failed)
		}
		check(0, 1, 2)
	}
	c.same()
}

// Nodes of two major versions forward nothing to each other, and say which must be upgraded.
func TestUpgradeOfAMajorVersion(t *testing.T) {
	logs := make([]clustertest.Buffer, 3)
	c := startThree(t)
	for i := range c.cfg {
		c.cfg[i].Logger = slog.New(slog.NewTextHandler(&logs[i], nil))
	}
	c.start(0, 1, 2)
	check := c.heldLocks(10)
	leader := c.leader()
	new, other := (leader+1)%3, (leader+2)%3
	later := forward.Version{Major: forward.Major + 1, Minor: 0}
	load := c.startLoad(leader, other)

	c.upgrade(new, later)
	c.cfg[new].FailoverWait = 500 * ms
	c.sinks[new] = &notes{}
	n, err := Open(c.cfg[new])
	if err != nil {
		t.Fatal(err)
	}
	c.nodes[new] = n
	c.until("the leader to refuse the new node", func() bool { // on a busy machine another node may lead by now
		return strings.Contains(logs[leader].String()+logs[other].String(), "upgrade this node")
	})
	c.until("the new node to say why", func() bool { return strings.Contains(logs[new].String(), "upgrade the other node") })
	if n.Ready() {
		t.Error("a node that cannot reach its leader is ready")
	}
	c.expect(new, "-CLUSTERDOWN", "SET lock me NX PX 10000")
	c.until("the new node to apply what the others do", func() bool {
		return n.Status().Applied >= c.nodes[leader].Status().Applied
	})
	load.more(50)
	load.stop.Store(true)
	load.clients.Wait()
	check(leader, other)

	c.upgrade(other, later)
	c.upgrade(leader, later)
	c.start(other, leader)
	c.stop(new)
	c.cfg[new].FailoverWait = 20 * time.Second
	c.start(new)
	if failed := load.end(); len(failed) > 0 {
		t.Errorf("clients of the old version were told %v", failed)
	}
	check(0, 1, 2)
	c.same()
}

// TestCommandThatTheLeaderDoesNotKnow: a command of a later version gets an error from the leader, and the link of its node stays.
func TestCommandThatTheLeaderDoesNotKnow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		run := func(*store.Ctx) store.Reply { return store.OK }
		newer := []store.Command{{Name: "newer", Flags: store.Write, Run: run}, {Name: "newerwaits", Flags: store.Write | store.Blocking, Run: run}}
		p := newPair(t)
		p.b.cfg.Table = store.NewTable(store.Commands(), newer)
		p.keepLinked()
		before := p.b.routes.get().link
		calls := func(lines ...string) (list []Call) {
			for _, line := range lines {
				c := Call{RESP: 2}
				for _, word := range strings.Fields(line) {
					c.Args = append(c.Args, []byte(word))
				}
				c.Cmd, _ = p.b.cfg.Table.Resolve(c.Args)
				list = append(list, c)
			}
			return list
		}
		const want = "ERR unknown command 'newer' on the leader, which runs an older version: upgrade all nodes"
		if got := p.b.Submit(calls("newer"), nil); got[0].Str != want {
			t.Errorf("told %v", got)
		}
		if got := p.b.Submit([]Call{{Cmd: call.Exec, Txn: &Transaction{Calls: calls("SET a b", "newer")}}}, nil); got[0].Str != "EXECABORT Transaction discarded because of: "+want[len("ERR "):] {
			t.Errorf("told %v", got)
		}
		if got := p.b.Submit([]Call{{Cmd: &newer[0], Args: [][]byte{{}}, RESP: 2}}, nil); !strings.HasPrefix(got[0].Str, "ERR unknown command ''") {
			t.Errorf("told of a command without a name: %v", got)
		}
		told := make(chan store.Reply, 1)
		p.b.Block(&Blocked{Call: calls("newerwaits 0")[0], Done: func(r store.Reply) { told <- r }})
		if got := <-told; !strings.HasPrefix(got.Str, "ERR unknown command 'newerwaits'") {
			t.Errorf("told %v", got)
		}
		p.expect("nil", "GET a")
		if p.b.routes.get().link != before {
			t.Error("the link was lost")
		}
	})
}
