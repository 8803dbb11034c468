package cluster

import (
	"testing"

	"github.com/lockstep-io/lockstep/store"
)

// The blocking commands of a node's clients end when the node has been removed: without a timeout they would wait for ever.
func TestBlockedAtARemovedNode(t *testing.T) {
	inBubble(t, func(c *bubbled) {
		gone := c.follower()
		n, stays := c.nodes[gone], (gone+1)%3
		block := func(line string) chan string {
			got := make(chan string, 1)
			tn := &testNode{Node: n, t: t, table: n.cfg.Table}
			n.Block(&Blocked{Call: tn.call(line)[0], Done: func(r store.Reply) { got <- text([]store.Reply{r}) }})
			n.Flush()
			return got
		}
		sent := block("BLPOP list 0")
		c.until("it to wait", func() bool {
			n.blockRegistry.mu.Lock()
			defer n.blockRegistry.mu.Unlock()
			for _, b := range n.blockRegistry.all {
				if b.waits {
					return true
				}
			}
			return false
		})
		c.mustRemove(stays, c.cfg[gone].ID)
		c.until("its knowing", func() bool { return n.Membership() == Removed })
		late := block("BLPOP list 0")
		told := func(what string, got chan string, want string) {
			c.until(what+" to be told", func() bool { return len(got) > 0 })
			if s := <-got; s != want {
				t.Errorf("%s was told %q, want %q", what, s, want)
			}
		}
		told("a client that waited at the leader", sent, "-INDETERMINATE")
		told("a client that came after the removal", late, "-CLUSTERDOWN")
		c.expect(stays, "1", "RPUSH list x")
		c.expect(stays, "[x]", "LRANGE list 0 -1")
	})
}
