package cluster

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// A replaced leader must not take the answer of a member without a vote for proof that it leads. The lease of n1 is long.
func TestReadsAreConfirmedByVoters(t *testing.T) {
	c, w := wired(t, func(cfg *Config) {
		cfg.FailoverWait = time.Second
		cfg.PromoteAfter = time.Hour
		cfg.HeartbeatTimeout, cfg.ElectionTimeout, cfg.LeaderLease = 1500*ms, 1500*ms, 1500*ms
		if cfg.ID == "n1" {
			cfg.HeartbeatTimeout, cfg.ElectionTimeout, cfg.LeaderLease = 6*time.Second, 6*time.Second, 6*time.Second
		}
	})
	for i := range c.cfg {
		c.cfg[i].PromoteAfter = time.Hour
	}
	c.start(0, 1, 2)
	c.transfer(c.nodes[1], 0)
	i := c.newcomer(w, "n4", 0)
	c.cfg[i].HeartbeatTimeout, c.cfg[i].ElectionTimeout, c.cfg[i].LeaderLease = 6*time.Second, 6*time.Second, 6*time.Second
	c.start(i)
	c.until("its being a member", func() bool { return c.nodes[i].Membership() == NonVoter })
	c.expect(0, "OK old", "SET owner old", "GET owner")
	w.cut([]string{"n1", "n4"}, []string{"n2", "n3"})
	next := c.leaderAmong([]int{1, 2})
	c.expect(next, "OK", "SET owner new")
	if r := raftOf(c.nodes[0]).Raft; r.State() != raft.Leader {
		t.Skip("the machine is too slow: the old leader has found out already")
	}
	if got := c.do(0, "GET owner"); got == "old" {
		t.Error("a leader that has been replaced answers a read")
	}
}

// A follower that does not answer delays one read, and not for long. If no follower is left, no read is answered.
func TestReadsWhileAFollowerIsCutOff(t *testing.T) {
	inBubble(t, func(c *bubbled) {
		leader := c.leader()
		c.expect(leader, "OK", "SET k v")
		for _, away := range []int{(leader + 1) % 3, (leader + 2) % 3} {
			c.alone(away)
			slow := 0
			for range 20 {
				start := time.Now()
				c.expect(leader, "v", "GET k")
				switch took := time.Since(start); {
				case took > 5*ms+10*ms:
					t.Errorf("a read took %v", took)
				case took > 4*bubbleDelay+ms:
					slow++
				}
			}
			if slow > 1 {
				t.Errorf("%d of 20 reads waited for who is cut off", slow)
			}
			c.wires.heal()
			c.expect(away, "v", "GET k")
			time.Sleep(time.Second)
		}
		c.alone(leader)
		read := c.ask(leader, "GET k")
		wait := c.cfg[leader].FailoverWait
		c.mustTell(read, "a read of a leader that is alone", "-CLUSTERDOWN", time.Now(), wait, wait+time.Second)
	})
}
