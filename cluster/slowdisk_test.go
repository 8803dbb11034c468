package cluster

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/lockstep-io/lockstep/cluster/internal/crashdisk"
	"github.com/lockstep-io/lockstep/cluster/internal/datadir"
	"github.com/lockstep-io/lockstep/luavm"
	"github.com/lockstep-io/lockstep/store"
)

// slowDisk is the machine's disk, with syncs that take as long as the test says.
type slowDisk struct {
	crashdisk.SystemFiles
	takes atomic.Int64 // time.Duration
	syncs atomic.Int64 // number of syncs that took so long

	hang sync.RWMutex // held for writing while syncs hang
}

func (d *slowDisk) disk() datadir.Disk {
	on := datadir.SystemDisk()
	on.Files = d
	on.Stable = func(s raft.StableStore) raft.StableStore { return slowStable{s, d} }
	return on
}

func (d *slowDisk) wait() {
	d.hang.RLock()
	defer d.hang.RUnlock()
	if takes := time.Duration(d.takes.Load()); takes > 0 {
		time.Sleep(takes) // real time: Raft's own timers run meanwhile
		d.syncs.Add(1)
	}
}

func (d *slowDisk) Create(path string) (datadir.File, error) {
	f, err := d.SystemFiles.Create(path)
	return slowFile{f, d}, err
}

func (d *slowDisk) Open(path string) (datadir.File, error) {
	f, err := d.SystemFiles.Open(path)
	return slowFile{f, d}, err
}

type slowFile struct {
	datadir.File
	d *slowDisk
}

func (f slowFile) Sync() error {
	f.d.wait()
	return f.File.Sync()
}

func (f slowFile) SyncData() error { return f.Sync() }

// slowStable is the store of the term and the vote.
type slowStable struct {
	raft.StableStore
	d *slowDisk
}

func (s slowStable) SetUint64(key []byte, value uint64) error {
	s.d.wait()
	return s.StableStore.SetUint64(key, value)
}

func (s slowStable) Set(key, value []byte) error {
	s.d.wait()
	return s.StableStore.Set(key, value)
}

// elapsedCommand tells scripts how much real time has passed. While it sleeps, only goroutines that need the state are held up.
var elapsedCommand = store.Command{Name: "elapsed", Arity: 1, Flags: store.ReadOnly, Run: func(*store.Ctx) store.Reply {
	time.Sleep(ms)
	return store.Int(time.Since(elapsedFrom).Milliseconds())
}}

var elapsedFrom = time.Now()

// withLua gives a node the real Lua engine.
func withLua(cfg *Config) {
	engine := luavm.New(luavm.Options{Now: cfg.Time.Monotonic})
	cfg.Table = store.NewTable(store.Commands(), engine.Commands(), []store.Command{elapsedCommand})
	engine.Bind(cfg.Table)
	cfg.Scripts = engine
}

const (
	spinScript = `local from = redis.call('elapsed')
		while redis.call('elapsed') - from < tonumber(ARGV[1]) do end
		return redis.call('INCR', KEYS[1])`
	renewScript = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0`
)

// eval runs a script. The helper named lines cannot do that: it splits commands at blanks, and a script has blanks in it.
func eval(t testing.TB, n *Node, script string, args ...string) string {
	t.Helper()
	call := Call{RESP: 2, Args: [][]byte{[]byte("EVAL"), []byte(script), []byte("1")}}
	for _, a := range args {
		call.Args = append(call.Args, []byte(a))
	}
	var ok bool
	if call.Cmd, ok = n.cfg.Table.Resolve(call.Args); !ok {
		t.Fatal("there are no scripts")
	}
	return text(n.Submit([]Call{call}, nil))
}

// lease is a lock. Until the test ends, its owner renews it through one node, and a thief tries to take it through another one.
type lease struct {
	c     *three
	key   string
	ttl   time.Duration
	until atomic.Int64 // elapsed time at which the lease may end, as its owner counts

	renewals atomic.Int64
}

// counts notes that a request took or renewed the lock. The lease lasts at least ttl from the time at which that request was
// sent.
func (l *lease) counts(sent time.Duration) { l.until.Store(int64(sent + l.ttl)) }

func (l *lease) holds() bool { return time.Since(elapsedFrom) < time.Duration(l.until.Load()) }

func (l *lease) take(n *Node) {
	l.c.t.Helper()
	sent := time.Since(elapsedFrom)
	if got := lines(l.c.t, n, fmt.Sprintf("SET %s owner NX PX %d", l.key, l.ttl.Milliseconds())); got != "OK" {
		l.c.t.Fatalf("%s: %s", l.key, got)
	}
	l.counts(sent)
}

// renew renews the lease until stop is set. A lease that has not run out must not be lost.
func (l *lease) renew(n *Node, stop *atomic.Bool) {
	for !stop.Load() {
		sent := time.Since(elapsedFrom)
		got := eval(l.c.t, n, renewScript, l.key, "owner", fmt.Sprint(l.ttl.Milliseconds()))
		switch {
		case got == "1":
			l.counts(sent)
			l.renewals.Add(1)
		case got != "0" || l.holds():
			l.c.t.Errorf("%s: the renewal was told %q, and the lease holds: %v", l.key, got, l.holds())
			return
		default: // the machine was so busy that the renewal came too late, and its reply says that
			l.c.t.Logf("%s ran out", l.key)
			return
		}
		time.Sleep(50 * ms)
	}
}

// steal tries to take the lock until stop is set.
func (l *lease) steal(n *Node, stop *atomic.Bool) {
	for !stop.Load() {
		// A renewal on its way may lengthen the lease; nothing shortens it.
		until := time.Duration(l.until.Load())
		got := lines(l.c.t, n, "SET "+l.key+" thief NX PX 60000")
		if now := time.Since(elapsedFrom); got != "nil" && (got != "OK" || now < until) {
			l.c.t.Errorf("%s: a thief was told %q %v before the lease ends", l.key, got, until-now)
		}
		if got != "nil" {
			return
		}
		time.Sleep(50 * ms)
	}
}

// stillLed requires that no other leader has been elected since the time of the Status before.
func (c *three) stillLed(before Status) {
	c.t.Helper()
	for _, n := range c.nodes {
		if s := n.Status(); s.Term != before.Term || s.LeaderID != before.LeaderID {
			c.t.Errorf("%s: led by %q in term %d; it was %q in term %d", s.ID, s.LeaderID, s.Term, before.LeaderID, before.Term)
		}
	}
}

// J13: slow scripts and slow disks cost only time. The leader stays, and owners keep their leases.
func TestJ13SlowScriptsAndSlowDisks(t *testing.T) {
	const (
		beat   = 800 * ms // heartbeat timeout: an election takes one or two of these
		script = 1700 * ms
		stall  = 750 * ms // more than the leader's lease
		rounds = 2
	)
	slow := &slowDisk{}
	c := startThree(t, withLua, func(cfg *Config) {
		cfg.HeartbeatTimeout, cfg.ElectionTimeout, cfg.LeaderLease = beat, beat, beat*4/5
		cfg.disk, cfg.FailoverWait = slow.disk(), 8*time.Second
	})
	c.start(0, 1, 2)
	leader := c.leader()
	before := c.nodes[leader].Status()
	var leases []*lease
	for i := range 3 {
		l := &lease{c: c, key: fmt.Sprint("lock", i), ttl: 8 * time.Second}
		l.take(c.nodes[i])
		leases = append(leases, l)
	}
	slow.takes.Store(int64(stall))
	t.Cleanup(func() { slow.takes.Store(0) })
	load := c.startLoad(0, 1, 2)
	var stop atomic.Bool
	var clients sync.WaitGroup
	for i, l := range leases {
		clients.Go(func() { l.renew(c.nodes[i], &stop) })
		clients.Go(func() { l.steal(c.nodes[(i+1)%3], &stop) })
	}
	for i := 0; i < rounds && !t.Failed(); i++ {
		if got := eval(t, c.nodes[(leader+i)%3], spinScript, "spun", fmt.Sprint(script.Milliseconds())); got != fmt.Sprint(i+1) {
			t.Errorf("script %d: %q", i, got)
		}
		if got := c.do((leader+i+1)%3, "GET spun"); got != fmt.Sprint(i+1) {
			t.Errorf("after script %d: %q", i, got)
		}
	}
	stop.Store(true)
	clients.Wait()
	if t.Failed() {
		load.stop.Store(true)
		return
	}
	if slow.syncs.Load() < 3*rounds {
		t.Errorf("only %d syncs were slow", slow.syncs.Load())
	}
	slow.takes.Store(0)
	if failed := load.end(); len(failed) > 0 {
		t.Errorf("clients were told %v", failed)
	}
	c.stillLed(before)
	for _, l := range leases {
		if l.renewals.Load() == 0 {
			t.Errorf("%s was never renewed", l.key)
		}
	}
	c.same()
	c.expect(0, fmt.Sprint(rounds), "GET spun")
}

// TestNodeWhoseDiskHangsIsNotReady: a follower whose disk hangs counts for no majority. Its clients are not told that the disk is
// full.
func TestNodeWhoseDiskHangsIsNotReady(t *testing.T) {
	disks := map[string]*slowDisk{"n1": {}, "n2": {}, "n3": {}}
	c := startThree(t, func(cfg *Config) { cfg.disk = disks[cfg.ID].disk() })
	c.start(0, 1, 2)
	leader := c.leader()
	follower := (leader + 1) % 3
	n := c.nodes[follower]
	c.until("a ready node", n.Ready)
	disk := disks[n.cfg.ID]
	disk.hang.Lock()
	goOn := sync.OnceFunc(disk.hang.Unlock)
	t.Cleanup(goOn) // before the nodes are closed
	c.expect(leader, "OK", "SET k v")
	c.until("a node that is not ready", func() bool { return !n.Ready() && strings.Contains(n.Trouble(), "the disk hangs") })
	if got := n.downError(); got != ErrClusterDown {
		t.Errorf("clients would be told %q", got)
	}
	goOn()
	c.until("a ready node again", func() bool { return n.Ready() && n.Trouble() == "" })
}
