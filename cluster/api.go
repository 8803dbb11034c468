package cluster

import (
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/call"
	"github.com/lockstep-io/lockstep/cluster/internal/fair"
	"github.com/lockstep-io/lockstep/cluster/internal/peers"
	"github.com/lockstep-io/lockstep/raftfsm"
)

// What a session submits.
type (
	Call        = call.Call
	Transaction = call.Transaction
	Watched     = call.Watched
)

// What a bridge submits (cmd/lockstep/internal/bridge). The caller must submit them as store.SystemUser.
var (
	Look  = call.Look
	Adopt = call.Adopt
)

// What a node knows of the other nodes.
type (
	Addresses = peers.Addresses
	Topology  = peers.Topology
	Sighting  = peers.Sighting
)

// Client is what a node remembers of the connection of a client.
type Client = fair.Client

// HeavyBytes is the number of bytes above which a command's arguments, replies or writes are charged as heavy work (package fair).
const HeavyBytes = call.HeavyBytes

// Role is the role of a node in Raft.
type Role string

const (
	Leader    Role = "leader"
	Follower  Role = "follower"
	Candidate Role = "candidate" // the node knows of no leader
)

// Member is a node of the cluster.
type Member struct {
	ID       string
	PeerAddr string // its address for Raft and forwarding
	Client   string // the address that the member advertises to clients; "" if this node does not know it yet
	Leader   bool
	Voter    bool
	Up       bool   // the member is this node, or this node has heard from it within Config.DownAfter
	Applied  uint64 // Raft index of the last entry that it is known to have applied
	Behind   uint64 // number of entries after Applied that this node knows to be committed
	Version  string // of the program that it runs; "" if this node does not know it yet
	Wish     Wish
}

// Wish is what the operator wants of a member: that it never leads, leads rather than others, or gets no vote.
type Wish = peers.Wish

// MostPriority is the largest Wish.Priority.
const MostPriority = peers.MostPriority

// Status describes a node at one instant.
type Status struct {
	ID         string
	Role       Role
	Membership Membership
	LeaderID   string // "" without a leader
	// LeaderFor is how long ago this node has heard of this leader or, without a leader, that there is none.
	LeaderFor time.Duration
	// LeaderChanges is how often this node has heard of a leader other than the one before.
	LeaderChanges uint64
	Term          uint64
	Applied       uint64 // Raft index of the last entry applied here
	Commit        uint64

	raftfsm.Facts // about the replicated state

	DirectorySize  int64 // bytes of the files in the data directory
	DirectoryQuota int64 // Config.DataQuota

	// Leaderless is the total time without a leader that this node has added to leases, at elections that it has won since its
	// start.
	Leaderless     time.Duration
	LastLeaderless time.Duration // the part of Leaderless that the last of these elections added
	// WallShift is by how much the wall clock of this node has left its monotonic clock, back and forth, while this node led.
	WallShift time.Duration
}

// Progress is how far a node has come in the log.
type Progress struct {
	Committed uint64 // the commit index that another node, the leader, has told this node; 0: none
	Applied   uint64 // index of the last entry that the state contains
}
