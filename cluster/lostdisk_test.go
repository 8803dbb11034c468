package cluster

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/lockstep-io/lockstep/cluster/internal/datadir"
)

// allMet waits until every running node has met all others' directories.
func (c *three) allMet() {
	c.t.Helper()
	c.until("all to have met all", func() bool {
		for i, n := range c.nodes {
			for j, other := range c.nodes {
				if n == nil || other == nil || i == j {
					continue
				}
				dir := raftOf(n).Dir
				if _, same := dir.Met([]byte(other.cfg.ID), []byte(other.cons.Directory())); !same {
					return false
				}
			}
		}
		return true
	})
}

// askVote makes a node ask another one for a vote. The term and the log in the request are good enough for the vote.
func (c *three) askVote(from, of int) error {
	by := raftOf(c.nodes[from])
	req := &raft.RequestVoteRequest{
		RPCHeader: by.Header,
		Term:      c.nodes[of].term() + 1, LastLogIndex: 1 << 32, LastLogTerm: c.nodes[of].term() + 1, LeadershipTransfer: true,
	}
	return by.Transport.RequestVote(raft.ServerID(c.cfg[of].ID), raft.ServerAddress(c.cfg[of].PeerListen), req, &raft.RequestVoteResponse{})
}

// TestVoterThatLostItsDisk: a voter that restarts without its disk must not form a majority with a node that does not know a
// lock.
func TestVoterThatLostItsDisk(t *testing.T) {
	c, w := wired(t, discoverable)
	c.start(0, 1, 2)
	c.allMet()
	leader := c.leader()
	forgetful, behind := (leader+1)%3, (leader+2)%3
	c.stop(behind)
	c.expect(leader, "OK", "SET lock owner")
	c.stop(leader)
	c.stop(forgetful)

	if err := os.RemoveAll(c.cfg[forgetful].Data); err != nil {
		t.Fatal(err)
	}
	fatal := make(chan error, 1)
	serious := c.cfg[forgetful].Fatal
	c.cfg[forgetful].Fatal = func(err error) { fatal <- err }
	for _, i := range []int{behind, forgetful} {
		c.sinks[i] = &notes{}
		c.cfg[i].Sink = c.sinks[i]
		n, err := Open(c.cfg[i])
		if err != nil {
			t.Fatal(err)
		}
		c.nodes[i] = n
	}
	why := (<-fatal).Error()
	for _, want := range []string{c.cfg[forgetful].Data, "lockstep remove " + c.cfg[forgetful].ID, "--join"} {
		if !strings.Contains(why, want) {
			t.Errorf("the node stops with %q, want %q in it", why, want)
		}
	}
	// Even if the node that lost its disk went on, it would give the other no vote, and get none.
	if err := c.askVote(behind, forgetful); !errors.Is(err, datadir.ErrOtherDirectory) {
		t.Errorf("the vote of the node that lost its disk: %v", err)
	}
	if err := c.askVote(forgetful, behind); err == nil || !strings.Contains(err.Error(), datadir.ErrOtherDirectory.Error()) {
		t.Errorf("a vote for the node that lost its disk: %v", err)
	}
	for _, i := range []int{behind, forgetful} {
		if l := c.nodes[i].leading(); l.ID != "" {
			t.Errorf("%s is led by %s, and the lock is lost", c.cfg[i].ID, l.ID)
		}
	}
	c.stop(forgetful)

	c.start(leader)
	c.until("a leader", func() bool { return c.nodes[behind].Reaches() && c.nodes[leader].Reaches() })
	c.expect(behind, "owner", "GET lock")

	// The operator does what the error message says.
	id := c.cfg[forgetful].ID
	c.mustRemove(leader, id)
	if err := os.RemoveAll(c.cfg[forgetful].Data); err != nil {
		t.Fatal(err)
	}
	c.cfg[forgetful].Fatal = serious
	c.cfg[forgetful].Peers, c.cfg[forgetful].Join = nil, []string{c.cfg[leader].PeerListen, c.cfg[behind].PeerListen}
	w.attach(&c.cfg[forgetful])
	c.start(forgetful)
	c.voters("n1", "n2", "n3")
	c.allMet()
	c.expect(forgetful, "owner", "GET lock")
	// After a restart of all, the other members still know the node by its new directory.
	for i := range c.nodes {
		c.stop(i)
	}
	c.start(0, 1, 2)
	c.allMet()
	c.expect(c.follower(), "owner", "GET lock")
}

// TestNonVoterThatLostItsDisk: a new node that loses its disk before it has a vote joins again under the same id, at the same
// address.
func TestNonVoterThatLostItsDisk(t *testing.T) {
	c, w := wired(t, discoverable, func(cfg *Config) { cfg.PromoteAfter = time.Hour })
	c.start(0, 1, 2)
	c.expect(0, "OK", "SET lock owner")
	i := c.newcomer(w, "n4", c.follower())
	c.start(i)
	c.allMet()
	c.stop(i)
	if err := os.RemoveAll(c.cfg[i].Data); err != nil {
		t.Fatal(err)
	}
	c.start(i)
	c.allMet()
	c.expect(i, "owner", "GET lock")
	if got := c.nodes[i].Membership(); got != NonVoter {
		t.Errorf("it is a %s", got)
	}
	c.same()
}
