package raftnode

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/datadir"
	"github.com/lockstep-io/lockstep/cluster/internal/peerport"
)

// Peer is a first member of a cluster.
type Peer struct {
	ID   string
	Addr string // peer address, host:port
}

// Config is what a member of Raft needs to know. The fields without a comment are as in cluster.Config.
type Config struct {
	ID       string
	Addr     string // peer address under which the others know this node
	Data     string
	LogStore string
	Disk     datadir.Disk
	Peers    []Peer
	Join     []string

	Listen func() (net.Listener, error) // opens the peer port
	Dialer *peerport.Dialer             // calls other nodes
	Older  func(addr string) bool       // reports whether the member at addr may run an earlier version

	// Foreign reports whether the node at addr says that it is of a cluster without this node; nil: nobody is asked.
	Foreign func(addr string) bool

	HeartbeatTimeout, ElectionTimeout, LeaderLease time.Duration
	Shy                                            bool // stands for election only when other members have not
	LeaseReads                                     bool
	Listens                                        func() bool

	SnapshotThreshold uint64
	SnapshotInterval  time.Duration
	TrailingLogs      uint64
	SnapshotBytes     int64
	DataQuota         int64

	Time   TimeSource
	Logger *slog.Logger
	Fatal  func(error)

	// Wrote is told how long each write of the log took, and Took how long each entry took to apply. Either may be nil.
	Wrote, Took func(time.Duration)
}

// TimeSource is where time comes from.
type TimeSource interface {
	// Monotonic never runs back and does not follow the wall clock.
	Monotonic() time.Duration
	// Wall is the time of day.
	Wall() time.Time
	// At converts a result of time.Now in this process to the monotonic clock.
	At(time.Time) time.Duration
}

// Member is a member of Raft's configuration.
type Member struct {
	ID, PeerAddr  string
	Leader, Voter bool
}

// Facts is what Raft and the data directory know about a node.
type Facts struct {
	Term            uint64
	Applied, Commit uint64 // indexes in the log
	Told            uint64 // the commit index that the present leader, another node, has told this one; 0: none
	Done            uint64 // the last entry that the state machine has applied; Applied also counts entries that wait for the state machine

	DirectorySize  int64 // bytes of the files in the data directory
	DirectoryQuota int64 // Config.DataQuota
}

// Leadership says who leads; a Node sends one at each change (Hooks.Leads). ID is empty if no leader is known.
type Leadership struct {
	ID   string
	Addr string // peer address
	Self bool   // this node leads
}

// clusterName makes the name of a new cluster. First members must agree on it, so it is derived from peers, if there are any.
func clusterName(peers []Peer) string {
	if len(peers) == 0 {
		return rand.Text()
	}
	var lines []string
	for _, p := range peers {
		lines = append(lines, p.ID+"="+p.Addr)
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	return hex.EncodeToString(sum[:16])
}

// The errors of a proposal, of Barrier, and of Transfer.
var (
	// ErrNotExecuted: the proposal had no effect and never will; it may be tried again.
	ErrNotExecuted = errors.New("cluster: not executed")
	// ErrUnknown: the proposal may or may not have taken effect.
	ErrUnknown = errors.New("cluster: outcome unknown")
	// ErrStopped is the error of Barrier on a node that quits.
	ErrStopped = errors.New("this node stops")
	// ErrNoSuchMember is the error of Transfer to a node that is not a voter.
	ErrNoSuchMember = errors.New("no voting member has that id: see `lockstep members`")
)
