package cluster

import (
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/peers"
)

// A removed node that keeps running is not taken for the new node with its id, even if it asks the members first.
func TestRemovedNodeRunsWhileItIsReplaced(t *testing.T) {
	c, w := wired(t, discoverable)
	c.start(0, 1, 2)
	gone := c.follower()
	id, stay := c.cfg[gone].ID, []int{(gone + 1) % 3, (gone + 2) % 3}
	c.stop(gone)
	c.start(gone) // the process that has founded the cluster would end when it hears of the new directory
	c.expect(gone, "OK", "SET lock me")
	c.mustRemove(stay[0], id)
	c.until("its knowing", func() bool { return c.nodes[gone].Membership() == Removed })
	again := c.newcomer(w, id, stay...)
	if err := c.nodes[stay[0]].Add(id, c.cfg[again].PeerListen); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * peers.Period) // the old node asks the members meanwhile
	c.start(again)
	c.voters("n1", "n2", "n3")
	c.expect(again, "me", "GET lock")
	for _, i := range stay {
		if dir := raftOf(c.nodes[i]).Dir; !dir.Knows([]byte(id), []byte(c.nodes[again].cons.Directory())) {
			t.Errorf("%s has not met the new node's directory", c.cfg[i].ID)
		}
	}
	if got := c.nodes[gone].Membership(); got != Removed {
		t.Errorf("the old node is a %s", got)
	}
	// The new node counts for a majority.
	leader := c.leader()
	if leader == again {
		leader = stay[0]
	}
	c.crash(leader)
	c.until("a leader", func() bool { return c.nodes[again].Reaches() })
	c.expect(again, "me", "GET lock")
}
