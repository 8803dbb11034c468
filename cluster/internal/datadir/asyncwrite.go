package datadir

import (
	"runtime"
	"sync"

	"github.com/hashicorp/raft"
)

// asyncWrites are entries of a leader that are on their way to its own disk while they are
// on their way to the others' (Raft dissertation, section 10.2.1). hashicorp/raft writes
// them first and sends them then, so what it is told to be written may be in memory alone.
// Until it is on the disk
//
//   - it is not applied here, so nobody is told of it (wait),
//   - the others are not told that it is committed, so they do not apply it (upTo): should
//     this process end, a majority is counted anew without it.
//
// Everything else is written before it counts, and behind what is unwritten: what other
// leaders send, the first entry of a term, configurations, barriers. So what this node
// acknowledges to another leader is on its disk when that makes a difference, because an
// entry of an earlier term is committed by one of the leader's own term alone. What it
// remembers besides, to vote by or to stand by, may be more than is on its disk: that can
// keep another node from being elected, whose log is shorter, and no more.
//
// What may not find its room is written first, too: an entry that Raft believes in cannot
// be taken back.
type asyncWrites struct {
	store func([]*raft.Log) error // writes to the disk
	fatal func(error)             // ends the process
	hooks *Hooks                  // Raft's main goroutine asks Leads in the name of a leader

	mu    sync.Mutex
	moved sync.Cond   // on mu; entries were written, or will never be
	more  sync.Cond   // on mu; there are entries, or no more will come
	over  bool        // no more will come
	runs  bool        // the writer has been started
	queue []*raft.Log // without those that are being written
	size  int64       // how much room they and those take
	first uint64      // the first of all; 0: there are none
	lost  error       // why the others will never be

	taken   uint64 // how many there have been ever …
	written uint64 // … and how many of them are on the disk
}

const (
	// asyncCount is how many entries may be unwritten, asyncSize how much room they
	// take. They are read from recentLog.
	asyncCount = recentCount / 2
	asyncSize  = recentSize / 2
	// EntryOverhead is more than an entry takes on the disk besides its data.
	EntryOverhead = 256
)

// init says how entries are written, and who is told that they cannot be.
func (u *asyncWrites) init(hooks *Hooks, store func([]*raft.Log) error, fatal func(error)) {
	u.hooks, u.store, u.fatal = hooks, store, fatal
	u.moved.L, u.more.L = &u.mu, &u.mu
}

// add takes entries in; false if they have to be written first. room tells how much can
// be written to the log and will not fail for want of it. It is asked while size stands
// still: what is written in between would be missing in both.
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
		if !u.runs { // one for good: its stack need not grow again for every batch
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

// run writes what there is, in order, whenever there is something.
func (u *asyncWrites) run() {
	for u.await() {
		// The followers' copies go first: a thread that waits for the disk holds the others
		// up until the runtime notices.
		runtime.Gosched()
		if err := u.write(); err != nil {
			u.fatal(err)
			return
		}
	}
}

// await returns when there are entries; false if no more will come.
func (u *asyncWrites) await() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for len(u.queue) == 0 && !u.over {
		u.more.Wait()
	}
	return len(u.queue) > 0
}

// write writes until there is no more.
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

// close waits until all of them are on the disk, and ends the writer.
func (u *asyncWrites) close() error {
	err := u.drain()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.over = true
	u.more.Signal()
	return err
}

// wait returns when an entry is on the disk.
func (u *asyncWrites) wait(index uint64) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	for u.first != 0 && u.first <= index && u.lost == nil {
		u.moved.Wait()
	}
	return u.lost
}

// drain returns when all of them are on the disk. It does not wait for those that come
// meanwhile: there may be no end of them, and Raft asks for the end of its log before each
// snapshot.
func (u *asyncWrites) drain() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	for all := u.taken; u.written < all && u.lost == nil; {
		u.moved.Wait()
	}
	return u.lost
}

// failed returns why entries that Raft believes in will never be on the disk, if so.
func (u *asyncWrites) failed() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.lost
}

// upTo returns the last entry up to an index that is on the disk.
func (u *asyncWrites) upTo(index uint64) uint64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.first != 0 {
		index = min(index, u.first-1)
	}
	return index
}
