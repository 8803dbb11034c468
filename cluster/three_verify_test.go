package cluster

import (
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// A leader that is cut off together with a member that has no vote must not take
// that one's word for leading still: the others have another leader by now. Here
// its lease is long, so that nothing else stops it from answering.
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
	if r := c.nodes[0].cons.(*raftLog).raft; r.State() != raft.Leader {
		t.Skip("the machine is too slow: the old leader has found out already")
	}
	if got := c.do(0, "GET owner"); got == "old" {
		t.Error("a leader that has been replaced answers a read")
	}
}

// A confirmation counts only if it was asked for after the read, in this term,
// by a voter.
func TestWhoConfirmsARead(t *testing.T) {
	conf := raft.Configuration{Servers: []raft.Server{{ID: "n1"}, {ID: "n2"}, {ID: "n3"}, {ID: "n4", Suffrage: raft.Nonvoter}}}
	for what, c := range map[string]struct {
		acks map[raft.ServerID]ack
		want bool
	}{
		"nobody":                {nil, false},
		"a voter":               {map[raft.ServerID]ack{"n3": {term: 7, sent: 11}}, true},
		"asked before":          {map[raft.ServerID]ack{"n2": {term: 7, sent: 10}, "n3": {term: 7, sent: 3}}, false},
		"in another term":       {map[raft.ServerID]ack{"n2": {term: 6, sent: 11}, "n3": {term: 8, sent: 11}}, false},
		"one without a vote":    {map[raft.ServerID]ack{"n4": {term: 7, sent: 11}}, false},
		"one that is no member": {map[raft.ServerID]ack{"n9": {term: 7, sent: 11}}, false},
	} {
		tr := &transport{acks: c.acks}
		if got := tr.followed("n1", conf, 7, 10); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
	alone := raft.Configuration{Servers: []raft.Server{{ID: "n1"}, {ID: "n4", Suffrage: raft.Nonvoter}}}
	if !(&transport{}).followed("n1", alone, 7, 10) {
		t.Error("the only voter confirms itself")
	}
}

// As many as make a majority are asked first, those who answered last.
func TestWhoIsAskedToConfirm(t *testing.T) {
	conf := raft.Configuration{Servers: []raft.Server{{ID: "n1"}, {ID: "n2"}, {ID: "n3"}, {ID: "n4", Suffrage: raft.Nonvoter}, {ID: "n5"}, {ID: "n6"}}}
	tr := &transport{acks: map[raft.ServerID]ack{"n3": {term: 7, sent: 3}, "n4": {term: 7, sent: 9}, "n5": {term: 7, sent: 8}}}
	for voters, want := range [][]raft.ServerID{2: {"n2"}, 3: {"n3"}, 4: {"n5", "n3"}, 5: {"n5", "n3"}} {
		var some raft.Configuration
		count := 0
		for _, s := range conf.Servers {
			if s.Suffrage == raft.Nonvoter {
				some.Servers = append(some.Servers, s)
			} else if count < voters {
				some.Servers = append(some.Servers, s)
				count++
			}
		}
		var got []raft.ServerID
		for _, s := range tr.quickest("n1", some) {
			got = append(got, s.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("of %d voters %v are asked, want %v", voters, got, want)
		}
	}
}

// A follower that does not answer holds a read up once, and not for long. With no
// follower left there is no read.
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
				case took > patience+10*ms:
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
