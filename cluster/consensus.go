package cluster

import (
	"time"

	"lockstep/raftfsm"
)

// consensus is what a node needs of Raft: a log that a majority has on disk. It is small, so that a test
// can replace Raft by an adversarial log.
type consensus interface {
	// Propose appends an entry and returns when this node has applied it.
	// errNotExecuted: it was not appended and never will be. errUnknown: it
	// may be applied later, here and everywhere, or never.
	Propose(entry []byte) (raftfsm.Outcome, error)
	// Verify returns nil if this node was still the leader at some moment
	// after the call began.
	Verify() error
	// Barrier returns when every entry of earlier leaders has been applied.
	Barrier() error
	// Transfer hands leadership to another voter.
	Transfer(id string) error
	// Members lists the members of the configuration.
	Members() ([]Member, error)
	// LastContact returns when, by the node's monotonic clock, this node last heard from a leader; known
	// is false if it has heard from none since the process started.
	LastContact() (at time.Duration, known bool)
	// Facts fills in what Raft knows about this node.
	Facts(*Status)
	// Snapshot writes a snapshot now and lets the log be shortened.
	Snapshot() error
	// Close stops the member.
	Close() error
}

// troubled is a consensus that keeps its log on a disk.
type troubled interface {
	// Trouble says why the log accepts no entries at present; "" if it does.
	Trouble() string
}

// leadership is a change that consensus reports: who leads now, nobody if id
// is empty.
type leadership struct {
	id   string
	addr string // peer address
	self bool   // this node leads
}

// localLog is the consensus of an ephemeral node: entries are applied at once
// and kept nowhere.
type localLog struct {
	fsm   *raftfsm.FSM
	index uint64
	id    string
	after func(raftfsm.Outcome)
}

var _ consensus = (*localLog)(nil)

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
func (l *localLog) Facts(s *Status)                    { s.Term = 1 }

func (l *localLog) Members() ([]Member, error) {
	return []Member{{ID: l.id, Leader: true, Voter: true}}, nil
}
