package raftfsm

import (
	"sync"

	"github.com/lockstep-io/lockstep/store"
)

// Outcome is the result of an entry, the same on every node.
type Outcome struct {
	Accepted bool
	Prev     uint64 // sequence number of the state on which the entry was evaluated
	Sequence uint64 // sequence number of the state after the entry
	Lease    int64  // lease stamp of the state after the entry, in ms
	Proposer uint64
	Batch    uint64
	Term     uint64 // term of the entry, set by the caller of Apply; 0 if the caller's log has no terms

	Messages bool // the entry was accepted and has messages for clients
}

// FSM is the state machine. One goroutine applies entries; another one evaluates commands on the
// state, which it gets through View or ViewAnswers.
type FSM struct {
	sink store.Sink
	keys store.KeySink // receives applied write sets; may be nil

	accounts store.AccountSink // receives the ACL users; may be nil
	locks    store.LockSink    // receives the events of locks; may be nil

	room  room
	brake func(bytes int) // the function that Brake has set

	mu sync.Mutex
	// The fields from here to the field index are what a Snapshot holds.
	store *store.Store
	seq   uint64 // number of entries accepted so far
	lease int64  // highest lease stamp of the accepted entries
	wall  int64  // Unix time in µs of the evaluation of the last accepted entry
	done  Answers
	index uint64 // log index of the last entry that the state covers

	jumps  uint64 // number of times that a snapshot has replaced the state
	old    uint64 // entries up to this index were in the log at the start of the process
	failed error  // error of the entry that could not be applied
}

// New returns a state machine with an empty keyspace. It publishes messages to sink, in log order;
// sink may be nil.
func New(sink store.Sink) *FSM {
	f := &FSM{sink: sink, store: store.New()}
	f.measure()
	return f
}

// Show makes the state machine pass every applied write set to the argument keys. Show must be called before the first
// entry is applied.
func (f *FSM) Show(keys store.KeySink) { f.keys = keys }

// Introduce sets who is told of the ACL users after every change and restore. It must be called before the first entry is applied.
func (f *FSM) Introduce(accounts store.AccountSink) { f.accounts = accounts }

// Witness sets who is told of the events of locks. It must be called before the first entry is applied.
func (f *FSM) Witness(locks store.LockSink) { f.locks = locks }

// Brake sets the function that store.Store.Brake describes. The function runs under the FSM's lock, so it must not wait for the FSM.
func (f *FSM) Brake(brake func(bytes int)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.brake = brake
	f.store.Brake(brake)
}

// Replay tells the state machine which entries are older than this process. Their messages are not published, because this process had
// no subscribers then.
func (f *FSM) Replay(index uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.old = index
}

// Cut tells the state machine that the log ends at index last, so that later entries are newer than this process.
func (f *FSM) Cut(last uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.old = min(f.old, last)
}

// Failed returns the error of the entry that could not be applied, or nil. Nothing is applied after
// such an entry.
func (f *FSM) Failed() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

// Apply applies the entry at a log index. On an error the node must stop.
func (f *FSM) Apply(index uint64, data []byte) (Outcome, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed != nil {
		return Outcome{}, f.failed
	}
	out, err := f.apply(index, data)
	f.failed = err
	return out, err
}

func (f *FSM) apply(index uint64, data []byte) (Outcome, error) {
	e, err := DecodeEntry(data)
	if err != nil {
		return Outcome{}, err
	}
	sink := watchedSink{to: f.sink}
	if index <= f.old {
		sink.to = nil
	}
	f.index = index
	out := Outcome{Prev: e.Prev, Sequence: f.seq, Lease: f.lease, Proposer: e.Proposer, Batch: e.Batch}
	if e.Prev != f.seq {
		return out, nil // the entry was evaluated on an outdated state, so it never takes effect
	}
	list, err := readAnswers(e.Requests)
	if err != nil {
		return out, err
	}
	told := f.locks != nil && f.locks.Wanted()
	f.store.Witness(told)
	if err := f.store.ApplyVersion(e.Version, e.Writes, f.seq+1, &sink); err != nil {
		return out, err
	}
	if f.keys != nil {
		f.keys.Applied(e.Writes)
	}
	f.seq++
	// The lease clock never runs backwards, whatever a proposer stamps.
	before := f.lease
	f.lease, f.wall = max(f.lease, e.Lease), e.Wall
	f.done.add(list, before, f.lease)
	f.measure()
	f.tellAccounts(f.seq)
	if told {
		tell := f.locks.Locked
		if index <= f.old {
			tell = f.locks.Retold
		}
		tell(f.seq, store.Time{Lease: f.lease, Wall: f.wall}, f.store.LockEvents())
	}
	out.Accepted, out.Sequence, out.Lease, out.Messages = true, f.seq, f.lease, sink.used
	return out, nil
}

// watchedSink passes messages on to another sink, and records whether there are messages for clients.
type watchedSink struct {
	to   store.Sink // may be nil
	used bool
}

func (s *watchedSink) Publish(kind store.PublishKind, channel, message string) {
	s.used = s.used || kind != store.Note
	if s.to != nil {
		s.to.Publish(kind, channel, message)
	}
}

// tellAccounts passes on the users if write set seq changed them, even in an entry from before the start.
func (f *FSM) tellAccounts(seq uint64) {
	if f.accounts != nil && f.store.AccountsVersion() == seq {
		f.accounts.AccountsChanged(f.store.Accounts())
	}
}

// View calls fn with the committed state; no entry is applied during the call. fn must not change
// the store.
func (f *FSM) View(fn func(s *store.Store, seq uint64)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn(f.store, f.seq)
}

// ViewAnswers is View, but also passes the answers to executed requests to fn.
func (f *FSM) ViewAnswers(fn func(s *store.Store, seq uint64, done *Answers)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn(f.store, f.seq, &f.done)
}

// Index returns the log index of the last entry that the state covers, accepted or not; 0 before the first.
func (f *FSM) Index() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.index
}

// Position returns the sequence number and the lease stamp of the state.
func (f *FSM) Position() (seq uint64, lease int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seq, f.lease
}

// Progress returns the sequence number of the state, and jumps, how often a snapshot has replaced the state. A jump may skip entries.
func (f *FSM) Progress() (seq, jumps uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seq, f.jumps
}
