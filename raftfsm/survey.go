package raftfsm

import (
	"bufio"
	"errors"
	"io"

	"github.com/lockstep-io/lockstep/store"
)

// Contents describe a state that no node serves.
type Contents struct {
	Sequence uint64 // number of accepted entries
	Lease    int64  // the lease clock in ms
	Wall     int64  // Unix time of the last accepted entry in µs
	Keys     int    // in all databases
	Locks    int    // keys that are locks
	Users    int
	Token    uint64 // the last token that was given; 0: tokens are not counted
}

// Contents counts what the state has.
func (f *FSM) Contents() Contents {
	f.mu.Lock()
	defer f.mu.Unlock()
	facts := Contents{Sequence: f.seq, Lease: f.lease, Wall: f.wall, Users: len(f.store.Accounts().List), Token: f.store.LastToken()}
	f.store.EachKey(store.Time{Lease: f.lease, Wall: f.wall}, f.seq, func(k store.KeyFacts) bool {
		facts.Keys++
		if k.Kind != "" {
			facts.Locks++
		}
		return true
	})
	return facts
}

// EachKey passes what the state says of each key to fn, until fn returns false.
func (f *FSM) EachKey(fn func(store.KeyFacts) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.store.EachKey(store.Time{Lease: f.lease, Wall: f.wall}, f.seq, fn)
}

// RaiseTokens lets the tokens of a recovered cluster begin above n (store.RaiseTokens).
func (f *FSM) RaiseTokens(n int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.store.RaiseTokens(n, f.seq)
}

// ErrNeither is the error of ReadFile for a file that is neither a backup nor a snapshot.
var ErrNeither = errors.New("neither a lockstep backup nor a snapshot of a node (state.bin)")

// ReadFile reads a backup, or a snapshot of a data directory, and checks all of it. backup is nil for a snapshot.
func ReadFile(in io.Reader) (f *FSM, backup *BackupFacts, err error) {
	r := bufio.NewReader(in)
	magic, err := r.Peek(len(backupMagic))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	var next *state
	switch string(magic) {
	case backupMagic:
		var facts BackupFacts
		if facts, next, err = readBackup(r, io.Discard, true, (*state).build); err == nil {
			backup = &facts
		}
	case snapshotMagic:
		next, err = readSnapshot(r, true, (*state).build)
	default:
		return nil, nil, ErrNeither
	}
	if err != nil {
		return nil, nil, err
	}
	f = New(nil)
	f.store, f.seq, f.lease, f.wall, f.done = next.store, next.seq, next.lease, next.wall, next.done
	return f, backup, nil
}
