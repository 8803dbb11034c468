package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/clock"
	"github.com/lockstep-io/lockstep/cluster/internal/datadir"
	"github.com/lockstep-io/lockstep/cluster/internal/forward"
	"github.com/lockstep-io/lockstep/cluster/internal/peerport"
	"github.com/lockstep-io/lockstep/cluster/internal/peers"
	"github.com/lockstep-io/lockstep/cluster/internal/raftnode"
	"github.com/lockstep-io/lockstep/cluster/internal/roster"
	"github.com/lockstep-io/lockstep/raftfsm"
	"github.com/lockstep-io/lockstep/store"
)

// The kinds of log store.
const (
	// LogWAL is hashicorp/raft-wal: segment files, one disk sync per append.
	LogWAL = datadir.LogWAL
	// LogBolt is raft-boltdb: a B+tree in raft.db, two disk syncs per append.
	LogBolt = datadir.LogBolt
)

// PeerTLS says how nodes prove to each other that they are peers.
type PeerTLS = peerport.TLS

// TimeSource is where time comes from. Only internal/clock asks the operating system; everywhere else time is an argument.
type TimeSource = clock.Source

// SystemTime is the machine's clock.
type SystemTime = clock.System

// NewSystemTime returns the machine's clock, whose monotonic time begins at zero.
func NewSystemTime() *SystemTime { return clock.NewSystem() }

// Peer is one of the first members of a cluster.
type Peer = raftnode.Peer

// ScriptStopper stops the running script, and returns what clients are told about it. It also drops what functions keep from
// call to call.
type ScriptStopper interface {
	// Kill ends the script at the wish of a client, and returns the reply to SCRIPT KILL.
	Kill() store.Reply
	// KillFunction is Kill for FUNCTION KILL.
	KillFunction() store.Reply
	// RunningFunction returns the reply to FUNCTION STATS while a function runs,
	// Nil if none runs.
	RunningFunction() store.Reply
	// BusyError is the error that other clients get while the script runs for long.
	BusyError() store.Error
	// TimeLimit is how long a script, another command or a whole transaction may run; 0: for ever.
	TimeLimit() time.Duration
	// Abort ends the script because this node no longer leads.
	Abort()
	// The goroutine that runs scripts calls Forget, Settle and Undo between two scripts. Forget drops what functions have kept,
	// because this node begins to lead.
	Forget()
	// Settle makes what has run so far final: a later call of Undo does not concern it.
	Settle()
	// Undo drops what functions have kept in the calls since Settle, because these calls are undone and may run again.
	Undo()
}

// Config is all that a node needs to know.
type Config struct {
	ID        string // unique in the cluster
	Data      string // directory for log and snapshots
	PageCache bool   // always write the log through the kernel's page cache
	LogStore  string // LogWAL or LogBolt; empty: the store that Data holds already, else LogWAL
	Ephemeral bool   // keep nothing on disk; one node only

	PeerListen    string // address on which Raft and forwarding listen
	PeerAdvertise string // address at which other nodes reach this one; PeerListen if empty
	Advertise     string // RESP address for clients, told to the other nodes
	Peers         []Peer // the first members of a new cluster; empty: this node alone
	// Join are the peer addresses of members of a running cluster: a new node
	// asks these members to add it, instead of beginning a cluster.
	Join []string
	// PeerTLS is the secret, or the certificates, with which nodes prove to each other that they are
	// peers.
	PeerTLS PeerTLS

	// Addresses at which clients find this node's Sentinel and Cluster listeners; "" if it has none.
	SentinelAdvertise string
	ClusterAdvertise  string
	// Addresses of this node's listeners with TLS for clients, Sentinel clients and Cluster clients; "" if it has none.
	TLSAdvertise, TLSSentinelAdvertise, TLSClusterAdvertise string

	RunID string // names this process to clients
	// DownAfter is how long a member may be silent before it counts as down.
	DownAfter time.Duration
	// PromoteAfter is how long a new member must have kept up with the log
	// before it becomes a voter.
	PromoteAfter time.Duration
	// YieldAfter is how long a voter must have kept up before a leader with less priority hands over to it.
	YieldAfter time.Duration

	// FailoverWait bounds how long a client waits through an election.
	FailoverWait time.Duration
	// BusyThreshold is how long a script may run before other requests are answered BUSY.
	BusyThreshold time.Duration

	// Raft's timers. An election starts one to two heartbeat timeouts after a leader falls silent. Followers answer heartbeats
	// without a disk write (transport.beat).
	HeartbeatTimeout time.Duration
	ElectionTimeout  time.Duration
	LeaderLease      time.Duration

	// LeaseReads lets a leader answer reads without asking its followers, while they promise to send no vote. Followers without
	// LeaseReads promise nothing.
	LeaseReads bool

	// Version is that of the program, which other members are told.
	Version string
	// Wish says whether this node leads rather than others, and whether it gets a vote. Only a node that joins can be without a vote.
	Wish Wish

	// SameOwnerNX is store.Env.SameOwnerNX. Only the leader's setting has an effect.
	SameOwnerNX bool

	// SnapshotThreshold is the number of entries after a snapshot that make the
	// next one due; SnapshotInterval is how often Raft counts them.
	SnapshotThreshold uint64
	SnapshotInterval  time.Duration
	TrailingLogs      uint64
	// SnapshotBytes: the next snapshot is due when the log's bytes after the last one exceed both SnapshotBytes and logPerData
	// times the data.
	SnapshotBytes int64

	Table   *store.Table
	Scripts ScriptStopper
	// Sink receives published messages on every node, in log order; a store.KeySink also the write sets, a store.AccountSink the
	// changed users, a store.LockSink the events of locks.
	Sink store.Sink
	// Clients says which of the clients with these ids this node has; nil: it has none.
	Clients func(ids []uint64) []ClientName
	// Receivers counts this node's subscribers of a channel.
	Receivers func(kind store.PublishKind, channel string) int
	// Subscribers counts this node's subscribers of a channel, without patterns.
	Subscribers func(kind store.PublishKind, channel string) int
	// UsersVersion returns the version of the users that the Sink has last been told of (store.Accounts). A nil UsersVersion means
	// that no rights are checked.
	UsersVersion func() uint64
	// Listens reports whether clients of this node subscribe or track keys; nil: they do. If they do, the leader tells this node
	// of messages at once.
	Listens func() bool
	// Slow is told of requests that take SlowFrom or longer, with their stages; nil: of none. It must not block.
	Slow     func(SlowRequest)
	SlowFrom time.Duration
	// DataQuota is the size of a leader's own data directory, in bytes, above which it adds no data; 0: no limit.
	DataQuota int64
	// BlockedMemory is how many bytes the leader may hold for blocking commands of other nodes' clients;
	// 0: no limit.
	BlockedMemory int64
	// Limits are the limits of data that apply while the cluster has set none.
	Limits store.Limits
	// ACL is what this node adds to the users that the cluster keeps.
	ACL store.ACLEnv

	Time   TimeSource
	Logger *slog.Logger
	// Fatal is called once if the node cannot go on without breaking a
	// promise: damaged data, a disk that fails. The process must end.
	Fatal func(error)

	// dial connects to the peer port at addr, for the protocol proto; nil: over the network. Tests use it to cut connections.
	dial func(addr string, proto byte, timeout time.Duration) (net.Conn, error)
	// listen opens the peer port; nil: on the network.
	listen func(addr string) (net.Listener, error)

	// random is the source of tokens and of the boot number; nil: a random generator.
	random func() uint64
	// ready, if not nil, is called before the sequencer takes a batch: a test decides what is in it, in which order.
	ready func(*sequencer)
	// sentAll, in tests, replaces Node.sentAll.
	sentAll func() bool

	peers *peerport.Dialer // connects to other nodes

	// disk is the disk that holds the data directory.
	disk datadir.Disk
	// speaks is the version of the peer protocol that the node speaks.
	speaks forward.Version
}

// Default returns a configuration for one durable node.
func Default() Config {
	return Config{
		ID:                "n1",
		Data:              "lockstep-data",
		PeerListen:        "127.0.0.1:7379",
		FailoverWait:      2500 * time.Millisecond,
		DownAfter:         1500 * time.Millisecond,
		PromoteAfter:      2 * time.Second,
		YieldAfter:        10 * time.Second,
		BusyThreshold:     5 * time.Second,
		HeartbeatTimeout:  500 * time.Millisecond,
		ElectionTimeout:   500 * time.Millisecond,
		LeaderLease:       400 * time.Millisecond,
		SnapshotThreshold: 50_000,
		SnapshotInterval:  10 * time.Second,
		TrailingLogs:      10_000,
		SnapshotBytes:     64 << 20,
		disk:              datadir.SystemDisk(),
		speaks:            forward.Version{Major: forward.Major, Minor: forward.Minor},
	}
}

// maxFailoverWait bounds Config.FailoverWait: a write is sent again for at most half of the time for which the state remembers
// it, because clocks differ.
const maxFailoverWait = raftfsm.OriginLifetime * time.Millisecond / 2

// Validate returns one error with every fault of the configuration.
func (c *Config) Validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if err := roster.CheckID(c.ID); err != nil {
		fault("--id: %w", err)
	}
	switch {
	case c.FailoverWait <= 0:
		fault("--failover-wait must be more than 0, such as 2.5s")
	case c.FailoverWait > maxFailoverWait:
		fault("--failover-wait %v: use at most %v: the cluster forgets after a while what it has executed, and a command that is sent again later would be executed twice", c.FailoverWait, maxFailoverWait)
	}
	if c.DownAfter <= 0 {
		fault("how long a member may be silent before it counts as down must be more than 0")
	}
	if c.PromoteAfter < 0 {
		fault("how long a new member must keep up before it gets its vote cannot be less than 0")
	}
	if c.Ephemeral && len(c.Peers) > 1 {
		fault("--ephemeral keeps nothing on disk and is for one node only: leave out --peers")
	}
	c.validateJoin(fault)
	switch c.LogStore {
	case "", LogWAL, LogBolt:
	default:
		fault("--log-store %q: want %s or %s", c.LogStore, LogWAL, LogBolt)
	}
	if !c.Ephemeral {
		if c.Data == "" {
			fault("--data must name a directory")
		}
		if err := CheckAddress(c.PeerListen); err != nil {
			fault("--peer-listen: %w, such as 127.0.0.1:7379", err)
		}
		if err := CheckAddress(c.PeerAdvertise); err != nil && c.PeerAdvertise != "" {
			fault("--peer-advertise: %w", err)
		} else if roster.ReachesNobody(c.PeerAdvertise) {
			fault("--peer-advertise %s stands for every address: give the one under which the other nodes reach this one", c.PeerAdvertise)
		}
	}
	if c.Wish.Priority < 0 || c.Wish.Priority > MostPriority {
		fault("--lead-priority %d: want a number from 0 to %d", c.Wish.Priority, MostPriority)
	}
	if c.Wish.Learner && len(c.Join) == 0 {
		fault("--voter=no is for a node that joins a running cluster: give --join; the first members of a cluster have a vote")
	}
	c.validatePeers(fault)
	c.PeerTLS.Validate(fault)
	return errors.Join(faults...)
}

func (c *Config) validatePeers(fault func(string, ...any)) {
	seen, addrs, mine := map[string]bool{}, map[string]string{}, false
	for _, p := range c.Peers {
		if err := cmp.Or(roster.CheckID(p.ID), CheckAddress(p.Addr)); err != nil {
			fault("--peers: %q is not id=host:port: %w", roster.Clip(p.ID+"="+p.Addr), err)
			continue
		}
		if roster.ReachesNobody(p.Addr) {
			fault("--peers: %s stands for every address: give the one under which the nodes reach %s", p.Addr, p.ID)
		}
		if seen[p.ID] {
			fault("--peers names %s twice", p.ID)
		}
		if other := addrs[p.Addr]; other != "" {
			fault("--peers gives %s and %s the same address %s", other, p.ID, p.Addr)
		}
		seen[p.ID], addrs[p.Addr] = true, p.ID
		switch mine = mine || p.ID == c.ID; {
		case p.ID != c.ID && (p.Addr == c.PeerListen || p.Addr == c.PeerAdvertise):
			fault("--peers: %s is the address of %s, and this node is %s: set --id %s, or another address", p.Addr, p.ID, c.ID, p.ID)
		case p.ID == c.ID && c.PeerAdvertise != "" && c.PeerAdvertise != p.Addr:
			fault("--peer-advertise %s is not the address of %s in --peers, %s: give both the same", c.PeerAdvertise, c.ID, p.Addr)
		}
	}
	if len(c.Peers) > raftnode.MaxMembers {
		fault("--peers names %d nodes; a cluster may have %d", len(c.Peers), raftnode.MaxMembers)
	}
	if len(c.Peers) > 0 && !mine {
		fault("--peers does not include this node: add %s=host:port, or set --id to one of its ids", c.ID)
	}
}

func (c *Config) validateJoin(fault func(string, ...any)) {
	if len(c.Join) == 0 {
		return
	}
	for _, addr := range c.Join {
		if err := CheckAddress(addr); err != nil {
			fault("--join: %w, the --peer-listen of a member", err)
		}
	}
	switch {
	case c.Ephemeral:
		fault("--ephemeral keeps nothing on disk and is for one node only: leave out --join")
	case len(c.Peers) > 0:
		fault("--join is for a cluster that runs, --peers for the first members of a new one: give one of them")
	case roster.ReachesNobody(c.peerAddr()):
		fault("--peer-listen %s stands for every address: say with --peer-advertise under which one the members reach this node", c.PeerListen)
	}
}

// CheckAddress fails unless addr is host:port, the only form that peers accept. Port 0 lets the system choose.
func CheckAddress(addr string) error {
	chosen := addr
	if host, isZero := strings.CutSuffix(addr, ":0"); isZero {
		chosen = host + ":1"
	}
	if roster.CheckAddress(chosen) != nil {
		return fmt.Errorf("%q is no address: want host:port", roster.Clip(addr))
	}
	return nil
}

// peerAddr is the address under which the other members know this node.
func (c *Config) peerAddr() string {
	for _, p := range c.Peers {
		if p.ID == c.ID {
			return p.Addr
		}
	}
	if c.PeerAdvertise != "" {
		return c.PeerAdvertise
	}
	return c.PeerListen
}

// addresses returns the addresses at which clients find this node.
func (c *Config) addresses() Addresses {
	return Addresses{Plain: c.Advertise, Sentinel: c.SentinelAdvertise, Cluster: c.ClusterAdvertise,
		TLSPlain: c.TLSAdvertise, TLSSentinel: c.TLSSentinelAdvertise, TLSCluster: c.TLSClusterAdvertise}
}

// raft returns the part of the configuration that Raft needs. The parameters of this method become the fields Older and Foreign of
// raftnode.Config.
func (c *Config) raft(older, foreign func(addr string) bool) *raftnode.Config {
	disk := c.disk
	disk.PageCache = c.PageCache
	return &raftnode.Config{
		ID: c.ID, Addr: c.peerAddr(), Data: c.Data, LogStore: c.LogStore, Disk: disk, Peers: c.Peers, Join: c.Join,
		Listen: c.listenPeers, Dialer: c.peers, Older: older, Foreign: foreign,
		HeartbeatTimeout: c.HeartbeatTimeout, ElectionTimeout: c.ElectionTimeout, LeaderLease: c.LeaderLease,
		Shy: c.Wish.Never, LeaseReads: c.LeaseReads, Listens: c.Listens,
		SnapshotThreshold: c.SnapshotThreshold, SnapshotInterval: c.SnapshotInterval, TrailingLogs: c.TrailingLogs,
		SnapshotBytes: c.SnapshotBytes, DataQuota: c.DataQuota,
		Time: clock.ForRaft{Source: c.Time}, Logger: c.Logger, Fatal: c.Fatal,
	}
}

// listenPeers opens the peer port.
func (c *Config) listenPeers() (ln net.Listener, err error) {
	if c.listen != nil {
		ln, err = c.listen(c.PeerListen)
	} else {
		ln, err = net.Listen("tcp", c.PeerListen)
	}
	if err != nil {
		return nil, fmt.Errorf("--peer-listen %s: %w; give an address of this machine and a port that no other process has", c.PeerListen, err)
	}
	return ln, nil
}

// watcher returns the part of the configuration of a node that concerns the other members.
func (c *Config) watcher(n *Node) peers.Config {
	return peers.Config{
		ID: c.ID, RunID: c.RunID, Data: c.Data, PeerAddr: c.peerAddr(), Addresses: c.addresses(), DownAfter: c.DownAfter,
		Version: c.Version, Wish: c.Wish, Clock: c.Time, Logger: c.Logger, Dialer: c.peers, Opened: n.opened,
		Raft: func() peers.Raft { return n.cons }, Leader: n.leading, Members: n.dismiss, Fatal: c.Fatal,
		Overruns: n.tellOverruns,
		Removed: func() {
			n.blockRegistry.signal() // run then tells the blocked clients that this node has been removed
			if keys, ok := c.Sink.(store.KeySink); ok {
				keys.Missed()
			}
		},
	}
}
