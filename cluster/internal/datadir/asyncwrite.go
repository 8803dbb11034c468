package datadir

import (
	"runtime"
	"sync"

	"github.com/hashicorp/raft"
)

// asyncWrites holds a leader's entries while the leader writes them to its own disk and sends them at the same time (Raft dissertation,
// section 10.2.1). StoreLogs tells Raft that they are written. Until an entry is on the disk
//
//   - this node does not apply it (wait),
//   - this node does not tell the followers that it is committed (upTo).
//
// StoreLogs writes every other entry before it returns, and after all unwritten entries.
//
// A node that has lost its lead may acknowledge an unwritten entry to the next leader. That does no harm: the next leader commits the
// entry only together with a later one of its own term, before which StoreLogs writes the unwritten entry.
//
// In an election, Raft may count unwritten entries. That can only keep a node with a shorter log from being elected.
//
// Only entries with reserved disk space may stay unwritten, because Raft cannot take an entry back.
type asyncWrites struct {
	store func([]*raft.Log) error // writes to the disk
	fatal func(error)             // ends the process
	hooks *Hooks                  // add calls Leads and Replicates, on Raft's main goroutine

	mu    sync.Mutex
	moved sync.Cond   // on mu; signals that entries were written, or that lost was set
	more  sync.Cond   // on mu; signals that queue has entries, or that over was set
	over  bool        // the log is closed, so no more entries will come
	runs  bool        // the writer, the goroutine that calls run, has been started
	queue []*raft.Log // entries that the writer has not taken yet
	size  int64       // upper bound of the bytes that all unwritten entries, also those being written, will take on the disk
	first uint64      // index of the first unwritten entry; 0: there is none
	lost  error       // the write error because of which the unwritten entries will never be written

	taken   uint64 // the number of entries that add has queued so far …
	written uint64 // … and how many of them are on the disk
}

const (
	// asyncCount and asyncSize (bytes on the disk) bound the unwritten entries. These must fit in recentLog, from which Raft reads them.
	asyncCount = recentCount / 2
	asyncSize  = recentSize / 2
	// EntryOverhead is an upper bound of the bytes that an entry takes on the disk besides its data.
	EntryOverhead = 256
)

// init sets the hooks, the function store that writes entries to the disk, and the function fatal for a failed write.
func (u *asyncWrites) init(hooks *Hooks, store func([]*raft.Log) error, fatal func(error)) {
	u.hooks, u.store, u.fatal = hooks, store, fatal
	u.moved.L, u.more.L = &u.mu, &u.mu
}

// add queues entries for the writer; false: the caller has to write them. add calls the function room under mu, so that u.size counts
// every write that the result of room does not count.
func (u *asyncWrites) add(logs []*raft.Log, room func() int64) (taken bool, err error) {
	size := int64(0)
	for _, l := range logs {
		if l.Type != raft.LogCommand || len(l.Data) > recentLimit {
			return false, nil
		}
		size += int64(len(l.Data)) + EntryOverhead
	}
	if !u.hooks.replicates() || !u.hooks.leads() {
		return false, nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.lost != nil {
		return false, u.lost
	}
	if u.size+size > min(room(), asyncSize) || int(logs[len(logs)-1].Index-u.firstOr(logs[0].Index)) >= asyncCount {
		return false, nil
	}
	if u.first == 0 {
		u.first = logs[0].Index
		if !u.runs { // one goroutine writes all batches, so that its stack grows only once
			u.runs = true
			go u.run()
		}
		u.more.Signal()
	}
	u.queue, u.size = append(u.queue, logs...), u.size+size
	u.taken += uint64(len(logs))
	return true, nil
}

func (u *asyncWrites) firstOr(index uint64) uint64 {
	if u.first == 0 {
		return index
	}
	return u.first
}

// run writes queued entries in order until the log is closed or a write fails.
func (u *asyncWrites) run() {
	for u.await() {
		// First let Raft send the entries: a thread that waits for the disk keeps its processor (P) for a while.
		runtime.Gosched()
		if err := u.write(); err != nil {
			u.fatal(err)
			return
		}
	}
}

// await waits until queue has entries; it returns false if none will come any more.
func (u *asyncWrites) await() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for len(u.queue) == 0 && !u.over {
		u.more.Wait()
	}
	return len(u.queue) > 0
}

// write writes entries until the queue is empty or a write fails.
func (u *asyncWrites) write() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	for len(u.queue) > 0 && u.lost == nil {
		logs := u.queue
		u.queue = nil
		u.mu.Unlock()
		err := u.store(logs)
		u.mu.Lock()
		u.lost = err
		if err == nil {
			u.first = logs[len(logs)-1].Index + 1
			u.written += uint64(len(logs))
			for _, l := range logs {
				u.size -= int64(len(l.Data)) + EntryOverhead
			}
		}
		u.moved.Broadcast()
	}
	if u.lost == nil {
		u.first = 0
		u.moved.Broadcast()
	}
	return u.lost
}

// close waits until all entries are on the disk or a write has failed, and ends the writer.
func (u *asyncWrites) close() error {
	err := u.drain()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.over = true
	u.more.Signal()
	return err
}

// wait waits until the entry at index is on the disk. After a failed write, wait fails for every index.
func (u *asyncWrites) wait(index uint64) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	for u.first != 0 && u.first <= index && u.lost == nil {
		u.moved.Wait()
	}
	return u.lost
}

// drain waits until all entries queued before the call are on the disk. It does not wait for later ones: there may always be more.
func (u *asyncWrites) drain() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	for all := u.taken; u.written < all && u.lost == nil; {
		u.moved.Wait()
	}
	return u.lost
}

// failed returns the error because of which entries that Raft takes for written are lost; nil if there is none.
func (u *asyncWrites) failed() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.lost
}

// upTo returns index, or the index of the last entry on the disk if that is lower.
func (u *asyncWrites) upTo(index uint64) uint64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.first != 0 {
		index = min(index, u.first-1)
	}
	return index
}
