package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/lockstep-io/lockstep/cluster/internal/clock"
	"github.com/lockstep-io/lockstep/cluster/internal/fair"
	"github.com/lockstep-io/lockstep/cluster/internal/forward"
	"github.com/lockstep-io/lockstep/cluster/internal/peerport"
	"github.com/lockstep-io/lockstep/cluster/internal/peers"
	"github.com/lockstep-io/lockstep/cluster/internal/raftnode"
	"github.com/lockstep-io/lockstep/cluster/tally"
	"github.com/lockstep-io/lockstep/raftfsm"
	"github.com/lockstep-io/lockstep/store"
)

// Node is a member of a cluster, or a single server.
type Node struct {
	cfg  Config
	boot uint64 // random number of this run of the process: it marks the proposals and forwarded writes of this node
	fsm  *raftfsm.FSM
	cons consensus

	clock         *clock.Lease
	routes        *router
	pending       pendingBatches
	tickets       forward.Tickets
	queue         fair.WaitQueue
	gate          *fair.Gate
	own           *fair.Gate // for heavy work that this node does by itself (ownwork.go)
	hashes        *fair.Shared[stateHash]
	asking        *semaphore.Weighted // weight 1: only one put-off request at a time is sent to the leader again (putOff)
	earlier       earlierStates
	blockRegistry *blockRegistry // keeps the blocked clients of this node
	guests        guests
	positions     peers.Positions
	measures      Measures
	held          *tally.Held // what this node knows of who holds locks
	batches       atomic.Uint64
	busy          atomic.Int64 // busy threshold in ns (SetBusyThreshold)
	served        atomic.Int64 // number of connections by which peers forward requests to this node
	handing       atomic.Bool  // this node transfers, or has transferred, its leadership
	stopping      atomic.Bool  // HandOver has been called
	saidStalled   atomic.Int64 // monotonic time of the last log line that the method stalled wrote
	busyLink      atomic.Pointer[busyLink]

	ctx    context.Context // ends when the node closes
	cancel context.CancelFunc
	waits  context.Context    // for requests that wait for a leader; ends with ctx, or earlier if no leader can come
	alone  context.CancelFunc // ends the context waits
	work   sync.WaitGroup
	opened chan struct{} // closed when cons is set: connections of peers that come earlier wait for that

	peers    *peers.Watcher
	yielder  peers.Yielder
	yielding <-chan struct{} // closed when yielder no longer runs for the last term

	overruns fair.Limits // the shortened time limits of users; a new term of leadership does not reset them

	mu         sync.Mutex
	leader     raftnode.Leadership
	unfollow   context.CancelFunc
	elections  uint64
	ledFrom    time.Duration          // the monotonic time at which this node has heard of the present leader, or that there is none
	saidLeader raftnode.Leadership    // the leader that the last log line about leaders names
	callers    map[*peerConn]struct{} // connections of peers that forward to this node
}

// Open starts a node on its data directory. An ephemeral node has no data directory.
func Open(cfg Config) (*Node, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	n, err := newNode(cfg)
	if err != nil {
		return nil, err
	}
	if cfg.Ephemeral {
		n.cons = &localLog{diskless: diskless{n.fsm}, id: cfg.ID, after: n.applied}
		close(n.opened)
		n.setLeader(raftnode.Leadership{ID: cfg.ID, Self: true})
		n.peers.Update()
		n.peers.Look()
		n.clock.Lead(0, 0)
		n.work.Add(1)
		go func() {
			defer n.work.Done()
			n.leadTerm(n.ctx)
		}()
		return n, nil
	}
	leads := make(chan raftnode.Leadership)
	rc := n.cfg.raft(n.peers.MayBeOlder, n.peers.Foreign)
	rc.Wrote, rc.Took = n.measures.LogSync.Took, n.measures.Apply.Took
	cons, err := raftnode.Open(rc, n.fsm, raftnode.Hooks{
		Serve:   map[byte]func(net.Conn){peerport.ProtoForward: n.serveForward, peerport.ProtoFacts: n.peers.Serve, peerport.ProtoJoin: n.serveJoin},
		Applied: n.applied, Restored: n.restored, Members: n.peers.Moved, Vouched: n.peers.Vouched, Leads: leads, Crowded: n.letGo,
	})
	if err != nil {
		n.cancel()
		return nil, err
	}
	n.cons = cons
	n.peers.Update()
	n.peers.Look()
	close(n.opened)
	n.work.Add(2)
	go n.watch(leads)
	n.work.Go(n.peers.Run)
	go n.join()
	return n, nil
}

// newNode returns a node that has no consensus yet.
func newNode(cfg Config) (_ *Node, err error) {
	if cfg.peers, err = peerport.NewDialer(cfg.PeerTLS, cfg.Time.Wall, cfg.Logger); err != nil {
		return nil, err
	}
	if cfg.random == nil {
		cfg.random = rand.Uint64
	}
	if cfg.dial != nil {
		cfg.peers.Network = cfg.dial
	}
	n := &Node{cfg: cfg, boot: cfg.random(), routes: newRouter(), asking: semaphore.NewWeighted(1), opened: make(chan struct{})}
	n.measures = newMeasures()
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.peers = peers.NewWatcher(n.ctx, cfg.watcher(n))
	n.gate = fair.NewGate(n.ctx, cfg.Time, n.members)
	n.own = n.gate.Beside()
	n.hashes = fair.NewShared[stateHash](n.own, fair.OwnHash)
	n.waits, n.alone = context.WithCancel(n.ctx)
	n.SetBusyThreshold(cfg.BusyThreshold)
	n.clock = clock.NewLease(cfg.Time)
	n.held = tally.NewHeld()
	n.fsm = raftfsm.New(noteSink{n})
	n.fsm.Limit(cfg.Limits)
	n.fsm.Brake(n.bring)
	if accounts, ok := cfg.Sink.(store.AccountSink); ok {
		n.fsm.Introduce(accounts)
	}
	if locks, ok := cfg.Sink.(store.LockSink); ok {
		n.fsm.Witness(newLockCounter(n, locks))
	}
	if keys, ok := cfg.Sink.(store.KeySink); ok {
		n.fsm.Show(keys)
	}
	n.blockRegistry = newBlockRegistry(n)
	n.guests.limit = cfg.BlockedMemory
	n.pending.stalled = n.stalled
	n.work.Add(1)
	go n.blockRegistry.run()
	return n, nil
}

// restored updates the node after a snapshot has replaced the state.
func (n *Node) restored(seq uint64, lease int64) {
	n.clock.Applied(lease)
	n.pending.giveUp(seq)
	n.blockRegistry.jumped()
}

// watch follows the changes of leadership.
func (n *Node) watch(leads <-chan raftnode.Leadership) {
	defer n.work.Done()
	endTerm := func() {}
	defer func() { endTerm() }()
	for {
		select {
		case <-n.ctx.Done():
			return
		case l := <-leads:
			endTerm()
			endTerm = func() {}
			n.setLeader(l)
			n.peers.Look()
			if l.Self {
				endTerm = n.startTerm()
			}
		}
	}
}

// startTerm begins a term of leadership. Before a barrier in its term, a leader cannot know what is committed (Raft dissertation,
// section 6.4).
func (n *Node) startTerm() (end func()) {
	last, known := n.cons.LastContact() // if known is false, this node has heard from no leader since its process started
	n.handing.Store(false)
	ctx, cancel := context.WithCancel(n.ctx)
	if !n.cons.Fixed() {
		p := peers.Promoter{Watcher: n.peers, After: n.cfg.PromoteAfter, Position: n.position, Reconfigure: n.cons.Reconfigure}
		n.work.Go(func() { p.Run(ctx) })
		n.yieldUntil(ctx)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		said := ""
		for ctx.Err() == nil {
			// The state is complete only when all entries of earlier leaders have been applied.
			if err := n.cons.Barrier(); err != nil {
				if err.Error() != said && !errors.Is(err, raftnode.ErrTransferring) && !errors.Is(err, raftnode.ErrStopped) {
					said = err.Error()
					n.cfg.Logger.Warn("cannot lead yet", "error", err)
				}
				select {
				case <-ctx.Done():
				case <-time.After(retryPause):
				}
				continue
			}
			leaderless := time.Duration(1<<63 - 1)
			if known {
				leaderless = (n.cfg.Time.Monotonic() - last).Truncate(time.Millisecond)
			}
			n.clock.Lead(leaderless, n.late())
			n.leadTerm(ctx)
			n.clock.Follow()
			last, known = n.cfg.Time.Monotonic(), true
		}
	}()
	return func() {
		cancel()
		if n.cfg.Scripts != nil {
			n.cfg.Scripts.Abort()
		}
		<-done
	}
}

// late bounds the time from the last entry's evaluation to its reply: 0 without a lease, else promptly (a later reply needs
// another entry).
func (n *Node) late() (late time.Duration) {
	n.fsm.View(func(st *store.Store, seq uint64) {
		if seq > 0 && st.LastLease() == seq {
			late = promptly
		}
	})
	return late
}

// leadTerm runs a sequencer until the sequencer or ctx ends.
func (n *Node) leadTerm(ctx context.Context) {
	n.learnOverruns()
	if n.cfg.Scripts != nil {
		n.cfg.Scripts.Forget()
	}
	seq := newSequencer(n)
	seq.term = n.term() // set before others can find the sequencer
	seq.blockedClients.term = seq.term
	n.routes.set(ctx, seq, nil)
	seq.lead(ctx)
	n.routes.drop(seq, nil)
}

// setLeader notes the present leader and connects to it.
func (n *Node) setLeader(l raftnode.Leadership) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.leader == l {
		return
	}
	if l.ID != "" && l.ID != n.leader.ID {
		n.elections++
		if said := l; said != n.saidLeader {
			n.saidLeader = said
			n.cfg.Logger.Info("leader", "id", l.ID, "peer", l.Addr)
		}
	}
	n.leader, n.ledFrom = l, n.cfg.Time.Monotonic()
	if l.ID != "" && !l.Self {
		n.cons.Led()
	}
	if n.unfollow != nil {
		n.unfollow()
		n.unfollow = nil
	}
	if l.Self || l.Addr == "" {
		return
	}
	ctx, cancel := context.WithCancel(n.ctx)
	n.unfollow = cancel
	n.work.Add(1)
	go func() {
		defer n.work.Done()
		n.follow(ctx, l)
	}()
}

// Status describes the node. It does not wait for a running script.
func (n *Node) Status() Status {
	n.mu.Lock()
	l, changes, from := n.leader, n.elections, n.ledFrom
	n.mu.Unlock()
	s := Status{ID: n.cfg.ID, LeaderID: l.ID, LeaderFor: n.cfg.Time.Monotonic() - from, LeaderChanges: changes, Role: Follower, Membership: n.Membership()}
	switch {
	case l.Self:
		s.Role = Leader
	case l.ID == "":
		s.Role = Candidate
	}
	f := n.cons.Facts()
	s.Term, s.Applied, s.Commit, s.DirectorySize, s.DirectoryQuota = f.Term, f.Applied, f.Commit, f.DirectorySize, f.DirectoryQuota
	s.Leaderless, s.LastLeaderless = n.clock.Leaderless()
	s.WallShift = n.clock.Shifted()
	s.Facts = n.fsm.Facts()
	return s
}

// Progress tells how far this node has come in the log. It may be called while an entry is applied: it locks no state.
func (n *Node) Progress() Progress {
	f := n.cons.Facts()
	return Progress{Committed: f.Told, Applied: f.Done}
}

// Config returns a parameter of the cluster as this node knows it, and whether it was ever set. It does not wait for a script.
func (n *Node) Config(name string) (value string, ok bool) {
	facts := n.fsm.Facts()
	return facts.Config(name)
}

// OutOfMemory reports whether the data is at its limit, as far as this node knows. It does not wait for a
// running script.
func (n *Node) OutOfMemory() bool { return n.fsm.OutOfMemory() }

// MaxEntry returns how many bytes one command, script or transaction may write. It does not wait for a
// running script.
func (n *Node) MaxEntry() int64 { return n.fsm.MaxEntry() }

// MaxReply returns how many bytes one reply may have.
func (n *Node) MaxReply() int64 { return n.cfg.Limits.MaxReply() }

// Script returns a cached script by its SHA-1 in lower case, as this node knows it.
func (n *Node) Script(sha string) (body string, ok bool) {
	return n.fsm.Catalogue().Script(sha)
}

// FunctionFlags returns the flags that a function declares, as this node knows them.
func (n *Node) FunctionFlags(name string) (flags store.FunctionFlags, ok bool) {
	return n.fsm.Catalogue().FunctionFlags(name)
}

// term returns the present Raft term as this node knows it.
func (n *Node) term() uint64 { return n.cons.Facts().Term }

// Members returns the members with what this node knows of each.
func (n *Node) Members() ([]Member, error) {
	known, err := n.cons.Members()
	commit := n.position()
	members := make([]Member, len(known))
	for i, k := range known {
		m := &members[i]
		*m = Member{ID: k.ID, PeerAddr: k.PeerAddr, Leader: k.Leader, Voter: k.Voter, Version: n.peers.Version(k.ID), Wish: n.peers.Wish(k.ID)}
		if m.ID == n.cfg.ID {
			m.Up, m.Applied = true, n.peers.Own().Applied
		} else {
			m.Up, m.Applied = n.peers.Alive(m.ID), n.peers.Applied(m.ID)
		}
		m.Behind = commit - min(m.Applied, commit)
		m.Client = n.peers.Client(m.ID)
	}
	return members, err
}

// LeaderClient returns the id and RESP address of the leader, each empty if it is not known.
func (n *Node) LeaderClient() (id, addr string) {
	id = n.leading().ID
	return id, n.peers.Client(id)
}

// Trouble says why this node's log accepts no entries, although the process runs: its disk is full, or hangs.
func (n *Node) Trouble() string { return cmp.Or(n.cons.Trouble(), n.cons.Overdue()) }

// Busy reports whether a script on this node, the leader, has run for longer
// than the busy threshold.
func (n *Node) Busy() bool {
	seq := n.routes.get().seq
	return seq != nil && seq.in.IsBusy()
}

// SetBusyThreshold changes how long a script may run before other clients get the reply that the server is
// busy.
func (n *Node) SetBusyThreshold(d time.Duration) { n.busy.Store(int64(d)) }

func (n *Node) busyThreshold() time.Duration { return time.Duration(n.busy.Load()) }

// BusyError returns the error that clients get while Busy is true.
func (n *Node) BusyError() store.Error {
	if n.cfg.Scripts == nil {
		return store.ErrBusyScript
	}
	return n.cfg.Scripts.BusyError()
}

// Transfer transfers leadership to a member ("": any), whichever node leads. It waits for a leader,
// because for a moment after another transfer there is none.
func (n *Node) Transfer(id string) error {
	ctx, cancel := context.WithTimeout(n.ctx, n.cfg.FailoverWait)
	defer cancel()
	for {
		rt := n.routes.get()
		err := n.transferBy(ctx, rt, id)
		if err == nil || strings.TrimPrefix(err.Error(), "ERR ") != ErrNoLeader.Error() {
			return err
		}
		pause := (<-chan time.Time)(nil)
		if rt.link != nil {
			pause = time.After(10 * retryPause) // perhaps the old leader no longer leads, and this node does not know that yet
		}
		select {
		case <-ctx.Done():
			return ErrNoLeader
		case <-rt.changed:
		case <-pause:
		}
	}
}

func (n *Node) transferBy(ctx context.Context, rt route, id string) error {
	switch {
	case rt.seq != nil:
		return n.transferHere(id)
	case rt.link == nil:
		return ErrNoLeader
	}
	reply, err := n.ask(ctx, rt.link, forward.Transfer, transferBody(id))
	if err != nil {
		return fmt.Errorf("the leader did not answer: %w", err)
	}
	if reply.IsError() {
		return errors.New(reply.Str)
	}
	return nil
}

// Snapshot writes a snapshot of this node's state now.
func (n *Node) Snapshot() error { return n.cons.Snapshot() }

func (n *Node) leads() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.leader.Self
}

// ReloadPeerTLS reads the secrets or certificates for peers again. On an error it keeps the old ones. Connections stay open.
func (n *Node) ReloadPeerTLS() error {
	return n.cfg.peers.Reload()
}

// Strangers returns how many callers the peer port has turned away.
func (n *Node) Strangers() uint64 { return n.cfg.peers.Strangers.Total.Load() }

// NewClient returns the Client for a connection from an address.
func (n *Node) NewClient(addr netip.Addr) *Client { return n.gate.NewClient(addr) }

// GiveWay waits for the client's turn before its session handles a command with large arguments by itself. The session must call
// leave.
func (n *Node) GiveWay(c *Client, bytes, arguments int) (leave func()) {
	return n.gate.GiveWay(c, bytes, arguments)
}

// RepliesInHand returns the bytes of the large replies that this node has made or received, and has not encoded for their
// clients yet.
func (n *Node) RepliesInHand() int64 { return n.gate.InHand.Bytes() }

// members returns the number of members of the cluster, at least one.
func (n *Node) members() int {
	list, err := n.cons.Members()
	if err != nil {
		return 1 // the node is closing
	}
	return max(len(list), 1)
}

// Topology returns what this node knows of the cluster. It costs one atomic load.
func (n *Node) Topology() *Topology { return n.peers.Topology() }

// Misplaced returns the wrong peer address at which the members look for this node, or "" if they look at the right one.
func (n *Node) Misplaced() string { return n.peers.Misplaced() }

// leading returns the leader as this node knows it.
func (n *Node) leading() raftnode.Leadership {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.leader
}
