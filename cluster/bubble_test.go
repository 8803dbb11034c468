package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/lockstep-io/lockstep/cluster/internal/clustertest"
	"github.com/lockstep-io/lockstep/cluster/internal/crashdisk"
)

// The tests in a bubble run three real nodes with the real hashicorp/raft and its log on disk. The network is in memory and time
// is virtual, so a wait takes no real time. Elections are random, so the tests check only what holds in every run.
//
// Nothing may wait for a timer while it holds a lock. A goroutine that outlives Node.Close by a minute fails the test.

// bubbleDelay is how long a message takes, one way.
const bubbleDelay = 300 * time.Microsecond

// inBubble runs a test on three nodes in a bubble.
func inBubble(t *testing.T, fn func(c *bubbled), change ...func(*Config)) {
	t.Helper()
	bubble(t, func(t *testing.T) {
		// Virtual time stops when the test ends. Goroutines that end by themselves get a minute before; any other fails the test.
		t.Cleanup(func() { time.Sleep(time.Minute) })
		network := clustertest.NewNet(bubbleDelay)
		w := newWires()
		w.reach = network.Dial
		var peers []Peer
		for i := range 3 {
			peers = append(peers, Peer{ID: fmt.Sprintf("n%d", i+1), Addr: fmt.Sprintf("n%d.test:1", i+1)})
		}
		c := &bubbled{wires: w}
		product := Default()
		c.three = newThree(t, peers, append([]func(*Config){w.attach, func(cfg *Config) {
			cfg.HeartbeatTimeout, cfg.ElectionTimeout, cfg.LeaderLease = product.HeartbeatTimeout, product.ElectionTimeout, product.LeaderLease
			cfg.FailoverWait = product.FailoverWait
			cfg.listen = network.Listen
			cfg.Listens = func() bool { return false } // so the leader at times sends entries to one follower later
			votes := raft.NewInmemStore()              // they last as long as the test
			cfg.disk.Files = crashdisk.UnsyncedFiles{}
			cfg.disk.Stable = func(raft.StableStore) raft.StableStore { return votes }
		}}, change...)...)
		t.Cleanup(w.heal)
		c.start(0, 1, 2)
		fn(c)
	})
}

// bubbled is a cluster in a bubble.
type bubbled struct {
	*three
	wires *wires
}

// told is what a client was told, and when.
type told struct {
	reply string
	at    time.Time
}

// ask submits a pipeline from another goroutine.
func (c *bubbled) ask(i int, commands ...string) <-chan told {
	n, done := c.nodes[i], make(chan told, 1)
	go func() { done <- told{lines(c.t, n, commands...), time.Now()} }()
	return done
}

func (c *bubbled) mustTell(reply <-chan told, what, want string, asked time.Time, least, most time.Duration) {
	c.t.Helper()
	got := <-reply
	if took := got.at.Sub(asked); got.reply != want || took < least || took > most {
		c.t.Errorf("%s: told %q after %v, want %q after %v to %v", what, got.reply, took, want, least, most)
	}
}

// alone cuts a node off from the others.
func (c *bubbled) alone(i int) {
	c.wires.cut([]string{c.cfg[i].ID}, []string{c.cfg[(i+1)%3].ID, c.cfg[(i+2)%3].ID})
}

// leaderOf waits until one of two nodes leads and the other reaches it.
func (c *bubbled) leaderOf(a, b int) (leader int) {
	c.t.Helper()
	c.until("a leader of two", func() bool {
		for _, i := range []int{a, b} {
			if c.nodes[i].routes.get().seq != nil && c.nodes[a+b-i].routes.get().link != nil {
				leader = i
				return true
			}
		}
		return false
	})
	return leader
}

// lengthened returns the time by which elections have lengthened leases, as the nodes count it.
func (c *bubbled) lengthened() (sum time.Duration) {
	for _, n := range c.nodes {
		sum += n.Status().Leaderless
	}
	return sum
}

// A lease may also outlast its time to live by these times, because a new leader does not know all about its predecessor.
const (
	lastEntryLate = 20*ms + 4*bubbleDelay // Raft's commit timeout, up to twice
	unknownLate   = latenessKept*ms + lastEntryLate + 5*ms
)

// endsWithin checks that a lock is held for ttl, and for at most excess more. i is any node that serves.
func (c *bubbled) endsWithin(i int, key, owner string, granted time.Time, ttl, excess time.Duration) {
	c.t.Helper()
	time.Sleep(time.Until(granted.Add(ttl - 10*ms)))
	c.expect(i, owner+" nil", "GET "+key, "SET "+key+" thief NX")
	for c.do(i, "GET "+key) == owner && time.Since(granted) < ttl+excess+time.Minute {
		time.Sleep(ms)
	}
	if held := time.Since(granted); held < ttl || held > ttl+excess {
		c.t.Errorf("%s was held for %v, of a time to live of %v and at most %v more", key, held, ttl, excess)
	}
	c.expect(i, "nil", "GET "+key)
}
