package cluster

import (
	"context"
	"math"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/raftnode"
	"github.com/lockstep-io/lockstep/raftfsm"
)

// consensus is what a node needs of Raft: a log that a majority has on disk. A test can replace Raft by an
// adversarial log.
type consensus interface {
	// Propose appends an entry and returns when this node has applied it. errNotExecuted: the entry never will be applied.
	// errUnknown: the entry may still be applied.
	Propose(entry []byte) (raftfsm.Outcome, error)
	// Verify returns nil if this node was still the leader at some moment
	// after the call began.
	Verify() error
	// Barrier returns when this node has applied every entry of earlier leaders.
	Barrier() error
	// LastContact returns when this node last heard from a leader, by the monotonic clock. known is false if it never did.
	LastContact() (at time.Duration, known bool)
	// Members lists the members of the configuration.
	Members() ([]raftnode.Member, error)
	// Facts tells what Raft and the data directory know about this node.
	Facts() raftnode.Facts
	// Transfer hands leadership to another voter.
	Transfer(id string) error
	// Snapshot writes a snapshot now and lets the log be shortened.
	Snapshot() error
	// Close stops this node's part in Raft.
	Close() error

	membership
	progressing
}

// membership is the part of a consensus that has to do with who is a member.
type membership interface {
	// Fixed reports whether the members can never change.
	Fixed() bool
	// Reconfigure makes the change that decide returns for the present members, and returns when the change is committed. No
	// other change can come between. errNotExecuted: the change never will be made. errUnknown: the change may still be made. If
	// decide fails, so does Reconfigure, except with ErrNoChange.
	Reconfigure(ctx context.Context, decide func([]raftnode.Member) (raftnode.Change, error)) error
	// Cluster returns the name of the cluster that this node belongs to, "" if it does not know or belongs to
	// none.
	Cluster() string
	// Joining reports whether this node has yet to become a member.
	Joining() bool
	// Bind notes which cluster this node joins. It fails with datadir.ErrOtherCluster if this node has begun to join another
	// one.
	Bind(cluster string) error
	// Joined notes that this node has become a member.
	Joined(cluster string) error
	// Directory returns the name of the data directory; "" if there is none.
	Directory() string
	// Meet notes which data directory a member has. It fails with datadir.ErrOtherDirectory if the member had another one
	// before.
	Meet(id, directory string) error
	// Recognize fails in the same case as Meet, but notes nothing.
	Recognize(id, directory string) error
	// Met reports whether this node has met a member, and whether that was with this data directory. Unlike Meet, it notes
	// nothing.
	Met(id, directory string) (met, same bool)
	// Blank reports whether this node is a first member of its cluster and holds nothing from before.
	Blank() bool
}

type progressing interface {
	// Trouble says why the log accepts no entries at present; "" if it accepts them.
	Trouble() string
	// Proposed and RoomUntil: see peers.Raft.
	Proposed() (begun, done int64)
	RoomUntil() int64
	// Overdue says that a write to the disk is overdue, because the disk hangs or is very slow; "" if none is.
	Overdue() string
	// Full reports whether the data directory is above its quota. raftnode.Node.Full explains size, data and most.
	Full(size int64) (data, most int64, full bool)
	// Holds reports whether every entry up to an index has been applied to the state.
	Holds(index uint64) bool
	// Everything returns the state after the last entry of the log, committed or not, and the index of that entry. This node knows that
	// the entries up to committed are committed.
	Everything() (snap *raftfsm.Snapshot, last, committed uint64, err error)
	// CaughtUp reports whether this node has caught up with the commit index of the present leader, except for
	// a few entries.
	CaughtUp() bool
	// Led notes that a node other than this one begins to lead. It may be the node that led before.
	Led()
	// Campaign makes this node stand for election now, even if another node leads.
	Campaign() error
	// Quit gives up all proposals. Close follows.
	Quit()
}

// diskless is embedded by each consensus whose members are fixed and whose log is not on a disk.
type diskless struct{ fsm *raftfsm.FSM }

func (diskless) Fixed() bool { return true }
func (diskless) Reconfigure(context.Context, func([]raftnode.Member) (raftnode.Change, error)) error {
	return ErrOneNode
}
func (diskless) Cluster() string                     { return "" }
func (diskless) Joining() bool                       { return false }
func (diskless) Bind(string) error                   { return nil }
func (diskless) Joined(string) error                 { return nil }
func (diskless) Directory() string                   { return "" }
func (diskless) Meet(string, string) error           { return nil }
func (diskless) Recognize(string, string) error      { return nil }
func (diskless) Met(string, string) (met, same bool) { return false, false }
func (diskless) Blank() bool                         { return false }
func (diskless) Trouble() string                     { return "" }
func (diskless) Overdue() string                     { return "" }
func (diskless) Holds(uint64) bool                   { return true }
func (diskless) CaughtUp() bool                      { return true }
func (diskless) Led()                                {}
func (diskless) Campaign() error                     { return ErrOneNode }
func (diskless) Quit()                               {}
func (diskless) Proposed() (begun, done int64)       { return 0, 0 }
func (diskless) RoomUntil() int64                    { return math.MaxInt64 }

// Full is never true.
func (diskless) Full(int64) (data, most int64, full bool) { return 0, 0, false }

// Everything returns the state: the log holds no entry beyond it.
func (s diskless) Everything() (snap *raftfsm.Snapshot, last, committed uint64, err error) {
	snap = s.fsm.Snapshot()
	return snap, snap.Index(), snap.Index(), nil
}

// localLog is the consensus of an ephemeral node: entries are applied at once
// and kept nowhere.
type localLog struct {
	diskless
	index uint64
	id    string
	after func(raftfsm.Outcome)
}

var (
	_ consensus = (*localLog)(nil)
	_ consensus = (*raftnode.Node)(nil)
)

func (l *localLog) Propose(entry []byte) (raftfsm.Outcome, error) {
	l.index++
	out, err := l.fsm.Apply(l.index, entry)
	if err == nil {
		l.after(out)
	}
	return out, err
}

func (l *localLog) Verify() error                      { return nil }
func (l *localLog) Barrier() error                     { return nil }
func (l *localLog) Transfer(string) error              { return ErrNoSuchMember }
func (l *localLog) Snapshot() error                    { return nil }
func (l *localLog) Close() error                       { return nil }
func (l *localLog) LastContact() (time.Duration, bool) { return 0, false }
func (l *localLog) Facts() raftnode.Facts              { return raftnode.Facts{Term: 1} }

func (l *localLog) Members() ([]raftnode.Member, error) {
	return []raftnode.Member{{ID: l.id, Leader: true, Voter: true}}, nil
}
