package raftfsm

import (
	"sync"
	"sync/atomic"

	"github.com/lockstep-io/lockstep/store"
)

// room holds values of the state that goroutines read without the FSM's lock, because the lock is held while a script runs.
type room struct {
	limits store.Limits // set by Limit
	full   atomic.Bool  // true if the data has reached maxmemory
	entry  atomic.Int64 // bytes that one command, script or transaction may write
	size   atomic.Int64 // size of the data in bytes, as maxmemory counts it

	catalogue atomic.Pointer[store.Catalogue]

	mu    sync.Mutex // protects facts; never held for long
	facts Facts
}

// Facts describe the state after the last applied entry.
type Facts struct {
	Sequence    uint64               // sequence number of the last write set
	Keys        [store.Databases]int // number of keys in each database
	Deadlines   [store.Databases]int // number of keys with a deadline in each database
	Expired     uint64               // number of keys deleted because they had expired
	Scripts     int                  // number of cached scripts
	ScriptSize  int64                // bytes that the cached scripts take
	Libraries   int                  // number of function libraries
	Functions   int
	DataSize    int64 // bytes that the data take, as maxmemory counts them
	MemoryLimit int64 // maxmemory; 0: none
	KeptReplies int   // bytes of the replies that are kept in case their requests are sent again

	parameters store.Parameters
}

// Config returns the value of a cluster parameter, or false if it was never set.
func (f *Facts) Config(name string) (string, bool) { return f.parameters.Get(name) }

// Limit sets the limits that apply while the cluster parameters for them are not set. Limit must be
// called before the first entry is applied.
func (f *FSM) Limit(l store.Limits) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.room.limits = l
	f.measure()
}

// measure updates f.room from the state. The caller must hold f.mu, except in New.
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

// Facts returns the facts about the state. It does not wait for the FSM's lock.
func (f *FSM) Facts() Facts {
	f.room.mu.Lock()
	defer f.room.mu.Unlock()
	return f.room.facts
}

// OutOfMemory reports whether the data has reached its limit, maxmemory.
func (f *FSM) OutOfMemory() bool { return f.room.full.Load() }

// DataSize returns the size of the data in bytes, as maxmemory counts it.
func (f *FSM) DataSize() int64 { return f.room.size.Load() }

// MaxEntry returns how many bytes one command, script or transaction may write.
func (f *FSM) MaxEntry() int64 { return f.room.entry.Load() }

// Catalogue returns the current scripts and functions.
func (f *FSM) Catalogue() *store.Catalogue { return f.room.catalogue.Load() }
