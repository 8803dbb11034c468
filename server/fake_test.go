package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/luavm"
	"github.com/lockstep-io/lockstep/store"
)

// epoch is the time at which every fake backend starts.
var epoch = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// fakeBackend runs commands on a store of its own. Its clock stands still
// until advance moves it.
type fakeBackend struct {
	mu       sync.Mutex
	store    *store.Store
	seq      uint64
	now      atomic.Int64 // ns since epoch
	hub      *Hub
	batch    []int    // sizes of the submissions
	txnUsers []string // the users of the transactions and WATCHes
	leader   string
	password string
	addr     string

	busy      atomic.Bool
	busyOnce  atomic.Bool // if true, the next call of Busy returns true
	kills     atomic.Int32
	running   atomic.Pointer[func() store.Reply] // answers RunningFunction, if set
	threshold atomic.Int64
	hold      atomic.Pointer[chan struct{}] // if set, Submit waits until it is closed
	stuck     atomic.Pointer[chan struct{}] // if set, the next Flush waits until it is closed
	held      atomic.Int32                  // calls that wait for hold or stuck
	snapshots atomic.Int32
	noDisk    atomic.Bool // if true, Snapshot fails
	fakeBlocked
	turns     atomic.Int32
	parts     atomic.Int64
	rested    atomic.Int64           // nanoseconds of work, as told to Rest
	alone     [4]sync.Mutex          // held during the work of a cluster.OwnKind
	asked     atomic.Int32           // how many clients wait for the field alone, or hold it
	paced     atomic.Int32           // how often Pace was called
	hashTakes atomic.Int64           // nanoseconds that StateHash takes
	leaves    atomic.Bool            // if true, Alone reports that the client has been cut off
	meanwhile atomic.Pointer[func()] // is called once while a client gives way
	gaveWay   atomic.Int64           // bytes of commands, as told to GiveWay
	underWay  atomic.Int64           // large commands that are not answered yet
	whole     atomic.Bool            // if true, SubmitPart runs all commands
	slow      atomic.Bool            // if true, SubmitPart runs one command, which takes a second
	single    atomic.Bool            // if true, SubmitPart runs one command
	watch     func(store.Reply)      // is told of each reply; guarded by mu
	others    atomic.Int32           // how many other members have every write
	refusal   atomic.Value           // a store.Error with which every submission is refused
	lags      atomic.Bool            // the node hears of changed users only when it asks for their version …
	late      atomic.Bool            // … or not even then

	topology           atomic.Pointer[cluster.Topology]
	changed            chan struct{} // closed when topology changes; guarded by mu
	unready            atomic.Bool
	misses             atomic.Int32 // how many more calls of Reaches return false
	removed            atomic.Bool
	older              atomic.Bool   // a command may reach a leader of version 0.1.0
	knownOlder         atomic.Bool   // a node is known to run version 0.1.0
	mayBeOld           atomic.Bool   // some node may run version 0.1.0
	committed, applied atomic.Uint64 // what Progress tells
	maxReply           atomic.Int64
	begun              atomic.Int32 // how many blocking commands have begun
}

var _ Backend = (*fakeBackend)(nil)

func newFake(hub *Hub) *fakeBackend {
	f := &fakeBackend{store: store.New(), hub: hub, leader: "n1", addr: "127.0.0.1:6379", fakeBlocked: fakeBlocked{waited: map[*cluster.Blocked]bool{}}}
	f.become(fakeTopology("n1"))
	return f
}

// clock takes no lock, because Submit calls it while Submit holds mu and delivers a message.
func (f *fakeBackend) clock() time.Time {
	return epoch.Add(time.Duration(f.now.Load()))
}

func (f *fakeBackend) advance(d time.Duration) {
	f.now.Add(int64(d))
}

func (f *fakeBackend) Submit(calls []cluster.Call, replies []store.Reply) []store.Reply {
	if hold := f.hold.Load(); hold != nil {
		f.held.Add(1)
		<-*hold
		f.held.Add(-1)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.batch = append(f.batch, len(calls))
	now := store.Time{Lease: f.now.Load()/1e6 + 1, Wall: f.clock().UnixMicro()}
	replies = replies[:0]
	for _, c := range calls {
		if e, _ := f.refusal.Load().(store.Error); e != "" {
			replies = append(replies, store.Err(e))
			continue
		}
		txn := f.store.Begin(now, f.seq+1, store.Env{Receivers: f.hub.Receivers, ACL: f.hub.ACL(f.password, nil), Limits: store.Limits{Reply: f.maxReply.Load()}, GiveUp: f.giveUp})
		txn.SetOrigin(c.Origin)
		ctx := &store.Ctx{Txn: txn, Cmd: c.Cmd, Args: c.Args, DB: c.DB, RESP: c.RESP}
		var r store.Reply
		if c.Txn != nil {
			f.txnUsers = append(f.txnUsers, c.User)
			r, _ = c.Txn.Run(txn, func(ctx *store.Ctx, refusal store.Reply, refused bool) store.Reply {
				if refused {
					return refusal
				}
				return ctx.Cmd.Run(ctx)
			})
		} else if refusal, ok := ctx.Authorize(c.User, c.Users); !ok {
			r = refusal
		} else if refusal, denied := ctx.NoRoom(); denied {
			r = refusal
		} else {
			r = c.Cmd.Run(ctx)
		}
		if f.watch != nil {
			f.watch(r)
		}
		replies = append(replies, txn.AttachDenials(r))
		if txn.Writes().Len() > 0 {
			f.seq++
			if err := f.store.Apply(txn.Writes().Bytes(), f.seq, f.hub); err != nil {
				panic(err)
			}
			f.hub.Applied(txn.Writes().Bytes())
			if f.store.AccountsVersion() == f.seq && !f.lags.Load() {
				f.hub.AccountsChanged(f.store.Accounts())
			}
		}
		if c.User == store.SystemUser && f.lags.Load() && !f.late.Load() {
			go f.hub.AccountsChanged(f.store.Accounts())
		}
	}
	f.serveWaiting()
	return replies
}

func (f *fakeBackend) Rest(_ *cluster.Client, took time.Duration) {
	f.rested.Add(int64(took))
	f.gives()
}

// gives calls f.meanwhile once, if a test has set it. The backend calls gives while a client waits for its turn.
func (f *fakeBackend) gives() {
	if do := f.meanwhile.Swap(nil); do != nil {
		(*do)()
	}
}

func (f *fakeBackend) GiveWay(_ *cluster.Client, bytes, _ int) (leave func()) {
	f.gaveWay.Add(int64(bytes))
	f.gives()
	f.underWay.Add(1)
	return func() { f.underWay.Add(-1) }
}

func (f *fakeBackend) NewClient(netip.Addr) *cluster.Client { return &cluster.Client{} }

// SubmitPart runs some or all of the calls: a different number each time, unless a test fixes it.
func (f *fakeBackend) SubmitPart(_ *cluster.Client, calls []cluster.Call, replies []store.Reply) []store.Reply {
	if f.slow.Load() {
		defer f.advance(time.Second)
		return f.Submit(calls[:1], replies)
	}
	if f.single.Load() {
		return f.Submit(calls[:1], replies)
	}
	if n := len(calls); n > 1 && f.hold.Load() == nil && !f.whole.Load() {
		calls = calls[:n-int(f.parts.Add(1))%n]
	}
	return f.Submit(calls, replies)
}

// SubmitAsync answers on the caller's goroutine and on another one, alternately.
func (f *fakeBackend) SubmitAsync(p *cluster.Submission) {
	run := func() {
		p.Replies = f.SubmitPart(p.Client, p.Calls, p.Replies)
		p.Done()
	}
	if f.hold.Load() == nil && f.turns.Add(1)%2 == 0 {
		run()
		return
	}
	go run()
}

// FlushWatched and Flush wait if a test has set f.stuck, as they would wait for a script.
func (f *fakeBackend) FlushWatched() { f.Flush() }

func (f *fakeBackend) Flush() {
	if gate := f.stuck.Swap(nil); gate != nil {
		f.held.Add(1)
		<-*gate
		f.held.Add(-1)
	}
}

// holdBack makes every Submit wait until the test calls the function release.
func (f *fakeBackend) holdBack() (release func()) {
	gate := make(chan struct{})
	f.hold.Store(&gate)
	return func() {
		f.hold.Store(nil)
		close(gate)
	}
}

func (f *fakeBackend) KillScript(uint64) store.Reply {
	f.kills.Add(1)
	return store.OK
}

func (f *fakeBackend) KillFunction(uint64) store.Reply {
	f.kills.Add(1)
	return store.OK
}

func (f *fakeBackend) RunningFunction(uint64) store.Reply {
	if running := f.running.Load(); running != nil {
		return (*running)()
	}
	return store.Nil
}
func (f *fakeBackend) BusyError() store.Error           { return store.ErrBusyScript }
func (f *fakeBackend) Busy() bool                       { return f.busyOnce.Swap(false) || f.busy.Load() }
func (f *fakeBackend) SetBusyThreshold(d time.Duration) { f.threshold.Store(int64(d)) }

func (f *fakeBackend) LeaderClient() (id, addr string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.leader, f.addr
}

// fakeTopology is a cluster of the three nodes n1, n2 and n3, all up.
func fakeTopology(leader string) *cluster.Topology {
	t := &cluster.Topology{Self: "n1", Leader: leader, Last: leader, Term: 3, Members: 3, DownAfter: time.Second}
	for i := 1; i <= 3; i++ {
		at := func(port int) string { return fmt.Sprintf("127.0.0.1:%d", port+i) }
		t.Nodes = append(t.Nodes, cluster.Sighting{ID: fmt.Sprintf("n%d", i), RunID: fmt.Sprintf("%040d", i), Applied: 7, Up: true, Known: time.Minute,
			Addresses: cluster.Addresses{Plain: at(6378), Sentinel: at(26378), Cluster: at(7000)}})
	}
	return t
}

// become gives the node another view of the cluster.
func (f *fakeBackend) become(t *cluster.Topology) {
	f.mu.Lock()
	defer f.mu.Unlock()
	outdated := f.changed
	f.changed = make(chan struct{})
	t.Changed = f.changed
	f.topology.Store(t)
	if outdated != nil {
		close(outdated)
	}
}

func (f *fakeBackend) Topology() *cluster.Topology { return f.topology.Load() }
func (f *fakeBackend) Reaches() bool               { return !f.unready.Load() && f.misses.Add(-1) < 0 }
func (f *fakeBackend) Progress() cluster.Progress {
	return cluster.Progress{Committed: f.committed.Load(), Applied: f.applied.Load()}
}
func (f *fakeBackend) ClientOf(uint64) (node string, id uint64) { return "", 0 }
func (f *fakeBackend) Removed() bool                            { return f.removed.Load() }
func (f *fakeBackend) Older() bool                              { return f.older.Load() }
func (f *fakeBackend) KnowsOlder() bool                         { return f.knownOlder.Load() }
func (f *fakeBackend) MayBeOlder() bool                         { return f.mayBeOld.Load() }

func (f *fakeBackend) Members() ([]cluster.Member, error) {
	return []cluster.Member{
		{ID: "n1", PeerAddr: "127.0.0.1:7379", Client: "127.0.0.1:6379", Leader: true, Voter: true},
		{ID: "n2", PeerAddr: "127.0.0.1:7380", Client: "127.0.0.1:6380", Voter: true},
	}, nil
}

func (f *fakeBackend) Status() cluster.Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	st := cluster.Status{ID: "n1", Role: cluster.Leader, LeaderID: f.leader, Term: 3, Applied: f.seq, Commit: f.seq}
	st.Sequence = f.seq
	if f.leader != "n1" {
		st.Role = cluster.Follower
	}
	st.Scripts, st.Expired = f.store.Scripts(), f.store.Expired()
	for db := range st.Keys {
		st.Keys[db], st.Deadlines[db] = f.store.Keys(db)
	}
	return st
}

func (f *fakeBackend) StateHash(*cluster.Client) (uint64, string, error) {
	f.advance(time.Duration(f.hashTakes.Load()))
	return f.seq, "0123456789abcdef", nil
}

func (f *fakeBackend) Add(id, addr string) error {
	if id == "n2" {
		return fmt.Errorf("%s is the id of another member", id)
	}
	return nil
}

func (f *fakeBackend) Remove(id string) error {
	if id != "n2" {
		return cluster.ErrNoMember
	}
	return nil
}

func (f *fakeBackend) Transfer(id string) error {
	if id != "" && id != "n2" {
		return cluster.ErrNoSuchMember
	}
	return nil
}

// Replicated waits until ctx ends if the argument others exceeds the number of members that have every write.
func (f *fakeBackend) Replicated(ctx context.Context, others int, _ bool) (int, bool) {
	if others > int(f.others.Load()) {
		<-ctx.Done()
		f.advance(time.Second)
	}
	return int(f.others.Load()), true
}

// testServer is a server with a fake backend. The server listens on loopback.
type testServer struct {
	*Server
	t    testing.TB
	fake *fakeBackend
	addr string
	tls  *tls.Config // for clients; nil without TLS
}

// newTestServer starts a server; the function change may alter the server's configuration.
func newTestServer(t testing.TB, change func(*Config)) *testServer {
	t.Helper()
	cfg := Default()
	fake := newFake(cfg.Hub)
	cfg.Clock = fake.clock
	cfg.Durable, cfg.patience = false, 50*time.Millisecond
	var secret *tls.Config
	if overTLS {
		cfg.TLS, secret = testCertificates(t)
	}
	if change != nil {
		change(&cfg)
	}
	fake.password = cfg.RequirePass
	var srv *Server
	scripts := luavm.New(luavm.Options{
		Now:       func() time.Duration { return time.Duration(fake.now.Load()) },
		TimeLimit: time.Minute,
		Allow:     func(cmd *store.Command) bool { return srv.AllowsInScript(cmd) },
		Local:     func(c *store.Ctx) store.Reply { return srv.RunInScript(c) },
		Trace:     func(c *store.Ctx) { srv.Watch(c) },
		Absent:    WhyAbsent,
	})
	table := store.NewTable(store.Commands(), scripts.Commands(), Commands())
	scripts.Bind(table)
	srv = New(cfg, fake, table)
	srv.catchUp()
	fake.batch = nil // tests look only at their own submissions
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- srv.ServeAs(ln, FacePlain, secret != nil) }()
	t.Cleanup(func() {
		if err := srv.Shutdown(t.Context()); err != nil && t.Context().Err() == nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return &testServer{Server: srv, t: t, fake: fake, addr: ln.Addr().String(), tls: secret}
}

// withLoops configures n loops on a durable node, because the loops of an ephemeral node do not park (loop_linux.go).
func withLoops(n int) func(*Config) {
	return func(c *Config) { c.Loops, c.Durable = n, true }
}

// client is a connection with methods that send requests and check the replies.
type client struct {
	t    testing.TB
	conn net.Conn
}

func (ts *testServer) dial(t testing.TB) *client {
	t.Helper()
	c, err := ts.connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &client{t: t, conn: c}
}

// send writes bytes as they are.
func (c *client) send(raw string) {
	c.t.Helper()
	if _, err := c.conn.Write([]byte(raw)); err != nil {
		c.t.Fatal(err)
	}
}

// expect reads exactly these bytes.
func (c *client) expect(want string) {
	c.t.Helper()
	got := make([]byte, 0, len(want))
	buf := make([]byte, len(want))
	deadline := time.AfterFunc(10*time.Second, func() { _ = c.conn.Close() })
	defer deadline.Stop()
	for len(got) < len(want) {
		n, err := c.conn.Read(buf[:len(want)-len(got)])
		got = append(got, buf[:n]...)
		if err != nil {
			c.t.Fatalf("got %q and then %v, want %q", got, err, want)
		}
	}
	if string(got) != want {
		c.t.Fatalf("got %q, want %q", got, want)
	}
}

// do sends a line as an inline request and expects an answer.
func (c *client) do(line, want string) {
	c.t.Helper()
	c.send(line + "\r\n")
	c.expect(want)
}

// expectClosed expects the server to end the connection without another word.
func (c *client) expectClosed() {
	c.t.Helper()
	deadline := time.AfterFunc(10*time.Second, func() { _ = c.conn.Close() })
	defer deadline.Stop()
	buf := make([]byte, 256)
	n, err := c.conn.Read(buf)
	if n > 0 || !deadline.Stop() {
		c.t.Fatalf("got %q, %v; want the connection closed", buf[:n], err)
	}
}

// bulk formats a RESP bulk string.
func bulk(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }

func (f *fakeBackend) Script(sha string) (string, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.store.Catalogue(nil).Script(sha)
}

func (f *fakeBackend) FunctionFlags(name string) (store.FunctionFlags, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.store.Catalogue(nil).FunctionFlags(name)
}

func (f *fakeBackend) Config(name string) (string, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.store.Parameters().Get(name)
}

// MaxReply returns the limit that a test has set, or the default.
func (f *fakeBackend) MaxReply() int64 { return cmp.Or(f.maxReply.Load(), store.DefaultMaxReply) }

// OutOfMemory and MaxEntry use no limits of a node's configuration, but those that a test has set for the cluster.
func (f *fakeBackend) OutOfMemory() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.store.OutOfMemory(store.Limits{})
}

func (f *fakeBackend) MaxEntry() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.store.MaxEntry(store.Limits{})
}
