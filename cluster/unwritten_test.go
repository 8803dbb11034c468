package cluster

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// gate is a disk whose syncs of data wait while it is shut, or fail.
type gate struct {
	unsyncedFiles
	mu    sync.Mutex
	shut  chan struct{} // closed when it opens; nil: it is open
	takes time.Duration
	fails error
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = make(chan struct{})
}

// open lets the syncs that wait go on; they fail if err is not nil.
func (g *gate) open(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fails = err
	close(g.shut)
	g.shut = nil
}

func (g *gate) pass() error {
	g.mu.Lock()
	shut, takes := g.shut, g.takes
	g.mu.Unlock()
	time.Sleep(takes)
	if shut != nil {
		<-shut
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.fails
}

func (g *gate) Create(path string) (file, error) { return g.gated(g.unsyncedFiles.Create(path)) }
func (g *gate) Open(path string) (file, error)   { return g.gated(g.unsyncedFiles.Open(path)) }
func (g *gate) gated(f file, err error) (file, error) {
	return gatedFile{f, g}, err
}

type gatedFile struct {
	file
	g *gate
}

func (f gatedFile) SyncData() error { return f.g.pass() }

// gates gives each node a gate.
func gates(all map[string]*gate) func(*Config) {
	return func(cfg *Config) {
		g := &gate{}
		all[cfg.ID] = g
		cfg.disk.files = g
	}
}

// logEnd is how far the log of a node reaches.
func (c *three) logEnd(i int) uint64 {
	c.t.Helper()
	return c.nodes[i].cons.(*raftLog).raft.LastIndex()
}

// A leader sends an entry while it writes it. Before it has, nobody is told of the entry,
// and nobody applies it, though all the others have it on their disks.
func TestLeaderWritesBesideItsFollowers(t *testing.T) {
	all := map[string]*gate{}
	inBubble(t, func(c *bubbled) {
		leader := c.leader()
		via, other := (leader+1)%3, (leader+2)%3
		c.expect(leader, "OK", "SET k before")
		c.same()
		g, end := all[c.cfg[leader].ID], c.logEnd(leader)
		seq, _ := c.nodes[via].fsm.Position()
		g.close()
		here, carried := c.ask(leader, "SET k after"), (<-chan told)(nil)
		time.Sleep(200 * ms) // many times Raft's commit timeout
		carried = c.ask(via, "GET k")
		time.Sleep(200 * ms)
		for _, i := range []int{via, other} {
			if got := c.logEnd(i); got <= end {
				t.Errorf("the log of n%d ends at entry %d as before: the leader has written first", i+1, got)
			}
			if got, _ := c.nodes[i].fsm.Position(); got != seq {
				t.Errorf("n%d has applied what is not on the leader's disk", i+1)
			}
		}
		if got, _ := c.nodes[leader].fsm.Position(); got != seq {
			t.Error("the leader has applied what is not on its disk")
		}
		if got := c.nodes[leader].cons.(*raftLog).st.guard.mark.last; got != end {
			t.Errorf("the mark says %d, on the disk are %d", got, end)
		}
		select {
		case got := <-here:
			t.Errorf("a client was told %q", got.reply)
		case got := <-carried:
			t.Errorf("a reader was told %q", got.reply)
		default:
		}
		g.open(nil)
		if a, b := <-here, <-carried; a.reply != "OK" || b.reply != "after" {
			t.Errorf("then the client was told %q, the reader %q", a.reply, b.reply)
		}
		c.same()
	}, gates(all))
}

// The time that a write takes is that of one disk and one round trip.
func TestLeaderAndFollowersWriteAtOnce(t *testing.T) {
	all := map[string]*gate{}
	inBubble(t, func(c *bubbled) {
		leader := c.leader()
		c.expect(leader, "OK", "SET k v")
		for _, g := range all {
			g.mu.Lock()
			g.takes = 10 * ms
			g.mu.Unlock()
		}
		time.Sleep(time.Second)
		start := time.Now()
		c.expect(leader, "OK", "SET k v")
		if took := time.Since(start); took < 10*ms || took > 15*ms {
			t.Errorf("a write took %v where each disk takes 10 ms", took)
		}
	}, gates(all))
}

// A disk that fails behind the leader's back ends the process, and nobody is told that
// what it should have held was done.
func TestLeaderCannotWriteWhatItHasSent(t *testing.T) {
	all := map[string]*gate{}
	var mu sync.Mutex
	ended := map[string]error{}
	inBubble(t, func(c *bubbled) {
		leader := c.leader()
		c.expect(leader, "OK", "SET k before")
		g := all[c.cfg[leader].ID]
		g.close()
		write := c.ask(leader, "SET k after")
		time.Sleep(100 * ms)
		g.open(errors.New("no such block"))
		synctest.Wait()
		mu.Lock()
		if len(ended) != 1 || ended[c.cfg[leader].ID] == nil {
			t.Errorf("processes that ended: %v", ended)
		}
		mu.Unlock()
		// Here it goes on after its end, and must not say OK.
		if got := <-write; got.reply != "-INDETERMINATE" {
			t.Errorf("a client was told %q", got.reply)
		}
	}, gates(all), func(cfg *Config) {
		id := cfg.ID
		cfg.Fatal = func(err error) {
			mu.Lock()
			defer mu.Unlock()
			ended[id] = err
		}
	})
}

// What may be unwritten, and in which order it is written.
func TestUnwritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stored []uint64
		step := make(chan error)
		var fatal error
		u := &unwritten{leads: func() bool { return true }}
		u.init(func(logs []*raft.Log) error {
			err := <-step
			for _, l := range logs {
				stored = append(stored, l.Index)
			}
			return err
		}, func(err error) { fatal = err })
		taken := func(want bool, logs []*raft.Log, left int64) {
			t.Helper()
			if got, err := u.add(logs, func() int64 { return left }); got != want || err != nil {
				t.Errorf("entries from %d on: taken %v, %v", logs[0].Index, got, err)
			}
		}
		const room = 1 << 20
		taken(false, entries(1, 1), room) // nobody to send it to
		u.peers.Store(true)
		u.leads = func() bool { return false }
		taken(false, entries(1, 1), room)
		u.leads = func() bool { return true }
		taken(false, entries(1, 1), entryOverhead) // no room
		taken(false, []*raft.Log{{Index: 1, Type: raft.LogNoop}}, room)
		taken(false, []*raft.Log{{Index: 1, Type: raft.LogConfiguration}}, room)
		taken(false, []*raft.Log{{Index: 1, Data: make([]byte, recentLimit+1)}}, room)
		if err := u.drain(); err != nil {
			t.Error(err)
		}

		taken(true, entries(1, 2), room)
		synctest.Wait()
		taken(true, entries(3, 5), room)
		taken(false, entries(6, 6), 5*entryOverhead) // with those before it
		taken(false, entries(6, unwrittenCount+1), room)
		taken(false, []*raft.Log{{Index: 6, Data: make([]byte, recentLimit)}, {Index: 7, Data: make([]byte, recentLimit)},
			{Index: 8, Data: make([]byte, recentLimit)}, {Index: 9, Data: make([]byte, recentLimit)}}, 4*unwrittenSize)
		if got := u.upTo(9); got != 0 {
			t.Errorf("on the disk up to %d", got)
		}
		waited := make(chan error, 1)
		go func() { waited <- u.wait(2) }()
		step <- nil
		synctest.Wait()
		if err := <-waited; err != nil || u.upTo(9) != 2 || u.upTo(1) != 1 {
			t.Errorf("after the first write: %v, up to %d", err, u.upTo(9))
		}
		step <- nil
		if err := u.drain(); err != nil || u.upTo(9) != 9 || u.size != 0 {
			t.Errorf("after all writes: %v, up to %d, %d bytes are left", err, u.upTo(9), u.size)
		}
		if len(stored) != 5 {
			t.Errorf("written: %v", stored)
		}
		for i, index := range stored {
			if index != uint64(i+1) {
				t.Errorf("written in this order: %v", stored)
			}
		}

		taken(true, entries(6, 6), room)
		broken := errors.New("broken")
		step <- broken
		if err := u.drain(); err != broken {
			t.Errorf("waiting for what was not written: %v", err)
		}
		synctest.Wait()
		if _, err := u.add(entries(7, 7), func() int64 { return room }); err != broken || fatal != broken || u.upTo(9) != 5 {
			t.Errorf("after a write that failed: %v, fatal %v, up to %d", err, fatal, u.upTo(9))
		}
	})
}
