package server

import (
	"context"
	"net/netip"
	"time"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/store"
)

// Backend is the part of the cluster that the server uses.
type Backend interface {
	Submitter
	Observer
	Admin
}

// Submitter runs the commands of clients.
type Submitter interface {
	// NewClient makes the Client that stands for a connection from an address.
	NewClient(addr netip.Addr) *cluster.Client
	// GiveWay waits for the turn of a client with a large command that the session does not submit. The caller must call leave when the
	// reply is in the output.
	GiveWay(client *cluster.Client, bytes, arguments int) (leave func())
	// Rest waits for the turn of a client for which the node itself has worked. took is the time of that work, plus the next command's
	// if known.
	Rest(client *cluster.Client, took time.Duration)
	// Alone waits until the node does no work of the kind for another client. If ok is true, the caller must call leave afterwards.
	Alone(client *cluster.Client, kind cluster.OwnKind) (leave func(), ok bool)
	// Pace waits for the turn of a client before heavy work for it. If ok is true, the caller must call done after the work.
	Pace(client *cluster.Client) (done func(), ok bool)
	// Submit runs commands in order. It reports the success of a write only once that is committed. It may reuse the slice replies.
	Submit(calls []cluster.Call, replies []store.Reply) []store.Reply
	// SubmitPart does what Submit does, but may run only the first few commands; the caller submits the others later.
	SubmitPart(client *cluster.Client, calls []cluster.Call, replies []store.Reply) []store.Reply
	// SubmitAsync does what SubmitPart does without waiting: p.Done is called when p.Replies has the replies, perhaps before
	// SubmitAsync returns. After it, the caller must call Flush or FlushWatched. Both may run commands on the caller's goroutine, and
	// FlushWatched also scripts. While a script runs there, another goroutine must do the caller's work.
	SubmitAsync(p *cluster.Submission)
	Flush()
	FlushWatched()
	// Block begins a blocking command; Flush must follow.
	Block(b *cluster.Blocked)
	// Unblock ends a blocking command with a reply. It calls ended once, perhaps later, with true if nothing else has ended the command
	// first.
	Unblock(b *cluster.Blocked, reply store.Reply, ended func(bool))
	// Abandon ends a blocking command whose client has left.
	Abandon(b *cluster.Blocked)
}

// Observer tells what this node knows. Of its methods, only RunningFunction waits for another node.
type Observer interface {
	// Config returns a parameter of the cluster as this node knows it; false if
	// it has never been set.
	Config(name string) (string, bool)
	// OutOfMemory reports whether the data is at its memory limit, as far as this node knows.
	OutOfMemory() bool
	// MaxEntry returns how many bytes one command, script or transaction may write.
	MaxEntry() int64
	// MaxReply returns the maximum size of one reply.
	MaxReply() int64
	// Script returns a cached script by its SHA-1 in lower case, as this node knows it.
	Script(sha string) (body string, ok bool)
	// FunctionFlags returns the flags that a function declares, as this node knows it.
	FunctionFlags(name string) (store.FunctionFlags, bool)
	// RunningFunction returns the reply to FUNCTION STATS if KillFunction would end a function, else Nil. users is as in KillScript.
	RunningFunction(users uint64) store.Reply
	// Busy reports whether this node is the leader and its script has exceeded the busy threshold. It must cost little: every command
	// calls it.
	Busy() bool
	// BusyError is the error that clients get while Busy is true.
	BusyError() store.Error
	// LeaderClient returns the leader's id and RESP address; empty if unknown.
	LeaderClient() (id, addr string)
	// Topology returns what this node knows of the cluster. It costs one atomic load.
	Topology() *cluster.Topology
	// Reaches reports whether a command would reach a leader now.
	Reaches() bool
	// Older reports whether a command that is submitted now may reach a leader of version 0.1.0.
	Older() bool
	// KnowsOlder reports whether the leader or a member is known to run version 0.1.0.
	KnowsOlder() bool
	// MayBeOlder reports whether any node of the cluster may run version 0.1.0.
	MayBeOlder() bool
	// ClientOf returns the node of the client with a number, and its id there (cluster.ClientNumbers); node is "" if that is not known.
	ClientOf(number uint64) (node string, id uint64)
	// ClientsOf asks a node for its clients with these ids, at most cluster.MostClients. ok is false if it does not answer in time.
	ClientsOf(ctx context.Context, node string, ids []uint64) (names []cluster.ClientName, ok bool)
	// Progress tells how far this node has come in the log. It may be called while an entry is applied.
	Progress() cluster.Progress
	// Removed reports whether this node has been taken out of the cluster.
	Removed() bool
	// Members returns the members of the cluster.
	Members() ([]cluster.Member, error)
	// Status describes this node, without the state hash.
	Status() cluster.Status
	// StateHash waits for the turn of a client, and returns a hash of the state and the log index of that state.
	StateHash(client *cluster.Client) (index uint64, hash string, err error)
}

// Admin has the methods that change something for all clients, wait for other nodes, or write the whole state.
type Admin interface {
	// KillScript ends the running script, as SCRIPT KILL does. users is the version of the users by which the client's right was
	// checked.
	KillScript(users uint64) store.Reply
	// KillFunction ends the running function, as FUNCTION KILL does. The argument users means the same as that of
	// KillScript.
	KillFunction(users uint64) store.Reply
	// SetBusyThreshold changes the busy threshold.
	SetBusyThreshold(d time.Duration)
	// Add takes a node into the cluster, or gives a member another peer address.
	Add(id, peerAddr string) error
	// Remove takes a member out of the cluster.
	Remove(id string) error
	// Transfer hands leadership to a member, or to any if id is empty.
	Transfer(id string) error
	// Replicated waits until the given number of other members and, if here is true, this node have all acknowledged writes on disk, or
	// until ctx ends. Neither result claims too much.
	Replicated(ctx context.Context, others int, here bool) (int, bool)
	// Backup begins a backup, written while the caller reads r; the caller must close r. complete is true if it has all writes
	// acknowledged before.
	Backup() (r *cluster.Backup, complete bool, err error)
	// Snapshot writes a snapshot of this node's state now.
	Snapshot() error
}

var _ Backend = (*cluster.Node)(nil)
