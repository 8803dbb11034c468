package server

import (
	"context"
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
	// NewClient makes the Client that stands for a connection from an address. The session passes it to the methods
	// that wait for the turn of a client, and names it in its submissions.
	NewClient(addr netip.Addr) *cluster.Client
	// GiveWay waits for the turn of a client that has sent a large command, because reading the command was work, too. The
	// session calls it for a command that it queues or answers itself instead of submitting it. The caller gives the size
	// of the command in bytes, and its number of arguments. If the command has at most cluster.HeavyBytes bytes, GiveWay
	// returns at once. The caller must call the function leave when the reply is in the output.
	GiveWay(client *cluster.Client, bytes, arguments int) (leave func())
	// Rest waits for the turn of a client after the node itself, not the leader, has worked for the client. The parameter
	// took is the time of that work, plus the time of the client's next command, if the session knows that time beforehand.
	Rest(client *cluster.Client, took time.Duration)
	// Alone waits until the node does no work of the given kind for another client. The result ok is false if the client
	// has been cut off, or the node closes. Otherwise the caller must call the function leave at the end of the work.
	Alone(client *cluster.Client, kind cluster.OwnKind) (leave func(), ok bool)
	// Pace waits for the turn of a client before the node does heavy work for it. The caller must call the function done
	// at the end of the work. The result ok means the same as that of Alone.
	Pace(client *cluster.Client) (done func(), ok bool)
	// Submit runs commands in order and returns their replies. The reply to a write is a success only if the write is
	// committed. The caller may pass a slice of old replies, and Submit may then return the new replies in the memory of
	// that slice.
	Submit(calls []cluster.Call, replies []store.Reply) []store.Reply
	// SubmitPart does what Submit does, for a client, but it may run only some of the commands: the first one, or the
	// first few. The caller submits the others when it has room for their replies.
	SubmitPart(client *cluster.Client, calls []cluster.Call, replies []store.Reply) []store.Reply
	// SubmitAsync does what SubmitPart does, but does not wait: p.Done is called when p.Replies has the replies, perhaps
	// before SubmitAsync returns. After each call of SubmitAsync, the caller must call Flush or FlushWatched, because
	// SubmitAsync may have collected the commands without running them. Flush and FlushWatched may run commands on the
	// caller's goroutine, but only FlushWatched runs scripts there. While a script runs there, another goroutine must do
	// the caller's work.
	SubmitAsync(p *cluster.Submission)
	Flush()
	FlushWatched()
	// Block begins a blocking command; Flush must follow.
	Block(b *cluster.Blocked)
	// Unblock ends a blocking command with a reply, unless the command is served first or an earlier call of Unblock ends
	// it. The caller may pass a function as the argument named ended. Unblock calls that function once, perhaps after
	// Unblock has returned, with true if this call of Unblock has ended the command.
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
	// RunningFunction returns the reply to FUNCTION STATS if the leader has been running a function for so long that
	// KillFunction would end it. It returns Nil if there is no such function, and an error if the leader does not answer.
	// The argument users means the same as that of KillScript.
	RunningFunction(users uint64) store.Reply
	// Busy reports whether this node is the leader and has been running a script for longer than the busy
	// threshold. The server calls it before every command, so it must cost little.
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
	// MayBeOlder reports whether any node of the cluster may run version 0.1.0.
	MayBeOlder() bool
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
	// KillScript ends the running script, as SCRIPT KILL does. The argument users is the version of the users by which the
	// caller has checked the client's right to the command.
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
	// Replicated returns how many other members have all earlier acknowledged writes on disk, and whether this node has
	// these writes. It waits until the number is at least that in the argument others. If the argument here is true, it
	// also waits until this node has the writes. It stops waiting when ctx ends. The number may be too low, but is never
	// too high. If the argument here is false, the second result may be false although this node has the writes.
	Replicated(ctx context.Context, others int, here bool) (int, bool)
	// Backup begins a backup. The backup is written while the caller reads the result r, which the caller must close. The
	// result complete is true if the backup has all writes that were acknowledged before the call.
	Backup() (r *cluster.Backup, complete bool, err error)
	// Snapshot writes a snapshot of this node's state now.
	Snapshot() error
}

var _ Backend = (*cluster.Node)(nil)
