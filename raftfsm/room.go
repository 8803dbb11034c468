package raftfsm

import (
	"sync/atomic"

	"lockstep/store"
)

// room is what others may ask of the state while somebody reads it, as a script does for
// as long as it runs: who waited for that would keep all clients waiting.
type room struct {
	limits store.Limits
	full   atomic.Bool
	entry  atomic.Int64
	size   atomic.Int64

	catalogue atomic.Pointer[store.Catalogue]
}

// Limit tells the limits that hold as long as nobody sets them for the cluster. It has to be
// called before anything is applied.
func (f *FSM) Limit(l store.Limits) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.room.limits = l
	f.measure()
}

// measure notes how much room there is, and which scripts and functions; mu is held.
func (f *FSM) measure() {
	f.room.full.Store(f.store.OutOfMemory(f.room.limits))
	f.room.size.Store(f.store.DataSize())
	f.room.entry.Store(f.store.MaxEntry(f.room.limits))
	old := f.room.catalogue.Load()
	if now := f.store.Catalogue(old); now != old {
		f.room.catalogue.Store(now)
	}
}

// OutOfMemory reports whether the data is at its limit.
func (f *FSM) OutOfMemory() bool { return f.room.full.Load() }

// DataSize returns what the keys take, as maxmemory counts it.
func (f *FSM) DataSize() int64 { return f.room.size.Load() }

// MaxEntry returns what one command, script or transaction may write.
func (f *FSM) MaxEntry() int64 { return f.room.entry.Load() }

// Catalogue returns the scripts and functions that there are.
func (f *FSM) Catalogue() *store.Catalogue { return f.room.catalogue.Load() }
