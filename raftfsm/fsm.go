package raftfsm

import (
	"sync"

	"lockstep/store"
)

// Outcome is what became of an entry, decided alike on every node.
type Outcome struct {
	Accepted bool
	Prev     uint64 // of the entry
	Sequence uint64 // of the state after it
	Lease    int64
	Proposer uint64
	Batch    uint64

	Messages bool // it has some for clients
	Copied   int  // bytes of values that were copied to be changed
}

// FSM is the state machine. One goroutine applies; evaluation reads through
// View from another.
type FSM struct {
	sink store.Sink
	keys store.KeySink // nil: nobody wants to see what is applied

	accounts store.AccountSink // nil: nobody wants to know the users

	room room

	mu    sync.Mutex
	store *store.Store
	// The fields below are part of the state that snapshots carry.
	seq   uint64 // entries accepted so far
	lease int64  // stamp of the last accepted entry
	wall  int64
	done  Answers
	index uint64 // log index of the last entry seen, accepted or not

	jumps  uint64 // how often a snapshot has replaced the state
	old    uint64 // entries up to this index were in the log at the start
	failed error  // of the entry that could not be applied
}

// New returns a state machine with an empty keyspace. Published messages go to
// sink, in log order.
func New(sink store.Sink) *FSM {
	f := &FSM{sink: sink, store: store.New()}
	f.measure()
	return f
}

// Show has every write set shown to keys when it has taken effect. It is called
// before the first one is applied.
func (f *FSM) Show(keys store.KeySink) { f.keys = keys }

// Introduce has the users told to accounts, too. It has to be called before
// anything is applied.
func (f *FSM) Introduce(accounts store.AccountSink) { f.accounts = accounts }

// Replay tells that the entries up to a log index are from before the start of
// this process. Their messages are not published: nobody here can have been
// subscribed when they were sent.
func (f *FSM) Replay(index uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.old = index
}

// Cut tells that the log was cut off behind an index: what comes there now is new.
func (f *FSM) Cut(last uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.old = min(f.old, last)
}

// Failed returns the error of the entry that could not be applied, if there
// was one. Nothing is applied after it.
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
		return out, nil // evaluated on a state that is gone: never takes effect
	}
	list, err := readAnswers(e.Requests)
	if err != nil {
		return out, err
	}
	if err := f.store.Apply(e.Writes, f.seq+1, &sink); err != nil {
		return out, err
	}
	if f.keys != nil {
		f.keys.Applied(e.Writes)
	}
	f.seq++
	f.measure()
	f.tellAccounts(f.seq)
	// The lease clock never runs back, whatever a proposer stamps.
	f.lease, f.wall = max(f.lease, e.Lease), e.Wall
	f.done.add(list, f.lease)
	out.Accepted, out.Sequence, out.Lease, out.Messages, out.Copied = true, f.seq, f.lease, sink.used, f.store.TakeCopied()
	return out, nil
}

// watchedSink notes whether there are messages for clients.
type watchedSink struct {
	to   store.Sink // nil: nobody
	used bool
}

func (s *watchedSink) Publish(kind store.PublishKind, channel, message string) {
	s.used = s.used || kind != store.Note
	if s.to != nil {
		s.to.Publish(kind, channel, message)
	}
}

// tellAccounts tells of the users if they changed with write set seq. Unlike
// messages, users of entries before the start count.
func (f *FSM) tellAccounts(seq uint64) {
	if f.accounts != nil && f.store.AccountsVersion() == seq {
		f.accounts.AccountsChanged(f.store.Accounts())
	}
}

// View runs fn on the committed state; nothing is applied meanwhile. fn must
// not change the store.
func (f *FSM) View(fn func(s *store.Store, seq uint64)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn(f.store, f.seq)
}

// ViewAnswers is View with the answers to what has been executed.
func (f *FSM) ViewAnswers(fn func(s *store.Store, seq uint64, done *Answers)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn(f.store, f.seq, &f.done)
}

// Index is the log index of the last entry that was applied here; 0 if none has
// been since the state was restored.
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

// Progress returns the sequence number of the state, and how often a snapshot has
// replaced it: whoever waits for a place in the log has not seen what led there if
// that has changed.
func (f *FSM) Progress() (seq, jumps uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seq, f.jumps
}
