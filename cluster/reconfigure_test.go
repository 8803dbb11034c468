package cluster

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// tokens is a group of clients that take fencing tokens from one counter: no number twice, and each client's numbers only grow.
type tokens struct {
	c    *three
	stop atomic.Bool
	wg   sync.WaitGroup
	n    atomic.Int64

	mu    sync.Mutex
	given map[int]string // the client that got each number
	most  int
}

// take starts a client on a node.
func (k *tokens) take(n *Node, name string) {
	k.wg.Go(func() {
		last := 0
		for !k.stop.Load() && n.ctx.Err() == nil {
			token, err := strconv.Atoi(lines(k.c.t, n, "INCR token"))
			if err != nil {
				continue // an error reply: no token
			}
			k.mu.Lock()
			if other := k.given[token]; other != "" {
				k.c.t.Errorf("token %d was given to %s and to %s", token, other, name)
			}
			if token <= last {
				k.c.t.Errorf("%s got token %d after %d", name, token, last)
			}
			k.given[token], last = name, token
			k.most = max(k.most, token)
			k.mu.Unlock()
			k.n.Add(1)
			time.Sleep(ms)
		}
	})
}

// more waits until the clients have taken count more tokens.
func (k *tokens) more(count int64) {
	k.c.t.Helper()
	from := k.n.Load()
	k.c.until("tokens", func() bool { return k.n.Load() >= from+count })
}

// end stops the clients. The counter must be at least as high as the highest number that a client got.
func (k *tokens) end() {
	k.c.t.Helper()
	k.stop.Store(true)
	k.wg.Wait()
	value, err := strconv.Atoi(k.c.do(k.c.leader(), "GET token"))
	if err != nil || value < k.most {
		k.c.t.Errorf("the counter stands at %d (%v), and token %d was given", value, err, k.most)
	}
	k.c.t.Logf("%d tokens, the last is %d", len(k.given), k.most)
}

// TestJ3MembershipWhilePartitioned: voters are added and removed while the network is cut. If an increment of the counter were lost,
// a token would be given twice.
func TestJ3MembershipWhilePartitioned(t *testing.T) {
	c, w := wired(t, func(cfg *Config) { cfg.FailoverWait = 2 * time.Second })
	c.start(0, 1, 2)
	k := &tokens{c: c, given: map[int]string{}}
	for i, n := range c.nodes {
		k.take(n, fmt.Sprintf("a client of n%d", i+1))
	}
	k.more(100)
	name := func(list ...int) (ids []string) {
		for _, i := range list {
			ids = append(ids, c.cfg[i].ID)
		}
		return ids
	}
	// The other nodes elect a leader, add a node, and remove the cut-off leader.
	old := c.leader()
	rest := []int{(old + 1) % 3, (old + 2) % 3}
	w.cut(name(old), name(rest...))
	next := c.newcomer(w, "n4", rest...)
	w.cut(name(old), []string{"n4"})
	began := time.Now()
	if err := c.nodes[old].Remove(c.cfg[rest[0]].ID); err == nil {
		t.Error("a minority has removed a member")
	} else if took := time.Since(began); took > adminTimeout+time.Second {
		t.Errorf("it took a minority %v to find that it is one", took)
	}
	c.start(next)
	k.take(c.nodes[next], "a client of n4")
	c.voteOf(rest[0], "n4")
	c.mustRemove(rest[1], c.cfg[old].ID)
	k.more(100)
	// While the old leader is out, the new leader is cut off, too. The two other members go on.
	second := c.leaderAmong(append(rest, next))
	others := []int{}
	for _, i := range append(rest, next) {
		if i != second {
			others = append(others, i)
		}
	}
	w.cut(name(second), name(append(others, old)...))
	c.leaderAmong(others)
	k.more(100)
	// Both nodes are connected again. The removed one stays out of the cluster.
	w.heal()
	c.until("the removed one's knowing", func() bool { return c.nodes[old].Membership() == Removed })
	c.voters(name(append(others, second)...)...)
	k.more(100)
	if err := c.nodes[others[0]].Add(c.cfg[old].ID, c.cfg[old].PeerListen); err != nil {
		t.Errorf("taking it in again, with its old data: %v", err)
	}
	c.voters("n1", "n2", "n3", "n4")
	k.more(100)
	k.end()
	c.same()
}

// voteOf waits until the node with the index ask knows that a member has a vote.
func (c *three) voteOf(ask int, id string) {
	c.t.Helper()
	c.until("the vote of "+id, func() bool {
		members, err := c.nodes[ask].Members()
		for _, m := range members {
			if err == nil && m.ID == id && m.Voter {
				return true
			}
		}
		return false
	})
}

// leaderAmong waits until one of the listed nodes leads and the other listed nodes follow it.
func (c *three) leaderAmong(list []int) (found int) {
	c.t.Helper()
	c.until("a leader among some", func() bool {
		found = -1
		for _, i := range list {
			if c.nodes[i] != nil && c.nodes[i].routes.get().seq != nil && c.do(i, "GET nothing") == "nil" {
				found = i
			}
		}
		for _, i := range list {
			if n := c.nodes[i]; found < 0 || n != nil && i < 3 && n.Status().LeaderID != c.cfg[found].ID {
				return false
			}
		}
		return true
	})
	return found
}

// fuzzSteps is how many changes the fuzz makes: a few in `make test`,
// $LOCKSTEP_MEMBERSHIP_STEPS of them on demand.
func fuzzSteps(t *testing.T) int {
	t.Helper()
	s := os.Getenv("LOCKSTEP_MEMBERSHIP_STEPS")
	if s == "" {
		return 12
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("LOCKSTEP_MEMBERSHIP_STEPS=%q is not a number", s)
	}
	return n
}

// TestJ11ConfigurationChangesAndCrashes: among crashes, snapshots and cuts, every membership change ends, no node ends by itself, and
// at last all voters have the same state.
func TestJ11ConfigurationChangesAndCrashes(t *testing.T) {
	c, w := wired(t, func(cfg *Config) {
		cfg.SnapshotThreshold, cfg.SnapshotInterval, cfg.TrailingLogs = 60, 30*ms, 10
		cfg.FailoverWait = 3 * time.Second
	})
	for range 2 {
		c.newcomer(w, fmt.Sprintf("n%d", len(c.cfg)+1), 0, 1, 2)
	}
	c.start(0, 1, 2)
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("LOCKSTEP_MEMBERSHIP_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("LOCKSTEP_MEMBERSHIP_SEED=%d", seed)
	f := &memberFuzz{c: c, w: w, rng: rand.New(rand.NewPCG(seed, 1)), k: &tokens{c: c, given: map[int]string{}}}
	for i := range 3 {
		f.k.take(c.nodes[i], c.cfg[i].ID)
	}
	for step := range fuzzSteps(t) {
		f.step(step)
	}
	w.heal()
	for i, n := range c.nodes {
		if n == nil && i < 3 {
			c.start(i)
		}
	}
	f.k.more(20)
	f.k.end()
	members, err := c.nodes[c.leaderAmong([]int{0, 1, 2, 3, 4})].Members()
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range c.nodes {
		if n != nil && !slices.ContainsFunc(members, func(m Member) bool { return m.ID == c.cfg[i].ID && m.Voter }) {
			c.stop(i) // a node that is no voter may have an old state
		}
	}
	c.same()
}

// memberFuzz changes the membership of n4 and n5. n1, n2 and n3 stay voters, so there is a majority
// even if one node fails.
type memberFuzz struct {
	c   *three
	w   *wires
	rng *rand.Rand
	k   *tokens
}

func (f *memberFuzz) step(number int) {
	c, what := f.c, f.rng.IntN(6)
	extra, ask := 3+f.rng.IntN(2), f.rng.IntN(3)
	id := c.cfg[extra].ID
	c.t.Logf("step %d: %d, %s through n%d", number, what, id, ask+1)
	switch what {
	case 0, 1:
		f.toggle(extra, ask)
	case 2: // the leader dies in the middle of a change
		done := make(chan struct{})
		go func() {
			defer close(done)
			f.toggle(extra, ask)
		}()
		time.Sleep(time.Duration(f.rng.IntN(30)) * ms)
		f.crashLeader()
		<-done
	case 3:
		if err := c.nodes[ask].Transfer(""); err != nil {
			c.t.Log(err)
		}
	case 4: // one of the three voters dies and comes back
		i := f.rng.IntN(3)
		c.crash(i)
		f.k.more(5)
		f.restart(i)
	case 5: // a node is cut off for a while, and another one is asked for a change
		i := f.rng.IntN(3)
		var others []string
		for j := range c.cfg {
			if j != i {
				others = append(others, c.cfg[j].ID)
			}
		}
		f.w.cut([]string{c.cfg[i].ID}, others)
		f.toggle(extra, (i+1)%3)
		f.k.more(5)
		f.w.heal()
	}
	f.k.more(10)
}

// toggle adds a node, or removes it if it is a member. The change may fail, but must not hang.
func (f *memberFuzz) toggle(extra, ask int) {
	c, id := f.c, f.c.cfg[extra].ID
	n := c.nodes[ask]
	members, err := n.Members()
	if err != nil {
		return // the node is being closed
	}
	is := false
	for _, m := range members {
		is = is || m.ID == id
	}
	began := time.Now()
	if is {
		err = n.Remove(id)
	} else {
		if c.nodes[extra] == nil {
			opened, err := Open(c.cfg[extra])
			if err != nil {
				c.t.Error(err)
				return
			}
			c.nodes[extra] = opened
		}
		err = n.Add(id, c.cfg[extra].PeerListen)
	}
	if took := time.Since(began); took > adminTimeout+5*time.Second {
		c.t.Errorf("the change took %v", took)
	}
	if err != nil && !strings.Contains(err.Error(), "closed") {
		c.t.Logf("%s through n%d: %v", id, ask+1, err)
	}
}

func (f *memberFuzz) crashLeader() {
	for i, n := range f.c.nodes {
		if n != nil && n.routes.get().seq != nil && i < 3 {
			f.c.crash(i)
			f.restart(i)
			return
		}
	}
}

func (f *memberFuzz) restart(i int) {
	f.c.start(i)
	f.k.take(f.c.nodes[i], f.c.cfg[i].ID)
}
