package cluster

import (
	"errors"
	"fmt"
	"strings"

	"github.com/lockstep-io/lockstep/cluster/internal/raftnode"
	"github.com/lockstep-io/lockstep/store"
)

// What can become of a submission. A client may resend a command only after "not executed", never after "unknown".
//
// A submission was not executed if there was no leader, a change of leader closed the queue, or compare-and-append (package
// raftfsm) refused the entry. Submit then sends it to the next leader.
//
// The outcome is unknown if the leader was lost with the entry in flight. The next accepted entry settles the outcome
// (pending.go). If that takes too long, the client gets INDETERMINATE. But numbered writes (once.go) and reads are sent to the
// next leader.
var (
	errNotExecuted = raftnode.ErrNotExecuted
	errUnknown     = raftnode.ErrUnknown
	// errOverTime: a command has used up its time, or is stopped for now. sequencer.watch panics with it; runCommand recovers.
	errOverTime = errors.New("cluster: the time is over")
	// errOverrun: the writes of a call of a request must be undone, as a rule because they are too many (evaluateCall).
	errOverrun = errors.New("cluster: too much is written")
	// errEntryFull: the writes of a request would make the entry of its batch too large.
	errEntryFull = errors.New("cluster: the entry is full")
	// errForNow: a request that takes long is put off to a later batch, because requests before it wait for their replies.
	errForNow = errors.New("cluster: stopped for now")
	// errLate: the request was executed, but perhaps long ago. Its leases must begin anew before it is answered (confirm).
	errLate = errors.New("cluster: executed, but late")
	// ErrNoSuchMember is the error of Transfer to a node that is not a voter.
	ErrNoSuchMember = raftnode.ErrNoSuchMember
	// ErrNoMember is the error of Remove if the node is no member.
	ErrNoMember = errors.New("no member has that id: see `lockstep members`")
	// ErrNoHeir is the error of Transfer if no other voter is up.
	ErrNoHeir = errors.New("no other voting member is up: leadership stays where it is")
	// ErrOneNode is the error of a change of membership on an ephemeral node.
	ErrOneNode = errors.New("this node keeps nothing on disk (--ephemeral) and stays alone: members need a data directory each")
	// ErrUnsettled is the error of a change of membership that was begun. This node does not know whether the change was made.
	ErrUnsettled = errors.New("the change was not confirmed in time; it may still be made: see `lockstep members`, and ask for it again")
	// errBackupGivenUp is the error for the reader of a backup that the node gives up for want of memory.
	errBackupGivenUp = errors.New("the backup was given up, because the node needs the memory for what has been overwritten since it began: begin again")
	// ErrNoLeader is the error of an operation that needs a leader.
	ErrNoLeader = errors.New("the cluster has no leader at present: try again in a few seconds")
)

// Client-visible errors of this package. CLUSTERDOWN and BUSY always mean that the command had no effect, because clients resend
// it; no client resends on INDETERMINATE.
//
// A client gets ErrIndeterminate
//   - if its entry is not committed in time (pendingBatches.begin);
//   - if a snapshot has replaced the entry, or the node ends (pendingBatches.giveUp);
//   - if its leader was lost, and no other leader answers in time (carried.refused);
//   - if its script may have ended the leader's process (carried.suspect);
//   - if the leader has forgotten whether it executed a write that is sent again (once.go);
//   - if it is blocked and its leader is lost, in some cases (block_registry.go).
//
// ErrReplyLost: the command was executed, but its leases are over (grants.go), or its reply was too long to keep (once.go).
// ErrReplyLeftOut: its node reads results too slowly, or the reply to a write is too long for a frame (leaveOut).
const (
	ErrClusterDown     store.Error = "CLUSTERDOWN The cluster has no leader; the command was not executed, try again"
	ErrDiskFull        store.Error = "CLUSTERDOWN The cluster has no leader, and the disk of this node is full: make room there; the command was not executed, try again"
	ErrNoRoom          store.Error = "OOM command not allowed when the disks of the nodes have no room for so much data at once: make room there, or write less at once"
	ErrRemoved         store.Error = "CLUSTERDOWN This node has been removed from the cluster; the command was not executed, use another node"
	ErrIndeterminate   store.Error = "INDETERMINATE The outcome was not known in time, because the leader was lost or stalls; the command may have been executed, or may yet be"
	ErrReplyLost       store.Error = "INDETERMINATE The command was executed, but its reply was lost or comes too late"
	ErrReplyLeftOut    store.Error = "INDETERMINATE The command was executed, but its reply is too large to be sent to this node at present"
	ErrTransactionTime store.Error = "ERR The transaction exceeded the time limit (script-time-limit) and was stopped. Nothing of it was kept."
	ErrCommandTime     store.Error = "ERR The command exceeded the time limit (script-time-limit) and was stopped. It had no effect."
	ErrBlockedMemory   store.Error = "ERR The leader holds too many keys that clients of other nodes wait for; the command was not executed"
	ErrReplyLater      store.Error = "BUSY The leader has no memory for so large a reply at present; the command was not executed, try again"
	errNewerLeader     store.Error = "ERR the leader runs a newer version of lockstep: upgrade this node, or send the command to an upgraded node"
	errClientGone      store.Error = "ERR The client was cut off; the command was not executed"
	ErrInternal        store.Error = "ERR internal error, the command had no effect; see the server's log"
)

// errUnknownHere is the reply to a command that only later versions know.
func errUnknownHere(name []byte) store.Error {
	return store.Error(fmt.Sprintf("ERR unknown command '%.64s' on the leader, which runs an older version: upgrade all nodes", name))
}

const (
	maxCircle = 512 // length of an error, in bytes, beyond which errDeadlock names no further owner
	maxOwner  = 64  // length of an owner, in bytes, beyond which errDeadlock cuts it off
)

// errDeadlock refuses a command that would close a circle of owners, each of which waits for the next. The first is also the last.
func errDeadlock(circle []string) store.Error {
	text := "DEADLOCK owner " + shownOwner(circle[0])
	for i, owner := range circle[1:] {
		if i > 0 {
			text += ", which"
		}
		if len(text) > maxCircle {
			return store.Error(text + " …")
		}
		text += " waits for " + shownOwner(owner)
	}
	return store.Error(text)
}

// shownOwner returns an owner for an error.
func shownOwner(owner string) string {
	if len(owner) > maxOwner {
		owner = owner[:maxOwner] + "…"
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, owner)
}

// errManyWaits is the reply to a LOCK.ACQUIRE of an owner that waits by mostWaits commands already.
const errManyWaits store.Error = "ERR this owner waits for locks by 1000 commands already: give each owner a name of its own, or let some of them end"
