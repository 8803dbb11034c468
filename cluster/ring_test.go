package cluster

import (
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/clock"
	"github.com/lockstep-io/lockstep/cluster/internal/raftnode"
	"github.com/lockstep-io/lockstep/raftfsm"
	"github.com/lockstep-io/lockstep/store"
)

// nodeTime is the clock of one node. It shows another time than the clocks of the other nodes, and its rate differs a little
// from theirs.
type nodeTime struct {
	start time.Time
	base  time.Duration
	rate  float64

	mu   sync.Mutex
	wall time.Duration // how far the wall clock is off
}

// Monotonic implements TimeSource.
func (c *nodeTime) Monotonic() time.Duration {
	return c.base + time.Duration(float64(time.Since(c.start))*c.rate)
}

// Busy implements TimeSource.
func (c *nodeTime) Busy() time.Duration { return c.Monotonic() }

// Wall implements TimeSource.
func (c *nodeTime) Wall() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Round(0).Add(c.wall)
}

func (c *nodeTime) jump(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall += d
}

// ring is a cluster with its log in memory. The test decides who leads, and when each node runs and learns of entries.
type ring struct {
	t     *testing.T
	table *store.Table
	nodes []*ringNode

	mu      sync.Mutex
	entries [][]byte
	leader  int // a majority follows this node
	term    uint64
}

// ringNode is a member of a ring, and its log.
type ringNode struct {
	*Node
	diskless
	r     *ring
	at    int
	time  *nodeTime
	leads chan raftnode.Leadership

	// On ring.mu:
	applied int
	contact time.Time
	going   chan struct{} // closed while the process runs
	stops   bool          // the process stops when its next entry is in the log
}

var _ consensus = (*ringNode)(nil)

// ringClocks are minutes apart and drift by up to 0.02 %.
func ringClocks() []*nodeTime {
	now := time.Now()
	return []*nodeTime{
		{start: now, base: time.Hour, rate: 1},
		{start: now, base: 3 * time.Minute, rate: 1.0002, wall: 7 * time.Minute},
		{start: now, base: 900 * time.Hour, rate: 0.9998, wall: -11 * time.Minute},
	}
}

// newRing starts a cluster whose log has the given entries. Node 0 leads.
func newRing(t *testing.T, clocks []*nodeTime, entries [][]byte) *ring {
	r := &ring{t: t, table: store.NewTable(store.Commands()), entries: entries, leader: -1}
	for i, c := range clocks {
		cfg := Default()
		cfg.ID, cfg.Time, cfg.Logger, cfg.Table = string(rune('a'+i)), c, slog.New(slog.DiscardHandler), r.table
		n := &ringNode{Node: nodeOf(cfg), r: r, at: i, time: c, leads: make(chan raftnode.Leadership), going: make(chan struct{})}
		close(n.going)
		n.cons = n
		close(n.opened)
		n.work.Add(1)
		go n.watch(n.leads)
		r.nodes = append(r.nodes, n)
		n.catchUp()
	}
	t.Cleanup(r.stop)
	r.elect(0)
	return r
}

func (r *ring) stop() {
	for _, n := range r.nodes {
		if n.ctx.Err() != nil {
			continue
		}
		n.resume()
		if err := n.Node.Close(); err != nil {
			r.t.Error(err)
		}
	}
}

// elect makes a node the leader, and tells that to all nodes whose processes run.
func (r *ring) elect(i int) {
	r.t.Helper()
	r.mu.Lock()
	r.leader, r.term = i, r.term+1
	r.mu.Unlock()
	r.tell()
	synctest.Wait()
	if r.nodes[i].routes.get().seq == nil {
		r.t.Fatalf("node %d does not lead", i)
	}
}

// tell tells every node whose process runs who leads.
func (r *ring) tell() {
	r.mu.Lock()
	leader := r.leader
	r.mu.Unlock()
	for i, n := range r.nodes {
		if n.goes() {
			n.leads <- raftnode.Leadership{Self: i == leader}
		}
	}
}

// lose takes leadership away from the leader. From now on the other nodes hear from no leader.
func (r *ring) lose() {
	r.mu.Lock()
	r.leader = -1
	for _, n := range r.nodes {
		n.contact = time.Now()
	}
	r.mu.Unlock()
	r.tell()
	synctest.Wait()
}

// do submits a pipeline on a node.
func (r *ring) do(i int, lines ...string) string { return <-r.start(i, lines...) }

func (r *ring) start(i int, lines ...string) <-chan string {
	done := make(chan string, 1)
	calls := r.calls(lines...)
	go func() { done <- text(r.nodes[i].Submit(calls, nil)) }()
	return done
}

// together submits commands on a node at the same time, each from a client of its own.
func (r *ring) together(i int, lines ...string) (replies []<-chan string) {
	for _, line := range lines {
		done := make(chan string, 1)
		replies = append(replies, done)
		p := &Submission{Calls: r.calls(line)}
		p.Done = func() { done <- text(p.Replies) }
		r.nodes[i].SubmitAsync(p)
	}
	r.nodes[i].Flush()
	return replies
}

func (r *ring) calls(lines ...string) (calls []Call) {
	for _, line := range lines {
		var args [][]byte
		for _, word := range strings.Fields(line) {
			args = append(args, []byte(word))
		}
		cmd, ok := r.table.Resolve(args)
		if !ok {
			r.t.Fatalf("no command %q", line)
		}
		calls = append(calls, Call{Cmd: cmd, Args: args, RESP: 2})
	}
	return calls
}

func (r *ring) expect(i int, want string, lines ...string) {
	r.t.Helper()
	if got := r.do(i, lines...); got != want {
		r.t.Errorf("%s: got %q, want %q", strings.Join(lines, "; "), got, want)
	}
}

// pause stops a node's process.
func (n *ringNode) pause() {
	n.r.mu.Lock()
	defer n.r.mu.Unlock()
	n.going = make(chan struct{})
}

// stopsNext pauses the process of a node as soon as the next entry that the node proposes is in the log.
func (n *ringNode) stopsNext() {
	n.r.mu.Lock()
	defer n.r.mu.Unlock()
	n.stops = true
}

func (n *ringNode) resume() {
	n.r.mu.Lock()
	defer n.r.mu.Unlock()
	select {
	case <-n.going:
	default:
		close(n.going)
	}
}

func (n *ringNode) goes() bool {
	n.r.mu.Lock()
	defer n.r.mu.Unlock()
	return n.going0()
}

func (n *ringNode) going0() bool {
	select {
	case <-n.going:
		return true
	default:
		return false
	}
}

// wait returns when the process runs.
func (n *ringNode) wait() {
	n.r.mu.Lock()
	going := n.going
	n.r.mu.Unlock()
	<-going
}

// catchUp applies all entries that are in the log, and returns the outcome of the last one.
func (n *ringNode) catchUp() (last raftfsm.Outcome) {
	n.r.mu.Lock()
	defer n.r.mu.Unlock()
	return n.apply(len(n.r.entries))
}

// apply applies the entries of the log. The parameter to is the index of the last one. The caller holds ring.mu.
func (n *ringNode) apply(to int) (last raftfsm.Outcome) {
	for n.applied < to {
		out, err := n.Node.fsm.Apply(uint64(n.applied+1), n.r.entries[n.applied])
		if err != nil {
			panic(err)
		}
		n.applied++
		n.Node.applied(out)
		last = out
	}
	return last
}

// Propose implements consensus.
func (n *ringNode) Propose(data []byte) (raftfsm.Outcome, error) {
	n.wait()
	r := n.r
	r.mu.Lock()
	if r.leader != n.at {
		r.mu.Unlock()
		return raftfsm.Outcome{}, errNotExecuted
	}
	r.entries = append(r.entries, slices.Clone(data))
	place := len(r.entries)
	if n.stops {
		n.stops, n.going = false, make(chan struct{})
	}
	for _, other := range r.nodes {
		if other != n && other.going0() {
			other.apply(place)
		}
	}
	r.mu.Unlock()
	n.wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return n.apply(place), nil
}

// Verify implements consensus.
func (n *ringNode) Verify() error {
	n.wait()
	n.r.mu.Lock()
	defer n.r.mu.Unlock()
	if n.r.leader != n.at {
		return errDeposed
	}
	return nil
}

// Barrier implements consensus.
func (n *ringNode) Barrier() error {
	if err := n.Verify(); err != nil {
		return err
	}
	n.catchUp()
	return nil
}

// Trouble implements the interface troubled. The embedded Node's method would ask its consensus, this ringNode, and so call itself
// without end.
func (n *ringNode) Trouble() string { return "" }

// LastContact implements consensus.
func (n *ringNode) LastContact() (time.Duration, bool) {
	n.r.mu.Lock()
	defer n.r.mu.Unlock()
	return clock.ForRaft{Source: n.time}.At(n.contact), !n.contact.IsZero()
}

// Facts implements consensus.
func (n *ringNode) Facts() raftnode.Facts {
	n.r.mu.Lock()
	defer n.r.mu.Unlock()
	return raftnode.Facts{Term: n.r.term}
}

// Transfer implements consensus.
func (n *ringNode) Transfer(string) error { return ErrNoSuchMember }

// Members implements consensus.
func (n *ringNode) Members() ([]raftnode.Member, error) {
	return []raftnode.Member{{ID: n.cfg.ID, Voter: true}}, nil
}

// Snapshot implements consensus.
func (n *ringNode) Snapshot() error { return nil }

// Close implements consensus.
func (n *ringNode) Close() error { return nil }
