package raftfsm

import (
	"sync/atomic"

	"lockstep/store"
)

// room holds values of the state that other goroutines may read while the FSM's lock is held. A
// script holds it for as long as it runs, and a goroutine that waits for it would block all
// clients.
type room struct {
	limits store.Limits
	full   atomic.Bool
	entry  atomic.Int64
	size   atomic.Int64

	catalogue atomic.Pointer[store.Catalogue]
}

// Limit sets the limits that apply while the cluster parameters are not set. It must be called
// before the first entry is applied.
func (f *FSM) Limit(l store.Limits) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.room.limits = l
	f.measure()
}

// measure updates room from the state. The caller must hold mu.
func (f *FSM) measure() {
	f.room.full.Store(f.store.OutOfMemory(f.room.limits))
	f.room.size.Store(f.store.DataSize())
	f.room.entry.Store(f.store.MaxEntry(f.room.limits))
	old := f.room.catalogue.Load()
	if now := f.store.Catalogue(old); now != old {
		f.room.catalogue.Store(now)
	}
}

// OutOfMemory reports whether the data has reached its limit.
func (f *FSM) OutOfMemory() bool { return f.room.full.Load() }

// DataSize returns the size of the data as maxmemory counts it.
func (f *FSM) DataSize() int64 { return f.room.size.Load() }

// MaxEntry returns the limit for the writes of one command, script or transaction.
func (f *FSM) MaxEntry() int64 { return f.room.entry.Load() }

// Catalogue returns the current scripts and functions.
func (f *FSM) Catalogue() *store.Catalogue { return f.room.catalogue.Load() }
