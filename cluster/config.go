package cluster

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"lockstep/store"
)

// Peer is a first member of a cluster.
type Peer struct {
	ID   string
	Addr string // peer address, host:port
}

// ScriptStopper ends the script that is running, and tells what it is.
type ScriptStopper interface {
	// Kill ends it at the wish of a client and returns SCRIPT KILL's reply.
	Kill() store.Reply
	// KillFunction is Kill for FUNCTION KILL.
	KillFunction() store.Reply
	// RunningFunction returns FUNCTION STATS's reply while a function runs,
	// Nil if none does.
	RunningFunction() store.Reply
	// BusyError is what others are told while it runs for long.
	BusyError() store.Error
	// Abort ends it because this node no longer leads.
	Abort()
}

// Config is all that a node needs to know.
type Config struct {
	ID        string // unique in the cluster
	Data      string // directory for log and snapshots
	LogStore  string // LogWAL or LogBolt; empty: as Data has it, else LogWAL
	Ephemeral bool   // keep nothing on disk; one node only

	PeerListen    string // where Raft and forwarding listen
	PeerAdvertise string // where other nodes reach it; PeerListen if empty
	Advertise     string // RESP address for clients, told to the other nodes
	Peers         []Peer // the first members; empty: this node alone

	// Where clients find this node's Sentinel and Cluster listeners; "" if it
	// has none.
	SentinelAdvertise string
	ClusterAdvertise  string
	RunID             string // names this process to clients
	// DownAfter is how long a member may be silent before it counts as down.
	DownAfter time.Duration

	// FailoverWait bounds how long a client waits through an election.
	FailoverWait time.Duration
	// BusyThreshold is how long a script may run before others are told BUSY.
	BusyThreshold time.Duration

	// Raft's timers. An election starts when a follower has heard nothing for
	// one to two heartbeat timeouts.
	HeartbeatTimeout time.Duration
	ElectionTimeout  time.Duration
	LeaderLease      time.Duration

	// SnapshotThreshold is how many entries after the last snapshot the next
	// one is due; SnapshotInterval how often that is checked.
	SnapshotThreshold uint64
	SnapshotInterval  time.Duration
	TrailingLogs      uint64

	Table   *store.Table
	Scripts ScriptStopper
	// Sink receives published messages on every node, in log order. One that is
	// a store.KeySink, too, is shown the write sets, and a store.AccountSink is
	// told of the users.
	Sink store.Sink
	// Receivers counts this node's subscribers of a channel.
	Receivers func(kind store.PublishKind, channel string) int
	// ACL is what this node adds to the users of the state.
	ACL store.ACLEnv

	Time   TimeSource
	Logger *slog.Logger
	// Fatal is called once if the node cannot go on without breaking a
	// promise: damaged data, a disk that fails. The process must end.
	Fatal func(error)

	// What a simulation puts in place of chance and the network; nil: these.
	random func() uint64
	dial   func(addr string, proto byte, timeout time.Duration) (net.Conn, error)
	// ready, if not nil, is called before a batch is taken; it decides which of
	// the requests that come at one instant are in it, and in which order.
	ready func(*sequencer)
}

// Default returns a configuration for one durable node.
func Default() Config {
	return Config{
		ID:                "n1",
		Data:              "lockstep-data",
		PeerListen:        "127.0.0.1:7379",
		FailoverWait:      2500 * time.Millisecond,
		DownAfter:         1500 * time.Millisecond,
		BusyThreshold:     5 * time.Second,
		HeartbeatTimeout:  500 * time.Millisecond,
		ElectionTimeout:   500 * time.Millisecond,
		LeaderLease:       400 * time.Millisecond,
		SnapshotThreshold: 50_000,
		SnapshotInterval:  10 * time.Second,
		TrailingLogs:      10_000,
	}
}

// Validate reports every fault at once.
func (c *Config) Validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if c.ID == "" || strings.ContainsAny(c.ID, " ,=\t\r\n") {
		fault("--id %q: use a name without spaces, commas or equal signs, such as n1", c.ID)
	}
	if c.FailoverWait <= 0 {
		fault("--failover-wait must be more than 0, such as 2.5s")
	}
	if c.DownAfter <= 0 {
		fault("how long a member may be silent before it counts as down must be more than 0")
	}
	if c.Ephemeral && len(c.Peers) > 1 {
		fault("--ephemeral keeps nothing on disk and is for one node only: leave out --peers")
	}
	switch c.LogStore {
	case "", LogWAL, LogBolt:
	default:
		fault("--log-store %q: want %s or %s", c.LogStore, LogWAL, LogBolt)
	}
	if !c.Ephemeral {
		if c.Data == "" {
			fault("--data must name a directory")
		}
		if _, _, err := net.SplitHostPort(c.PeerListen); err != nil {
			fault("--peer-listen %q: want host:port, such as 127.0.0.1:7379", c.PeerListen)
		}
	}
	c.validatePeers(fault)
	return errors.Join(faults...)
}

func (c *Config) validatePeers(fault func(string, ...any)) {
	seen, addrs, mine := map[string]bool{}, map[string]string{}, false
	for _, p := range c.Peers {
		if _, _, err := net.SplitHostPort(p.Addr); err != nil || p.ID == "" {
			fault("--peers: %q is not id=host:port", p.ID+"="+p.Addr)
			continue
		}
		if seen[p.ID] {
			fault("--peers names %s twice", p.ID)
		}
		if other := addrs[p.Addr]; other != "" {
			fault("--peers gives %s and %s the same address %s", other, p.ID, p.Addr)
		}
		seen[p.ID], addrs[p.Addr] = true, p.ID
		mine = mine || p.ID == c.ID
	}
	if len(c.Peers) > 0 && !mine {
		fault("--peers does not include this node: add %s=host:port, or set --id to one of its ids", c.ID)
	}
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
