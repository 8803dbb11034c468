package cluster

import (
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/clustertest"
)

// promised is for how long a follower promises to send no vote (package raftnode).
const promised = 100 * ms

func leaseReads(cfg *Config) { cfg.LeaseReads = true }

// readsFor reads through a node for the time d. It counts the reads, and those for which the leader had to ask a follower.
func (c *bubbled) readsFor(i int, d time.Duration, want string) (reads, asked int) {
	c.t.Helper()
	for begin := time.Now(); time.Since(begin) < d; time.Sleep(ms) {
		start := time.Now()
		c.expect(i, want, "GET k")
		reads++
		if time.Since(start) >= 2*bubbleDelay {
			asked++
		}
	}
	return reads, asked
}

// If the leader and a follower have LeaseReads, the leader asks its followers only now and then. Otherwise it asks them for each
// read.
func TestLeaseReads(t *testing.T) {
	clustertest.Slow(t)
	for what, c := range map[string]struct {
		with  []string // ids
		asked func(asked, reads int) bool
	}{
		"nobody makes promises":    {nil, func(asked, reads int) bool { return asked == reads }},
		"all do":                   {[]string{"n1", "n2", "n3"}, func(asked, reads int) bool { return asked <= reads/20 }},
		"the followers do not":     {[]string{"n1"}, func(asked, reads int) bool { return asked == reads }},
		"the leader does not read": {[]string{"n2", "n3"}, func(asked, reads int) bool { return asked == reads }},
		"one follower does":        {[]string{"n1", "n3"}, func(asked, reads int) bool { return asked <= reads/20 }},
	} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(b *bubbled) {
				if b.leader() != 0 {
					b.transfer(b.nodes[0], 0)
				}
				b.expect(0, "OK", "SET k v")
				if reads, asked := b.readsFor(0, 2*time.Second, "v"); !c.asked(asked, reads) {
					t.Errorf("%d of %d reads asked a follower", asked, reads)
				}
			}, func(cfg *Config) {
				for _, id := range c.with {
					cfg.LeaseReads = cfg.LeaseReads || cfg.ID == id
				}
			})
		})
	}
}

// While a leader relies on a follower's promise, nobody else is elected, even after the follower has restarted.
func TestNoElectionWhileALeaderReads(t *testing.T) {
	const deaf = 300 * ms // shorter than Raft's wait before an election, longer than a promise
	for what, prepare := range map[string]func(c *bubbled, leader, candidate, voter int){
		"both have promised": func(*bubbled, int, int, int) {},
		"the candidate alone": func(c *bubbled, leader, _, voter int) {
			c.wires.cut([]string{c.cfg[leader].ID}, []string{c.cfg[voter].ID})
			c.readsFor(leader, deaf, "old")
		},
		"the voter alone": func(c *bubbled, leader, candidate, _ int) {
			c.wires.cut([]string{c.cfg[leader].ID}, []string{c.cfg[candidate].ID})
			c.readsFor(leader, deaf, "old")
		},
		"the voter alone, before it was started again": func(c *bubbled, leader, candidate, voter int) {
			c.wires.cut([]string{c.cfg[leader].ID}, []string{c.cfg[candidate].ID})
			c.readsFor(leader, deaf, "old")
			c.wires.cut([]string{c.cfg[leader].ID}, []string{c.cfg[voter].ID})
			c.crash(voter)
			n, err := Open(c.cfg[voter])
			if err != nil {
				c.t.Fatal(err)
			}
			c.nodes[voter] = n
		},
	} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(c *bubbled) {
				leader := c.leader()
				candidate, voter := (leader+1)%3, (leader+2)%3
				c.expect(leader, "OK", "SET k old")
				c.readsFor(leader, 200*ms, "old")
				prepare(c, leader, candidate, voter)
				c.alone(leader)
				start := time.Now()
				c.expect(leader, "old", "GET k") // the leader relies on the promises, because nobody hears it
				if took := time.Since(start); took != 0 {
					t.Fatalf("a read that needs nobody took %v", took)
				}
				if err := c.nodes[candidate].cons.Campaign(); err != nil {
					t.Fatal(err)
				}
				next := c.leaderOf(candidate, voter)
				c.expect(next, "OK", "SET k new")
				if took := time.Since(start); took > 2*promised+50*ms {
					t.Fatalf("another leader has written after %v: Raft's timers have elected it", took)
				}
				if got := c.do(leader, "GET k"); got == "old" {
					t.Error("a leader that was replaced reads by its lease")
				}
			}, leaseReads)
		})
	}
}

// A handover waits until the followers' promises have ended, and succeeds.
func TestHandoverWithLeaseReads(t *testing.T) {
	inBubble(t, func(c *bubbled) {
		for range 10 {
			leader := c.leader()
			c.readsFor(leader, 200*ms, "nil")
			next := (leader + 1) % 3
			start := time.Now()
			if err := c.nodes[leader].Transfer(c.cfg[next].ID); err != nil {
				t.Fatal(err)
			}
			c.until("the handover", func() bool { return c.nodes[next].routes.get().seq != nil })
			if took := time.Since(start); took > promised+50*ms {
				t.Errorf("a handover took %v", took)
			}
		}
	}, leaseReads)
}
