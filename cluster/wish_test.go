package cluster

import (
	"strings"
	"testing"
	"time"
)

// wishing returns three nodes with wishes, which yield soon.
func wishing(t *testing.T, wishes ...Wish) *three {
	c := startThree(t, discoverable, func(cfg *Config) { cfg.YieldAfter = time.Second })
	for i, w := range wishes {
		c.cfg[i].Wish = w
		c.cfg[i].Version = "1.2.3"
	}
	return c
}

// ledBy waits until a node leads.
func (c *three) ledBy(i int) {
	c.t.Helper()
	c.until(c.cfg[i].ID+" to lead", func() bool { return c.nodes[i] != nil && c.nodes[i].routes.get().seq != nil })
}

// Who never leads hands over to the one that may, and leads while that one is down: only it may have the last writes.
func TestNeverLead(t *testing.T) {
	c := wishing(t, Wish{Never: true}, Wish{Never: true}, Wish{})
	c.start(0, 1, 2)
	c.ledBy(2)
	c.expect(0, "OK", "SET lock me NX PX 60000")
	c.crash(2)
	c.until("another to lead", func() bool { return c.nodes[0].routes.get().seq != nil || c.nodes[1].routes.get().seq != nil })
	c.expect(0, "nil", "SET lock other NX PX 60000")
	c.start(2)
	c.ledBy(2)
	c.expect(1, "nil", "SET lock other NX PX 60000")
	if err := c.nodes[2].Transfer("n1"); err == nil || !strings.Contains(err.Error(), "n1 runs with --never-lead") {
		t.Errorf("a transfer to n1: %v", err)
	}
	members, err := c.nodes[0].Members()
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range members {
		if m.Version != "1.2.3" || m.Wish != c.cfg[i].Wish {
			t.Errorf("%s is known as %q, %+v", m.ID, m.Version, m.Wish)
		}
	}
	// A leader that stops hands over to one that never leads only if it must.
	c.nodes[2].HandOver()
	c.until("another to lead", func() bool { return c.nodes[0].routes.get().seq != nil || c.nodes[1].routes.get().seq != nil })
	c.stop(2)
	c.expect(0, "nil", "SET lock other NX PX 60000")
}

// The voter with the highest priority leads, whoever led before, as soon as it keeps up.
func TestLeadPriority(t *testing.T) {
	c := wishing(t, Wish{Priority: 1}, Wish{Priority: 5}, Wish{})
	c.start(0, 2)
	c.ledBy(0)
	c.expect(0, "OK", "SET lock me NX PX 60000")
	c.start(1)
	c.ledBy(1)
	leads := time.Now()
	for i := range c.nodes {
		c.until("each to know the new leader", func() bool { return c.nodes[i].Status().LeaderID == "n2" })
		if since := c.nodes[i].Status().LeaderFor; since > time.Since(leads)+time.Second {
			t.Errorf("n%d says that n2 leads for %v", i+1, since)
		}
		c.expect(i, "nil", "SET lock other NX PX 60000")
	}
}

// A learner stays without a vote, serves, and counts for no majority.
func TestLearner(t *testing.T) {
	c, w := wired(t)
	c.start(0, 1, 2)
	i := c.newcomer(w, "n4", 0)
	c.cfg[i].Wish.Learner = true
	c.start(i)
	c.expect(i, "OK", "SET lock me NX PX 60000")
	c.until("all to know that it wants no vote", func() bool { return c.nodes[0].peers.Wish("n4").Learner })
	j := c.newcomer(w, "n5", 0)
	c.start(j)
	c.voters("n1", "n2", "n3", "n5") // n4 came earlier, and kept up as well
	if m := c.nodes[i].Membership(); m != NonVoter {
		t.Errorf("n4 is a %s", m)
	}
	c.expect(i, "nil", "SET lock other NX PX 60000")
	for _, fault := range []Config{{Wish: Wish{Learner: true}}, {Wish: Wish{Priority: 1001}}, {Wish: Wish{Priority: -1}}} {
		cfg := Default()
		cfg.Wish = fault.Wish
		if cfg.Validate() == nil {
			t.Errorf("%+v is accepted", fault.Wish)
		}
	}
}
