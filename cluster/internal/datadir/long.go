package datadir

import (
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"lockstep/cluster/brake"
)

// longEntries keeps long entries out of memory. Raft reads entries by the dozen, to send them and to apply them, and
// hands them on as fast as it can read: a node that starts again would hold its whole log, one that has fallen
// behind would have 64 entries sent at once. So Raft is given the heads of long entries, without data, and that is
// read where it is needed, one entry at a time: to be applied (Load), and to be sent (LoadBatch).
type longEntries struct {
	count atomic.Int32  // len(heads), to be looked at without mu
	cuts  atomic.Uint64 // how often heads have been forgotten

	mu    sync.Mutex
	heads map[uint64]head
}

// head is an entry whose data is elsewhere.
type head struct {
	log  raft.Log
	size int
}

// LongEntry is from how many bytes of data on an entry is long.
const LongEntry = 128 << 10

// elsewhere stands for the data of a head. It is known by its place in memory, not by what it says.
var elsewhere = []byte{0}

func isHead(l *raft.Log) bool { return len(l.Data) == 1 && &l.Data[0] == &elsewhere[0] }

// get returns an entry's head, if it is known to be long.
func (g *longEntries) get(index uint64, l *raft.Log) bool {
	if g.count.Load() == 0 {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	h, ok := g.heads[index]
	if ok {
		*l = h.log
	}
	return ok
}

// sizeOf is how long an entry's data is, if it is a head's, too.
func (g *longEntries) sizeOf(l *raft.Log) int {
	if !isHead(l) {
		return len(l.Data)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return max(g.heads[l.Index].size, LongEntry)
}

// note makes a head of an entry, if it is long. cuts is what it was before the entry was read.
func (g *longEntries) note(l *raft.Log, cuts uint64) {
	if len(l.Data) < LongEntry || l.Type != raft.LogCommand {
		return
	}
	size := len(l.Data)
	l.Data, l.Extensions = elsewhere, nil // an empty one may be a place in the data's memory
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cuts.Load() != cuts {
		return // it may have been replaced meanwhile
	}
	if g.heads == nil {
		g.heads = map[uint64]head{}
	}
	g.heads[l.Index] = head{*l, size}
	g.count.Store(int32(len(g.heads)))
}

// stored notes entries that have been stored.
func (g *longEntries) stored(logs []*raft.Log) {
	for _, l := range logs {
		if len(l.Data) >= LongEntry {
			h := *l // Raft goes on with l
			g.note(&h, g.cuts.Load())
		}
	}
}

// forget is for when entries are deleted, at either end.
func (g *longEntries) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.heads)
	g.count.Store(0)
	g.cuts.Add(1)
}

// Load reads the data of a head.
func (g *Log) Load(l *raft.Log) error {
	if !isHead(l) {
		return nil
	}
	term := l.Term
	brake.Bring(2 * g.long.sizeOf(l)) // the log reads it, and makes an entry of that
	if err := g.Read(l.Index, l); err != nil || l.Term == term {
		return err
	}
	return raft.ErrLogNotFound // another leader's is there now
}

// LoadBatch leaves of the entries that are to be sent those of limit bytes, the first one in any case, and
// loads them. Raft goes on behind the last one.
func (g *Log) LoadBatch(req *raft.AppendEntriesRequest, limit int) error {
	size := 0
	for i, l := range req.Entries {
		if size += g.long.sizeOf(l); i > 0 && size > limit {
			req.Entries = req.Entries[:i]
			break
		}
	}
	for i, l := range req.Entries {
		if isHead(l) {
			l := *l
			if err := g.Load(&l); err != nil {
				return err
			}
			req.Entries[i] = &l
		}
	}
	return nil
}
