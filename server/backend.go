package server

import (
	"context"
	"io"
	"net/netip"
	"time"

	"lockstep/cluster"
	"lockstep/store"
)

// Backend is what the server needs of the cluster.
type Backend interface {
	// NewClient is for a connection of a client from an address: it is to be named with all that it submits.
	NewClient(addr netip.Addr) *cluster.Client
	// GiveWay waits for the turn of a client that has sent so many bytes, if these are many.
	GiveWay(client *cluster.Client, bytes int)
	// Submit runs commands in order and returns their replies when what they
	// wrote is safe. It may use the memory of replies.
	Submit(calls []cluster.Call, replies []store.Reply) []store.Reply
	// SubmitPart is Submit that may run only the first of the commands, at least one:
	// the caller submits the others when it has room for their replies.
	SubmitPart(client *cluster.Client, calls []cluster.Call, replies []store.Reply) []store.Reply
	// SubmitAsync is SubmitPart that does not wait. It may put the submission off
	// until Flush; Flush may run it on the caller's goroutine.
	SubmitAsync(p *cluster.Submission)
	Flush()
	// Block begins to run a blocking command; Flush must follow.
	Block(b *cluster.Blocked)
	// Unblock ends one with a reply, unless it is served before that; ended,
	// if not nil, is told which.
	Unblock(b *cluster.Blocked, reply store.Reply, ended func(bool))
	// Abandon ends one whose client has gone.
	Abandon(b *cluster.Blocked)
	// Config returns a parameter of the cluster as this node knows it; false if
	// it has never been set.
	Config(name string) (string, bool)
	// OutOfMemory reports whether the data is at its limit, as far as this node knows.
	OutOfMemory() bool
	// MaxEntry returns what one command, script or transaction may write.
	MaxEntry() int64
	// MaxReply returns how large one reply may be.
	MaxReply() int64
	// Script returns a cached script by its SHA-1 in lower case, as this node knows it.
	Script(sha string) (body string, ok bool)
	// FunctionFlags returns what a function declares, as this node knows it.
	FunctionFlags(name string) (store.FunctionFlags, bool)
	// KillScript ends the running script, as SCRIPT KILL.
	KillScript() store.Reply
	// KillFunction ends the running function, as FUNCTION KILL.
	KillFunction() store.Reply
	// RunningFunction returns FUNCTION STATS's reply while a function runs, Nil
	// if none does.
	RunningFunction() store.Reply
	// Busy reports whether a script has been running for longer than the busy
	// threshold. It is asked before every command.
	Busy() bool
	// BusyError is what clients are told then.
	BusyError() store.Error
	// SetBusyThreshold changes that threshold.
	SetBusyThreshold(d time.Duration)
	// LeaderClient returns the leader's id and RESP address; empty if unknown.
	LeaderClient() (id, addr string)
	// Topology is what this node knows of the cluster. It costs one load.
	Topology() *cluster.Topology
	// Reaches reports whether a command would reach a leader now.
	Reaches() bool
	// Removed reports whether this node has been taken out of the cluster.
	Removed() bool
	// Members returns the members of the cluster.
	Members() ([]cluster.Member, error)
	// Status describes this node, the state hash left out.
	Status() cluster.Status
	// StateHash returns the hash of the state and the log index it belongs to.
	StateHash() (index uint64, hash string, err error)
	// Add takes a node into the cluster, or gives a member another peer address.
	Add(id, peerAddr string) error
	// Remove takes a member out of the cluster.
	Remove(id string) error
	// Transfer hands leadership to a member, or to any if id is empty.
	Transfer(id string) error
	// Replicated returns how many other members have on disk what was
	// acknowledged before, and whether this node has; it waits for as many as
	// that, or until ctx ends.
	Replicated(ctx context.Context, others int, here bool) (int, bool)
	// Backup begins a backup, which is written as it is read; complete says that
	// it holds everything acknowledged before.
	Backup() (r io.ReadCloser, complete bool, err error)
	// Snapshot writes a snapshot now.
	Snapshot() error
}

var _ Backend = (*cluster.Node)(nil)
