package cluster

import (
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/clustertest"
	"github.com/lockstep-io/lockstep/cluster/internal/raftnode"
	"github.com/lockstep-io/lockstep/conformance/ports"
	"github.com/lockstep-io/lockstep/store"
)

// three is a cluster of three real nodes in this process, over loopback and
// temporary directories.
type three struct {
	t     *testing.T
	cfg   []Config
	nodes []*Node // nil: stopped
	sinks []*notes
	loads int
}

// notes is a Sink that keeps what a node published.
type notes struct {
	mu   sync.Mutex
	list []string
}

func (s *notes) Publish(_ store.PublishKind, channel, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, channel+" "+message)
}

func (s *notes) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.list)
}

func startThree(t *testing.T, change ...func(*Config)) *three {
	t.Helper()
	var peers []Peer
	for i, addr := range ports.Addrs(t, 3) {
		peers = append(peers, Peer{ID: fmt.Sprintf("n%d", i+1), Addr: addr})
	}
	// One of the three nodes has clients that listen for messages. Another one may get entries late
	// (internal/raftnode/delayed_append.go).
	listen := func(cfg *Config) { cfg.Listens = func() bool { return cfg.ID == "n2" } }
	return newThree(t, peers, append([]func(*Config){listen}, change...)...)
}

// newThree returns a cluster at the given addresses. No node runs yet.
func newThree(t *testing.T, peers []Peer, change ...func(*Config)) *three {
	clustertest.Slow(t)
	t.Helper()
	c := &three{t: t, cfg: make([]Config, 3), nodes: make([]*Node, 3), sinks: make([]*notes, 3)}
	dir, table := t.TempDir(), store.NewTable(store.Commands(), badCommands)
	for i := range 3 {
		cfg := Default()
		cfg.ID, cfg.Peers, cfg.PeerListen = peers[i].ID, peers, peers[i].Addr
		cfg.Data, cfg.Advertise = filepath.Join(dir, peers[i].ID), fmt.Sprintf("client-%d:6379", i+1)
		cfg.Table, cfg.Time, cfg.Logger = table, NewSystemTime(), slog.New(slog.DiscardHandler)
		cfg.HeartbeatTimeout, cfg.ElectionTimeout, cfg.LeaderLease = 200*ms, 200*ms, 150*ms
		cfg.FailoverWait = 20 * time.Second // on a loaded machine an election takes long
		cfg.Fatal = func(err error) { t.Error(err) }
		for _, fn := range change {
			fn(&cfg)
		}
		c.cfg[i] = cfg
	}
	t.Cleanup(func() {
		for i := range c.nodes {
			c.stop(i)
		}
	})
	return c
}

// start starts nodes and waits until they serve, with or without a vote.
func (c *three) start(list ...int) {
	c.t.Helper()
	for _, i := range list {
		c.sinks[i] = &notes{}
		c.cfg[i].Sink = c.sinks[i]
		n, err := Open(c.cfg[i])
		if err != nil {
			c.t.Fatal(err)
		}
		c.nodes[i] = n
	}
	for _, i := range list {
		n := c.nodes[i]
		c.until(n.cfg.ID+" to serve", func() bool {
			rt := n.routes.get()
			return rt.seq != nil || rt.link != nil && n.cons.CaughtUp()
		})
	}
}

// stop closes a node without handing over.
func (c *three) stop(i int) {
	if n := c.nodes[i]; n != nil {
		c.nodes[i] = nil
		if err := n.Close(); err != nil {
			c.t.Error(err)
		}
	}
}

// raftOf returns the parts of a node's Raft.
func raftOf(n *Node) raftnode.Parts { return n.cons.(*raftnode.Node).Parts() }

// crash cuts a node off as its death would. Raft is shut down last, because after that it may leave a proposal without an answer.
func (c *three) crash(i int) {
	c.nodes[i].cons.(*raftnode.Node).Sever()
	c.stop(i)
}

// leader waits until the nodes agree on a leader that serves.
func (c *three) leader() int {
	c.t.Helper()
	found := -1
	c.until("a leader that all running nodes follow", func() bool {
		found = -1
		for i, n := range c.nodes {
			if n != nil && n.routes.get().seq != nil {
				found = i
			}
		}
		for _, n := range c.nodes {
			if n != nil && n.Membership() != Removed && (found < 0 || !n.Reaches() || n.Status().LeaderID != c.cfg[found].ID) {
				return false
			}
		}
		return found >= 0
	})
	return found
}

// transfer makes a node the leader. On a loaded machine, another node may win the election that the transfer starts. Then
// transfer tries again.
func (c *three) transfer(ask *Node, to int) {
	c.t.Helper()
	c.until("the transfer of leadership", func() bool {
		if err := ask.Transfer(c.cfg[to].ID); err != nil {
			c.t.Log(err)
		}
		return c.leader() == to
	})
}

func (c *three) follower() int { return (c.leader() + 1) % 3 }

func (c *three) until(what string, ok func() bool) {
	c.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			c.t.Fatalf("waited in vain for %s", what)
		}
		time.Sleep(2 * ms)
	}
}

func (c *three) do(i int, commands ...string) string {
	c.t.Helper()
	return lines(c.t, c.nodes[i], commands...)
}

func (c *three) expect(i int, want string, commands ...string) {
	c.t.Helper()
	if got := c.do(i, commands...); got != want {
		c.t.Errorf("n%d: %q: got %q, want %q", i+1, commands, got, want)
	}
}

// same waits until the running nodes have applied the same entries, and then
// requires the same state of them.
func (c *three) same() {
	c.t.Helper()
	var at, hashes []string
	c.until("equal positions", func() bool {
		at, hashes = nil, nil
		for _, n := range c.nodes {
			if n == nil {
				continue
			}
			s, snap := n.Status(), n.fsm.Snapshot()
			hash, err := snap.Hash()
			if err != nil {
				c.t.Fatal(err)
			}
			if s.Applied != s.Commit {
				return false
			}
			// Raft counts an entry as applied when it hands the entry over, so the sequence number of the state is compared,
			// too.
			at = append(at, fmt.Sprint(s.Applied, " ", snap.Sequence()))
			hashes = append(hashes, hash)
		}
		return len(slices.Compact(slices.Clone(at))) == 1
	})
	if len(slices.Compact(slices.Clone(hashes))) != 1 {
		c.t.Errorf("states differ at the same index: %v %v", at, hashes)
	}
}

// load is a group of clients that increment counters. Each request increments a counter of its own.
type load struct {
	c       *three
	stop    atomic.Bool
	clients sync.WaitGroup

	mu      sync.Mutex
	told    map[string]string // replies by key
	changed atomic.Int64      // number of replies so far
}

// startLoad starts clients on nodes. Every request has its own key, so that a second execution would show.
func (c *three) startLoad(nodes ...int) *load {
	c.loads++
	l, name := &load{c: c, told: map[string]string{}}, fmt.Sprint("load", c.loads)
	for _, i := range nodes {
		n := c.nodes[i]
		for client := range 4 {
			l.clients.Go(func() {
				for k := 0; !l.stop.Load() && n.ctx.Err() == nil; k++ {
					key := fmt.Sprintf("%s:n%d:%d:%d", name, i+1, client, k)
					got := lines(c.t, n, "INCR "+key, "PUBLISH load "+key)
					l.mu.Lock()
					l.told[key] = got
					l.mu.Unlock()
					l.changed.Add(1)
					time.Sleep(ms) // otherwise a slow machine would have too much to check
				}
			})
		}
	}
	return l
}

// more waits for count more replies.
func (l *load) more(count int64) {
	l.c.t.Helper()
	from := l.changed.Load()
	l.c.until("replies", func() bool { return l.changed.Load() >= from+count })
}

// end stops the clients and checks the replies that they got. It returns the replies that were no success, with the number of
// each.
func (l *load) end() (failed map[string]int) {
	l.c.t.Helper()
	l.stop.Store(true)
	l.clients.Wait()
	l.check()
	failed = map[string]int{}
	for _, got := range l.told {
		if got != "1 0" {
			failed[got]++
		}
	}
	return failed
}

// check compares what the clients were told with the state.
func (l *load) check() {
	l.c.t.Helper()
	on, keys := l.c.leader(), slices.Collect(maps.Keys(l.told))
	var values []string
	for some := range slices.Chunk(keys, 100) {
		values = append(values, strings.Fields(strings.Trim(l.c.do(on, "MGET "+strings.Join(some, " ")), "[]"))...)
	}
	if len(values) != len(keys) {
		l.c.t.Fatalf("%d values of %d keys", len(values), len(keys))
	}
	for i, key := range keys {
		got, value, ok := l.told[key], values[i], false
		switch got {
		case "1 0":
			ok = value == "1"
		case "-INDETERMINATE -INDETERMINATE":
			ok = value == "1" || value == "nil"
		case "-CLUSTERDOWN -CLUSTERDOWN":
			ok = value == "nil"
		}
		if !ok {
			l.c.t.Errorf("%s was told %q, and its value is %s", key, got, value)
		}
	}
}
