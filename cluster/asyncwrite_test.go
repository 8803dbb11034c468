package cluster

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"lockstep/cluster/internal/datadir"
	"lockstep/raftfsm"
	"lockstep/store"
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

func (g *gate) Create(path string) (datadir.File, error) {
	return g.gated(g.unsyncedFiles.Create(path))
}
func (g *gate) Open(path string) (datadir.File, error) { return g.gated(g.unsyncedFiles.Open(path)) }
func (g *gate) gated(f datadir.File, err error) (datadir.File, error) {
	return gatedFile{f, g}, err
}

type gatedFile struct {
	datadir.File
	g *gate
}

func (f gatedFile) SyncData() error { return f.g.pass() }

// gates gives each node a gate.
func gates(all map[string]*gate) func(*Config) {
	return func(cfg *Config) {
		g := &gate{}
		all[cfg.ID] = g
		cfg.disk.Files = g
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
		mark, err := os.ReadFile(filepath.Join(c.cfg[leader].Data, markFile))
		if err != nil {
			t.Fatal(err)
		}
		if got := binary.LittleEndian.Uint64(mark[8:]); got != end {
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

// TestAppliedEntriesAreLetGo: Raft holds dozens of entries until the last of them has been applied. Long ones are read
// one at a time, so that not all of them are in memory.
func TestAppliedEntriesAreLetGo(t *testing.T) {
	cfg := dataConfig(t, t.TempDir())
	dir, err := openDirectory(&cfg, cfg.Data, hclog.NewNullLogger(), datadir.Hooks{Logger: cfg.Logger, Fatal: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	txn := store.New().Begin(store.Time{Lease: 1}, 1, store.Env{})
	txn.SetString(0, []byte("long"), strings.Repeat("v", 2*datadir.LongEntry), 0)
	entry := raftfsm.Entry{Lease: 1, Writes: txn.Writes().Bytes(), Version: txn.Writes().Version()}
	if err := dir.Log.StoreLog(&raft.Log{Index: 1, Term: 1, Data: entry.Append(nil)}); err != nil {
		t.Fatal(err)
	}
	var l raft.Log
	if err := errors.Join(dir.Log.AwaitWritten(1), dir.Log.GetLog(1, &l)); err != nil {
		t.Fatal(err)
	}
	fsm := raftfsm.New(nil)
	m := &machine{log: &raftLog{dir: dir, cfg: &cfg, trans: &transport{}}, fsm: fsm, hooks: raftHooks{applied: func(raftfsm.Outcome) {}}}
	if out, ok := m.Apply(&l).(raftfsm.Outcome); !ok || !out.Accepted {
		t.Fatalf("applied: %+v", out)
	}
	if fsm.DataSize() < 2*datadir.LongEntry {
		t.Errorf("the state has %d bytes", fsm.DataSize())
	}
	if len(l.Data) >= datadir.LongEntry {
		t.Errorf("Raft still holds %d bytes of the entry", len(l.Data))
	}
}

// When entries cannot be written that Raft believes in, the process ends. Until it has,
// Raft counts them as applied, which they are not: no snapshot may be taken.
func TestNoSnapshotOfEntriesThatAreLost(t *testing.T) {
	g, fatal := &gate{}, make(chan error, 9)
	always := func() bool { return true }
	cfg := dataConfig(t, t.TempDir())
	cfg.disk.Files = g
	dir, err := openDirectory(&cfg, cfg.Data, hclog.NewNullLogger(), datadir.Hooks{
		Logger: cfg.Logger, Fatal: func(err error) { fatal <- err }, Leads: always, Replicates: always,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	store := func(index uint64) error {
		return dir.Log.StoreLog(&raft.Log{Index: index, Term: 1, Data: make([]byte, 300)})
	}
	for i := uint64(1); i <= 10; i++ {
		if err := errors.Join(store(i), dir.Log.AwaitWritten(i)); err != nil {
			t.Fatal(err)
		}
	}
	g.close()
	if err := store(11); err != nil {
		t.Fatal(err)
	}
	m := &machine{log: &raftLog{dir: dir}, fsm: raftfsm.New(nil)}
	if _, err := m.Snapshot(); err != nil {
		t.Fatal(err)
	}
	g.open(syscall.EIO)
	if err, ok := m.Apply(&raft.Log{Index: 11}).(error); !ok || !errors.Is(err, syscall.EIO) {
		t.Errorf("applied: %v", err)
	}
	if _, err := m.Snapshot(); err == nil {
		t.Error("a snapshot hides that entry 11 has not been applied")
	}
	if err := <-fatal; !errors.Is(err, syscall.EIO) {
		t.Errorf("fatal: %v", err)
	}
	if err := store(12); err == nil {
		t.Error("it takes entries behind one that is lost")
	}
	if at := dir.Log.WrittenUpTo(99); at != 10 {
		t.Errorf("the others are told that it is committed up to entry %d", at)
	}
	if _, err := dir.Log.LastIndex(); err == nil {
		t.Error("what another leader sends would be stored behind it")
	}
	if len(fatal) > 0 {
		t.Errorf("told again: %v", <-fatal)
	}
}
