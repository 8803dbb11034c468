package cluster

import (
	"time"

	"lockstep/store"
)

// Call is one command as a session submits it.
type Call struct {
	Cmd  *store.Command
	Args [][]byte // must not be changed after submission
	DB   int
	RESP int // protocol version of the client; scripts shape replies by it

	Txn *Transaction // WATCH or EXEC instead of Cmd's handler
	// Origin names the client to the write set, if it does not want to hear of
	// its own changes; else 0.
	Origin uint64

	// User is the user whose rights apply: a name, "" for the default user, or store.SystemUser.
	User string
	// Users is the version of the user list by which the client's node knows this user. If the user has
	// been deleted since, the call must not get the rights of a new user of the same name. 0: the version
	// is unknown.
	Users uint64
}

// Role is the role of a node in Raft.
type Role string

const (
	Leader    Role = "leader"
	Follower  Role = "follower"
	Candidate Role = "candidate"
)

// Member is a node of the cluster.
type Member struct {
	ID       string
	PeerAddr string // Raft and forwarding
	Client   string // what the member advertises to clients; "" if not known yet
	Leader   bool
	Voter    bool
	Up       bool   // this node has heard of it lately
	Applied  uint64 // Raft index of the last entry that it is known to have applied
	Behind   uint64 // entries after Applied that this node knows to be committed
}

// Status describes a node at one instant.
type Status struct {
	ID         string
	Role       Role
	Membership Membership
	LeaderID   string // "" without a leader
	Term       uint64
	Applied    uint64 // Raft index of the last entry applied here
	Commit     uint64
	Sequence   uint64 // of the last write set applied here
	Keys       [store.Databases]int
	Deadlines  [store.Databases]int
	Scripts    int
	ScriptSize int64 // bytes that the scripts take
	Libraries  int   // of functions
	Functions  int
	Expired    uint64

	DataSize    int64 // what the keys take, as maxmemory counts it
	MemoryLimit int64 // maxmemory; 0: none

	DirectorySize  int64 // bytes of the files in the data directory
	DirectoryQuota int64 // Config.DataQuota

	// Leaderless is the time without a leader that this node has added to leases, in the elections that
	// it has won since it started. The time for which this node was down does not count.
	Leaderless     time.Duration
	LastLeaderless time.Duration // the part that the last election added
}
