package server

import (
	"context"
	"io"
	"net/netip"
	"time"

	"lockstep/cluster"
	"lockstep/store"
)

// Backend is the part of the cluster that the server uses.
type Backend interface {
	Submitter
	Observer
	Admin
}

// Submitter runs the commands of clients.
type Submitter interface {
	// NewClient returns a client for a connection from an address; every submission of the connection
	// names it.
	NewClient(addr netip.Addr) *cluster.Client
	// GiveWay waits for the turn of a client that has sent a command which the session does not submit. It returns at once if the
	// command has few bytes. leave must be called when the reply is in the output.
	GiveWay(client *cluster.Client, bytes, arguments int) (leave func())
	// Rest waits for the turn of a client after the node itself has worked for the client for the time took.
	Rest(client *cluster.Client, took time.Duration)
	// Alone waits until the node does no other work of a kind by itself. ok is false if the client has been cut off, or the node
	// closes; otherwise leave must be called at the end of the work.
	Alone(client *cluster.Client, kind cluster.OwnKind) (leave func(), ok bool)
	// Pace waits for the turn of a client before the node does heavy work for it. The caller calls done at the end of the work. ok
	// is as for Alone.
	Pace(client *cluster.Client) (done func(), ok bool)
	// Submit runs commands in order and returns their replies when their writes are safe. The result
	// may reuse the memory of the argument replies.
	Submit(calls []cluster.Call, replies []store.Reply) []store.Reply
	// SubmitPart is Submit, but it may run only the first of the commands, at least one. The caller
	// submits the others when it has room for their replies.
	SubmitPart(client *cluster.Client, calls []cluster.Call, replies []store.Reply) []store.Reply
	// SubmitAsync is SubmitPart, but it does not wait. It may delay the submission until Flush; Flush may
	// run it on the caller's goroutine.
	SubmitAsync(p *cluster.Submission)
	Flush()
	// Block begins a blocking command; Flush must follow.
	Block(b *cluster.Blocked)
	// Unblock ends a blocking command with a reply, unless the command is served first. It calls ended,
	// if not nil, with true if the reply ended the command.
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
	// RunningFunction asks the leader for the reply of FUNCTION STATS while a function runs. The reply is
	// Nil if none runs, and an error if the leader cannot be asked.
	RunningFunction() store.Reply
	// Busy reports whether this node is the leader and has been running a script for longer than the busy
	// threshold. The server calls it before every command.
	Busy() bool
	// BusyError is the error that clients get while Busy is true.
	BusyError() store.Error
	// LeaderClient returns the leader's id and RESP address; empty if unknown.
	LeaderClient() (id, addr string)
	// Topology returns what this node knows of the cluster. It costs one atomic load.
	Topology() *cluster.Topology
	// Reaches reports whether a command would reach a leader now.
	Reaches() bool
	// Removed reports whether this node has been taken out of the cluster.
	Removed() bool
	// Members returns the members of the cluster.
	Members() ([]cluster.Member, error)
	// Status describes this node, without the state hash.
	Status() cluster.Status
	// StateHash waits for the turn of a client, and returns the hash of the state and the log index it belongs to.
	StateHash(client *cluster.Client) (index uint64, hash string, err error)
}

// Admin changes something for all clients, or waits for other nodes.
type Admin interface {
	// KillScript ends the running script, as SCRIPT KILL.
	KillScript() store.Reply
	// KillFunction ends the running function, as FUNCTION KILL.
	KillFunction() store.Reply
	// SetBusyThreshold changes the busy threshold.
	SetBusyThreshold(d time.Duration)
	// Add takes a node into the cluster, or gives a member another peer address.
	Add(id, peerAddr string) error
	// Remove takes a member out of the cluster.
	Remove(id string) error
	// Transfer hands leadership to a member, or to any if id is empty.
	Transfer(id string) error
	// Replicated returns how many other members have all acknowledged writes on disk, and whether this
	// node has them. It waits until that number is at least others and, if here is true, this node has
	// them, too; or until ctx ends.
	Replicated(ctx context.Context, others int, here bool) (int, bool)
	// Backup begins a backup, which is written while the caller reads it; complete is true if it holds
	// all acknowledged writes.
	Backup() (r io.ReadCloser, complete bool, err error)
	// Snapshot writes a snapshot now.
	Snapshot() error
}

var _ Backend = (*cluster.Node)(nil)
