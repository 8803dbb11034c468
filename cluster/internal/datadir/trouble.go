package datadir

import (
	"errors"
	"path/filepath"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// trouble is that the log accepts no entries, because the disk is full. A short entry may still fit in the room that the
// newest segment has reserved: the first entry of a term, for example. That says nothing of the entry that did not fit. If the
// trouble ended with it, the node would lead again, fail at the next long entry, and be deposed again, many times a minute. So
// the trouble ends only when an append succeeds that is as large as the largest one that failed, or when the disk has room for
// such an append (Probe).
type trouble struct {
	why  atomic.Pointer[string] // the error; nil: the log accepts entries
	size int64                  // bytes of the largest append that failed; guarded by Log.mu, as lack is
	lack int64                  // the disk space that the appends which failed lacked, at most
}

// wants notes that an append of so many bytes has failed, for lack of so much disk space; the caller holds Log.mu.
func (t *trouble) wants(size, lack int64) {
	t.size, t.lack = max(t.size, size), max(t.lack, lack, size)
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

// probeFile is the file with which Probe finds out whether there is room. If the process ends before it has deleted the file,
// the next start takes the file for an unfinished snapshot, and deletes it.
const probeFile = "probe" + unfinished

// Probe ends the trouble if the disk has room for what did not fit. A node whose log is in trouble does not lead, and so it may
// get no entry that would end the trouble: its owner must call Probe from time to time.
func (g *Log) Probe() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.trouble.why.Load() == nil || g.lost != nil || g.closed.Load() {
		return
	}
	// One step more: the entry may come to be in the next segment, which begins with a header.
	if g.snaps.hasRoom(steps(g.trouble.lack) + roomStep) {
		g.recovered()
	}
}

// hasRoom reports whether the disk has room for so many bytes: it reserves them in a file and deletes the file. An error of any kind
// means no: the trouble, which the operator knows, goes on.
func (s *Snapshots) hasRoom(bytes int64) bool {
	path := filepath.Join(s.dir, probeFile)
	f, err := s.disk.Create(path)
	if err == nil {
		err = errors.Join(f.Reserve(0, bytes, false), f.Close())
	}
	return errors.Join(err, s.disk.Remove(path)) == nil
}

// failed handles the error err of an append or of a cut of the log's end; the caller holds mu. If
// unchanged is true, the log is as it was, and Raft knows it: then the node goes on, but is not ready
// until the trouble ends (see trouble). If unchanged is false, the content of the disk is unknown, or Raft takes the log
// for longer than it is, and failed ends the process: only a new start can read the true log, and until
// then the node must not vote or acknowledge.
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

// recovered ends the trouble; the caller holds mu.
func (g *Log) recovered() {
	g.trouble.size, g.trouble.lack = 0, 0
	if g.trouble.why.Load() != nil && g.trouble.why.Swap(nil) != nil {
		g.hooks.Logger.Info("The log can be written again")
	}
}
