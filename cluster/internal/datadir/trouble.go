package datadir

import (
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// trouble is the state of a log that accepts no entries because the disk is full. If short entries, which may still fit, ended the
// trouble, a follower would be ready and not ready by turns. So the trouble ends when an append as large as the largest failed one
// succeeds, or when the disk has room for it (Probe).
//
// Once the log goes on with other entries, room for short ones (roomKept) ends the trouble. Room still stays below the size that did not
// fit.
type trouble struct {
	why   atomic.Pointer[string] // the error; nil: the log accepts entries
	least atomic.Int64           // bytes of the smallest append that failed; 0: none has
	size  int64                  // bytes of the largest append that failed; guarded by Log.mu, as the fields below are
	lack  int64                  // the most bytes of disk space that a failed append lacked
	at    uint64                 // index of the longest entry of the last append that failed; 0: the log goes on behind it
}

// wants notes that an append of logs, or a cut without logs, has failed because it lacked so many bytes. The caller holds Log.mu.
func (t *trouble) wants(logs []*raft.Log, lack int64) {
	size, long := sizeOf(logs), 0
	t.size, t.lack, t.at = max(t.size, size), max(t.lack, lack, size), 0
	for _, l := range logs {
		if len(l.Data) >= long {
			long, t.at = len(l.Data), l.Index
		}
	}
	if least := t.least.Load(); size > 0 && (least == 0 || size < least) {
		t.least.Store(size)
	}
}

// sizeOf returns an upper bound of the bytes that entries take on the disk.
func sizeOf(logs []*raft.Log) (n int64) {
	for _, l := range logs {
		n += int64(len(l.Data)) + EntryOverhead
	}
	return n
}

// Trouble returns why the log accepts no entries at present; "" if it accepts them.
func (g *Log) Trouble() string {
	if why := g.trouble.why.Load(); why != nil {
		return *why
	}
	return ""
}

// Probe ends the trouble if the disk has room again. The owner must call Probe from time to time, because no entry may come.
func (g *Log) Probe() {
	t := &g.trouble
	if t.why.Load() == nil && t.least.Load() == 0 {
		return // without Log.mu, which an append holds while the disk hangs
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if t.size+t.lack == 0 || g.lost != nil || g.closed.Load() {
		return
	}
	// Probe asks for one roomStep more, because the entry may go to the next segment, and that segment begins with a header.
	if g.snaps.hasRoom(steps(t.lack) + roomStep) {
		g.recovered()
	} else if t.at == 0 {
		g.endWithRoom()
	}
}

// endWithRoom ends the trouble if the disk has room for short entries; the caller holds mu.
func (g *Log) endWithRoom() {
	if g.trouble.why.Load() != nil && g.snaps.hasRoom(roomKept) {
		g.endTrouble()
	}
}

// Stuck returns the index of an entry for which the disk has no room although it has room for short entries; 0 if there is none.
func (g *Log) Stuck() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.trouble.why.Load() == nil || g.trouble.at == 0 || !g.snaps.hasRoom(roomKept) {
		return 0
	}
	return g.trouble.at
}

// failed handles a failed append or cut; the caller holds mu. If unchanged is true, the log is as Raft knows it. Otherwise only a new
// start can read the true log, so failed ends the process.
func (g *Log) failed(err error, unchanged bool) error {
	if g.hooks.Logger == nil {
		return err // Open has not set the hooks, so Raft has not started
	}
	text := err.Error()
	before := g.trouble.why.Swap(&text)
	if !unchanged {
		g.lost = notWritten("the log", err)
		g.hooks.Fatal(g.lost)
		return g.lost
	}
	if before == nil {
		g.hooks.Logger.Error("The disk is full: the log takes no entry, and this node is not ready until there is room", "error", err)
	}
	return err
}

// giveUp ends the process when entries that Raft takes for written cannot be written.
func (g *Log) giveUp(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lost == nil {
		_ = g.failed(err, false) // failed itself passes this error to Fatal
	}
}

// stored notes a successful append; the caller holds mu.
func (g *Log) stored(logs []*raft.Log) {
	switch t := &g.trouble; {
	case sizeOf(logs) >= t.size:
		g.recovered()
	case t.at != 0 && logs[len(logs)-1].Index >= t.at:
		t.at = 0
		g.endWithRoom()
	}
}

// recovered ends the trouble, and forgets what did not fit; the caller holds mu.
func (g *Log) recovered() {
	t := &g.trouble
	t.least.Store(0)
	t.size, t.lack, t.at = 0, 0, 0
	g.endTrouble()
}

// endTrouble ends the trouble; the caller holds mu.
func (g *Log) endTrouble() {
	if g.trouble.why.Load() != nil && g.trouble.why.Swap(nil) != nil {
		g.hooks.Logger.Info("The log can be written again")
	}
}
