package raftfsm

import (
	"sync"
	"sync/atomic"

	"lockstep/store"
)

// room holds values of the state that other goroutines may read while the FSM's lock is held. A
// script holds the lock for as long as it runs, and a goroutine that waited for the lock would block
// all clients.
type room struct {
	limits store.Limits
	full   atomic.Bool
	entry  atomic.Int64
	size   atomic.Int64

	catalogue atomic.Pointer[store.Catalogue]

	mu    sync.Mutex // never held for long
	facts Facts
}

// Facts describe the state after the last entry.
type Facts struct {
	Sequence    uint64 // of the last write set
	Keys        [store.Databases]int
	Deadlines   [store.Databases]int // how many of the keys have one
	Expired     uint64
	Scripts     int
	ScriptSize  int64 // bytes that the scripts take
	Libraries   int   // of functions
	Functions   int
	DataSize    int64 // what the keys take, as maxmemory counts it
	MemoryLimit int64 // maxmemory; 0: none
	KeptReplies int   // bytes of replies that are kept in case that their writes are sent again

	parameters store.Parameters
}

// Config returns the value of a cluster parameter, or false if it was never set.
func (f *Facts) Config(name string) (string, bool) { return f.parameters.Get(name) }

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
	f.room.mu.Lock()
	defer f.room.mu.Unlock()
	is := &f.room.facts
	is.Sequence, is.Expired, is.KeptReplies = f.seq, f.store.Expired(), f.done.Size()
	is.DataSize, is.MemoryLimit, is.parameters = f.room.size.Load(), f.store.MemoryLimit(f.room.limits), f.store.Parameters()
	is.Scripts, is.ScriptSize = f.store.Scripts(), f.store.ScriptSize()
	is.Libraries, is.Functions = f.store.Libraries()
	for db := range is.Keys {
		is.Keys[db], is.Deadlines[db] = f.store.Keys(db)
	}
}

// Facts returns the facts.
func (f *FSM) Facts() Facts {
	f.room.mu.Lock()
	defer f.room.mu.Unlock()
	return f.room.facts
}

// OutOfMemory reports whether the data has reached its limit.
func (f *FSM) OutOfMemory() bool { return f.room.full.Load() }

// DataSize returns the size of the data as maxmemory counts it.
func (f *FSM) DataSize() int64 { return f.room.size.Load() }

// MaxEntry returns the limit for the writes of one command, script or transaction.
func (f *FSM) MaxEntry() int64 { return f.room.entry.Load() }

// Catalogue returns the current scripts and functions.
func (f *FSM) Catalogue() *store.Catalogue { return f.room.catalogue.Load() }
