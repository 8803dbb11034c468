package cluster

import (
	"sync/atomic"
	"testing"
	"time"
)

// write makes an entry, and returns how long that took.
func (c *bubbled) write(i int) time.Duration {
	c.t.Helper()
	asked := time.Now()
	c.expect(i, "OK", "SET key value")
	return time.Since(asked)
}

// A follower whose clients listen for messages learns at once that an entry is committed, even if no entry follows.
func TestRealRaftMessagesReachFollowersAtOnce(t *testing.T) {
	const leader = 0
	var listens [3]atomic.Bool
	inBubble(t, func(c *bubbled) {
		c.transfer(c.nodes[leader], leader)
		// heard publishes a message, and returns the time until the message is at a follower.
		heard := func(i int) time.Duration {
			before, published := len(c.sinks[i].all()), time.Now()
			c.expect(leader, "0", "PUBLISH channel message")
			for len(c.sinks[i].all()) == before {
				time.Sleep(bubbleDelay / 3)
			}
			return time.Since(published)
		}
		for _, i := range []int{1, 2} {
			listens[i].Store(true)
			time.Sleep(100 * ms) // until the leader knows, and nothing is under way
			for range 10 {
				// Three messages are needed: the entry, which may wait behind another request, its acknowledgement, and the
				// commit index.
				if took := heard(i); took > 6*bubbleDelay {
					t.Errorf("a message was at n%d after %v", i+1, took)
				}
				c.write(leader) // after a write, the leader may put off entries for a follower that it does not need
				time.Sleep(2 * bubbleDelay)
			}
			listens[i].Store(false)
			time.Sleep(100 * ms)
			longest := time.Duration(0)
			for range 20 { // at times Raft happens to send the commit index just then
				longest = max(longest, heard(i))
			}
			if longest < 5*ms {
				t.Errorf("a message was at n%d, whose clients do not listen, after %v: told in vain", i+1, longest)
			}
		}
		c.same()
	}, func(cfg *Config) {
		here := &listens[cfg.ID[1]-'1']
		cfg.Listens = here.Load
	})
}
