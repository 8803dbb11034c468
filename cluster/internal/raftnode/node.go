// Package raftnode adapts hashicorp/raft: it gives a node a log that a majority has on disk, and corrects or checks
// what the library does or takes for granted.
package raftnode

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/lockstep-io/lockstep/cluster/internal/datadir"
	"github.com/lockstep-io/lockstep/cluster/internal/peerport"
	"github.com/lockstep-io/lockstep/raftfsm"
)

// Node is the consensus of a durable node: hashicorp/raft over the peer
// port and the data directory.
type Node struct {
	cfg   *Config
	fsm   *raftfsm.FSM
	raft  *raft.Raft
	trans *transport
	port  *peerport.Port
	dir   *datadir.Dir
	stop  chan struct{}

	founding   bool          // this process has made the directory, for a first member
	started    atomic.Bool   // Raft has read the log and the snapshot on disk
	configured atomic.Uint64 // index of the last configuration that this node knows to be committed

	proposals    proposals
	transferring sync.Mutex // held while leadership is transferred

	shortening sync.Mutex // held while Raft has other settings for one snapshot (snapshotShort)
	quota      quota
	room       room

	quit sync.Once
	down raft.Future // shutdown of Raft
}

// Hooks are the functions and channels by which a Node calls package cluster.
type Hooks struct {
	Serve    map[byte]func(net.Conn)       // serves the connections of a protocol of the peer port
	Applied  func(raftfsm.Outcome)         // an entry was applied, in log order
	Restored func(seq uint64, lease int64) // a snapshot was restored
	Members  func()                        // the configuration has changed
	Vouched  func(id string) bool          // reports whether other members say that a node is a member
	Leads    chan Leadership               // receives changes of leadership
	Crowded  func()                        // memory is crowded: gives up earlier states of the data
}

const (
	// shyFactor is by how much the timers of a node with Config.Shy are longer than those of others, which last up to twice as long as set.
	shyFactor        = 4
	transportPool    = 3
	transportTimeout = 10 * time.Second
	// applyTimeout bounds the wait for room in Raft's queue. The wait is usually short, because the leader has
	// only one entry in flight.
	applyTimeout = 5 * time.Second
)

// Open opens the data directory and the peer port, and starts Raft on what the disk holds.
func Open(cfg *Config, fsm *raftfsm.FSM, hooks Hooks) (*Node, error) {
	listen()
	r := &Node{cfg: cfg, fsm: fsm, stop: make(chan struct{})}
	if err := r.open(hooks); err != nil {
		close(r.stop) // ends the watches, if they have begun
		r.closeParts()
		return nil, err
	}
	return r, nil
}

func (r *Node) open(hooks Hooks) (err error) {
	cfg := r.cfg
	logs := raftLoggerOf(cfg.Logger, cfg.Time.Monotonic)
	if r.dir, err = openDirectory(cfg, cfg.Data, logs, r.dirHooks()); err != nil {
		return err
	}
	ln, err := cfg.Listen()
	if err != nil {
		return err
	}
	r.port = peerport.New(ln, cfg.Addr, cfg.Dialer, hooks.Serve)
	r.trans = newTransport(r.port, cfg, logs, r.stop, r.dir.Name(), r.dir.Cluster, r.meet)
	r.trans.log, r.trans.met, r.trans.vouched = r.dir.Log, r.dir.Knows, hooks.Vouched
	r.trans.unbound, r.trans.claim = r.unbound, r.claim
	r.trans.refused = newSeldom(cfg.Logger, slog.LevelWarn, cfg.Time.Monotonic)
	// These goroutines start only now because they call the method meet, which reads r.trans.
	go r.trans.relay()
	go r.trans.answerAppends(r.port)
	rc := raft.DefaultConfig()
	rc.LocalID = raft.ServerID(cfg.ID)
	rc.HeartbeatTimeout, rc.ElectionTimeout, rc.LeaderLeaseTimeout = cfg.HeartbeatTimeout, cfg.ElectionTimeout, cfg.LeaderLease
	rc.CommitTimeout = 10 * time.Millisecond // how late followers learn of a commit when nothing follows it
	if cfg.Shy {
		// As a leader, it sends heartbeats more rarely, but still within the others' timeouts.
		rc.HeartbeatTimeout, rc.ElectionTimeout = shyFactor*cfg.HeartbeatTimeout, shyFactor*cfg.ElectionTimeout
	}
	rc.SnapshotThreshold, rc.SnapshotInterval, rc.TrailingLogs = cfg.SnapshotThreshold, cfg.SnapshotInterval, cfg.TrailingLogs
	// Raft blocks when the channel won is full, and drops news when the channel seen is. So report drains both at once.
	won, seen := make(chan bool, 16), make(chan raft.Observation, 64)
	rc.NotifyCh = won
	rc.Logger = logs
	if err := r.bootstrap(rc); err != nil {
		return r.dir.Unusable(err, err)
	}
	if err := r.start(rc, newMachine(r, hooks)); err != nil {
		return r.dir.Unusable(err, fmt.Errorf("data directory %s cannot be used: %w: %s", cfg.Data, err, datadir.AdviceRejoin))
	}
	if err := r.comparePeers(); err != nil {
		return errors.Join(err, r.raft.Shutdown().Error())
	}
	r.warnOfAddress()
	r.raft.RegisterObserver(raft.NewObserver(seen, false, func(o *raft.Observation) bool {
		_, ok := o.Data.(raft.LeaderObservation)
		return ok
	}))
	go r.report(won, seen, hooks.Leads)
	return nil
}

// openDirectory opens the data directory at path.
func openDirectory(cfg *Config, path string, lines hclog.Logger, hooks datadir.Hooks) (*datadir.Dir, error) {
	return datadir.Open(path, datadir.Options{Disk: cfg.Disk, ID: cfg.ID, LogStore: cfg.LogStore, Lines: lines, Hooks: hooks})
}

// dirHooks returns the functions by which the data directory calls this node. The directory calls them only after r.trans is set.
func (r *Node) dirHooks() datadir.Hooks {
	return datadir.Hooks{
		Logger: r.cfg.Logger,
		Fatal:  r.cfg.Fatal,
		Leads: func() bool {
			running := r.trans.raft.Load()
			return running != nil && running.State() == raft.Leader
		},
		Replicates: func() bool { return r.trans.replicates.Load() },
		Reached: func() uint64 {
			running := r.trans.raft.Load()
			if running == nil {
				return 0
			}
			return max(running.CommitIndex(), running.AppliedIndex())
		},
		Cut:   r.fsm.Cut,
		Clock: r.cfg.Time.Monotonic,
		Stop:  r.stop,
		Wrote: r.cfg.Wrote,
	}
}

// start starts Raft on what the disk holds. It returns Raft's panic about an unreadable log as an error.
func (r *Node) start(rc *raft.Config, m *machine) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	if err := r.dir.CheckTerm(); err != nil {
		return err
	}
	last, err := r.dir.Log.LastIndex()
	if err != nil {
		return err
	}
	m.fsm.Replay(last)
	if err := r.dir.MeasureLog(r.cfg.SnapshotBytes, last); err != nil {
		return err
	}
	r.configured.Store(r.dir.SnapshotConfiguration())
	r.raft, err = raft.NewRaft(rc, m, r.dir.Log, r.dir.Stable, r.dir.Snapshots, r.trans)
	if err != nil {
		return err
	}
	r.started.Store(true)
	r.trans.raft.Store(r.raft)
	r.trans.progress.begin(r.applied)
	if last-min(last, r.dir.Snapshots.Newest().Index) >= r.cfg.SnapshotThreshold {
		go r.snapshotAt(last)
	}
	go r.boundLog(last)
	go r.watchDirectory(last)
	r.measureRoom()
	go r.watchTrouble()
	go r.watchPlace()
	return nil
}

// heldTick is how often the function report checks whether the log of a leader accepts entries again.
const heldTick = 20 * time.Millisecond

// report turns the news of Raft into changes of leadership.
func (r *Node) report(won <-chan bool, seen <-chan raft.Observation, leads chan<- Leadership) {
	leading := false
	// The observer does not report a leader that Raft found before the observer was registered.
	addr, id := r.raft.LeaderWithID()
	if l := (Leadership{ID: string(id), Addr: string(addr)}); l.ID != "" && l.ID != r.cfg.ID {
		select {
		case leads <- l:
		case <-r.stop:
			return
		}
	}
	// A single node whose disk is full is elected all the same. So the method report holds back its leadership until its log accepts
	// entries (trouble.go).
	held := false
	look := time.NewTicker(heldTick)
	defer look.Stop()
	for {
		var l Leadership
		select {
		case <-r.stop:
			return
		case <-look.C:
			if !held || r.Trouble() != "" {
				continue
			}
			held, l = false, Leadership{ID: r.cfg.ID, Self: true}
		case leading = <-won:
			was := held
			if held = leading && r.Trouble() != ""; held || was && !leading {
				continue
			}
			addr, id := r.raft.LeaderWithID()
			l = Leadership{ID: string(id), Addr: string(addr)}
			if leading {
				l = Leadership{ID: r.cfg.ID, Self: true}
			} else if l.ID == r.cfg.ID {
				l = Leadership{}
			}
		case o := <-seen:
			// The channel won says whether this node leads. The channel seen may still hold older news about this node.
			lo := o.Data.(raft.LeaderObservation)
			if string(lo.LeaderID) == r.cfg.ID || leading {
				continue
			}
			l = Leadership{ID: string(lo.LeaderID), Addr: string(lo.LeaderAddr)}
		}
		select {
		case leads <- l:
		case <-r.stop:
			return
		}
	}
}

// bootstrap gives a founder its first configuration. All first members write the same one, so their logs agree.
func (r *Node) bootstrap(rc *raft.Config) error {
	exists, err := raft.HasExistingState(r.dir.Log, r.dir.Stable, r.dir.Snapshots)
	if err != nil {
		return fmt.Errorf("data directory %s: %w", r.cfg.Data, err)
	}
	if !exists && (len(r.cfg.Join) > 0 || r.dir.Joining()) {
		if len(r.cfg.Join) == 0 {
			return fmt.Errorf("data directory %s is of a node that has not become a member yet: say with --join which cluster it is to join, or name another directory", r.cfg.Data)
		}
		// The node has no log, so it may join another cluster than the one that it was to join before.
		return errors.Join(r.dir.Finish("", true), r.dir.Unbind())
	}
	name := ""
	if !exists {
		if addr := r.foreignPeer(); addr != "" {
			return fmt.Errorf("the node at %s, which --peers names, is of a cluster without this node: with --peers this node would found another one, and both would grant the same locks; join that cluster with --join %s instead of --peers, or give all nodes the same --peers", addr, addr)
		}
		name, r.founding = clusterName(r.cfg.Peers), true
		var conf raft.Configuration
		for _, p := range r.cfg.Peers {
			conf.Servers = append(conf.Servers, raft.Server{ID: raft.ServerID(p.ID), Address: raft.ServerAddress(p.Addr)})
		}
		if len(conf.Servers) == 0 {
			if err := CheckFounder(r.cfg.Addr); err != nil {
				return err
			}
			conf.Servers = []raft.Server{{ID: rc.LocalID, Address: raft.ServerAddress(r.cfg.Addr)}}
		}
		if err := raft.BootstrapCluster(rc, r.dir.Log, r.dir.Stable, r.dir.Snapshots, r.trans, conf); err != nil {
			return fmt.Errorf("first configuration: %w", err)
		}
	}
	return r.dir.Finish(name, r.dir.Joining())
}

// foreignPeer returns the address of a node that --peers names and that is of a cluster without this node; "" if there is none.
func (r *Node) foreignPeer() string {
	var asked sync.WaitGroup
	found := make(chan string, len(r.cfg.Peers))
	for _, p := range r.cfg.Peers {
		if p.ID != r.cfg.ID && r.cfg.Foreign != nil {
			asked.Go(func() {
				if r.cfg.Foreign(p.Addr) {
					found <- p.Addr
				}
			})
		}
	}
	asked.Wait()
	select {
	case addr := <-found:
		return addr
	default:
		return ""
	}
}

// comparePeers warns if --peers differs from the members. It fails if this node is a cluster's sole member and --peers or --join
// stand for another.
func (r *Node) comparePeers() error {
	if r.founding || len(r.cfg.Peers)+len(r.cfg.Join) == 0 {
		return nil
	}
	conf := r.raft.GetConfiguration()
	if conf.Error() != nil {
		return nil // it is being stopped
	}
	known := map[string]string{}
	for _, s := range conf.Configuration().Servers {
		known[string(s.ID)] = string(s.Address)
	}
	if len(known) == 1 && known[r.cfg.ID] != "" {
		for _, addr := range r.cfg.Join {
			if addr != r.cfg.Addr && r.cfg.Foreign != nil && r.cfg.Foreign(addr) {
				return fmt.Errorf("data directory %s is of a cluster with one member, this node, and %s, which --join names, is of another one: this node would not join it, and both would grant the same locks; start this node with an empty directory to join, or without --join to go on alone", r.cfg.Data, addr)
			}
		}
	}
	if len(r.cfg.Peers) == 0 {
		return nil
	}
	given := map[string]string{}
	for _, p := range r.cfg.Peers {
		given[p.ID] = p.Addr
	}
	if len(known) == 1 && len(given) > 1 && r.dir.Cluster() != clusterName(r.cfg.Peers) {
		return fmt.Errorf("data directory %s is of a cluster with one member, this node, and --peers names others, which would be a cluster without what it holds: start this node without --peers and the others with empty directories and --join %s, or name another directory", r.cfg.Data, r.cfg.Addr)
	}
	if len(known) > 0 && !maps.Equal(known, given) {
		r.cfg.Logger.Warn("The members are those that the data directory knows, not those of --peers, which is for the first start of a cluster; lockstep add, remove and --join change them",
			"members", known, "peers", given)
	}
	return nil
}

// Propose returns when this node has applied the entry. ErrNotExecuted: it was not appended and never will be. ErrUnknown: it may
// still be applied.
func (r *Node) Propose(entry []byte) (raftfsm.Outcome, error) {
	if len(entry) > maxEntry {
		r.trans.refused.sayAt(slog.LevelError, "entry too long", "An entry is larger than the log can hold, and is not written; report this", "bytes", len(entry))
		return raftfsm.Outcome{}, ErrNotExecuted
	}
	if r.yields(len(entry)) || !r.proposals.enter() {
		return raftfsm.Outcome{}, ErrNotExecuted
	}
	defer r.proposals.leave()
	defer r.proposing(int64(len(entry)))()
	f := r.raft.Apply(entry, applyTimeout)
	switch err := r.await(f); {
	case err == nil:
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrEnqueueTimeout), errors.Is(err, datadir.ErrNoRoom):
		return raftfsm.Outcome{}, ErrNotExecuted
	default:
		return raftfsm.Outcome{}, fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	if out, ok := f.Response().(raftfsm.Outcome); ok {
		return out, nil
	}
	return raftfsm.Outcome{}, fmt.Errorf("%w: %v", ErrUnknown, f.Response())
}

// Barrier returns nil when this node has applied every entry of earlier leaders. ErrTransferring: leadership is being
// transferred.
func (r *Node) Barrier() error {
	if !r.proposals.enter() {
		return ErrTransferring
	}
	defer r.proposals.leave()
	if err := r.await(r.raft.Barrier(0)); !errors.Is(err, raft.ErrRaftShutdown) {
		return err
	}
	return ErrStopped
}

// await returns the error of f, or ErrRaftShutdown when this node quits: a stopped Raft answers no entry that waits for the state
// machine.
func (r *Node) await(f raft.Future) error {
	done := make(chan error, 1)
	go func() { done <- f.Error() }()
	select {
	case err := <-done:
		return err
	case <-r.stop:
		return raft.ErrRaftShutdown
	}
}

// Campaign makes this node stand for election: it sends this node the message by which a leader transfers leadership.
func (r *Node) Campaign() error {
	self, addr := raft.ServerID(r.cfg.ID), raft.ServerAddress(r.cfg.Addr)
	return r.trans.TimeoutNow(self, addr, &raft.TimeoutNowRequest{RPCHeader: r.trans.header()}, &raft.TimeoutNowResponse{})
}

// Members lists the members of the configuration.
func (r *Node) Members() ([]Member, error) {
	f := r.raft.GetConfiguration()
	if err := f.Error(); err != nil {
		return nil, err
	}
	_, leader := r.raft.LeaderWithID()
	var members []Member
	for _, s := range f.Configuration().Servers {
		members = append(members, Member{ID: string(s.ID), PeerAddr: string(s.Address),
			Leader: s.ID == leader, Voter: s.Suffrage == raft.Voter})
	}
	return members, nil
}

// Facts tells what Raft and the data directory know about this node.
func (r *Node) Facts() Facts {
	log := r.dir.Log
	return Facts{Term: r.raft.CurrentTerm(),
		Applied: log.WrittenUpTo(r.raft.AppliedIndex()), Commit: log.WrittenUpTo(r.raft.CommitIndex()), Told: r.trans.progress.toldIndex(), Done: r.trans.progress.done.Load(),
		DirectorySize: r.quota.size.Load(), DirectoryQuota: r.cfg.DataQuota}
}

// Snapshot takes a snapshot; it does nothing if there are no new entries since the last one.
func (r *Node) Snapshot() error {
	if err := r.raft.Snapshot().Error(); err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return err
	}
	return nil
}

// Overdue returns a message for the operator if a write to the disk is overdue, else "".
func (r *Node) Overdue() string { return r.dir.Overdue() }

// LastContact returns when this node last heard from a leader, and false if it has heard from none since its start.
func (r *Node) LastContact() (time.Duration, bool) {
	last := r.raft.LastContact()
	return r.cfg.Time.At(last), !last.IsZero()
}

// Quit begins to shut down Raft and closes the peer port. The shutdown ends all proposals. The caller must still call Close.
func (r *Node) Quit() {
	r.quit.Do(func() {
		close(r.stop)
		r.down = r.raft.Shutdown()
		r.port.Close() // so that Raft does not wait for answers of its peers
	})
}

// Close stops the member.
func (r *Node) Close() error {
	r.Quit()
	err := r.down.Error()
	r.closeParts()
	return err
}

func (r *Node) closeParts() {
	if r.trans != nil {
		r.trans.Close()
	}
	if r.port != nil {
		r.port.Close()
	}
	if r.dir != nil {
		r.dir.Close()
	}
}

// Parts is what the tests of package cluster see of a member.
type Parts struct {
	Raft      *raft.Raft
	Dir       *datadir.Dir
	Transport raft.Transport
	Header    raft.RPCHeader // of the requests of this member
	Told      uint64         // the highest commit index that leaders have sent to this member
}

// Parts returns what tests look at.
func (r *Node) Parts() Parts {
	p := &r.trans.progress
	p.mu.Lock()
	defer p.mu.Unlock()
	return Parts{r.raft, r.dir, r.trans, r.trans.header(), p.told}
}

// Sever ends every connection at once, as the death of the process would.
func (r *Node) Sever() {
	r.port.Close()
	r.trans.Close()
}
