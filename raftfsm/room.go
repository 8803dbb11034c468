package raftfsm

import (
	"sync/atomic"

	"lockstep/store"
)

// room is what others may ask of the data while somebody reads it, as a script does for
// as long as it runs: who waited for that would keep all clients waiting.
type room struct {
	limits store.Limits
	full   atomic.Bool
	entry  atomic.Int64
}

// Limit tells the limits that hold as long as nobody sets them for the cluster. It has to be
// called before anything is applied.
func (f *FSM) Limit(l store.Limits) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.room.limits = l
	f.measure()
}

// measure notes how much room there is; mu is held.
func (f *FSM) measure() {
	f.room.full.Store(f.store.OutOfMemory(f.room.limits))
	f.room.entry.Store(f.store.MaxEntry(f.room.limits))
}

// OutOfMemory reports whether the data is at its limit.
func (f *FSM) OutOfMemory() bool { return f.room.full.Load() }

// MaxEntry returns what one command, script or transaction may write.
func (f *FSM) MaxEntry() int64 { return f.room.entry.Load() }
