package datadir

import (
	"cmp"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/lockstep-io/lockstep/cluster/brake"
)

// longEntries keeps the data of long entries out of memory, because Raft holds dozens of entries. Load and LoadBatch read it just before
// its use.
type longEntries struct {
	count atomic.Int32  // len(heads), to be read without mu
	cuts  atomic.Uint64 // how often forget has cleared heads

	mu    sync.Mutex
	heads map[uint64]head // by index
}

// head is an entry without its data.
type head struct {
	log  raft.Log // with elsewhere for the data
	size int      // the length of the data
}

const (
	// LongEntry is the number of data bytes from which on an entry is long. A thousand shorter entries may be in memory.
	LongEntry = 8 << 10
	// mostHeads bounds the number of heads. An entry without a kept head is read twice.
	mostHeads = 16 << 10
	// unknownSize is the size that sizeOf assumes for an entry whose head is not kept.
	unknownSize = 1 << 20
)

// elsewhere stands for the data of a head. isHead recognizes it by its address, not by its content.
var elsewhere = []byte{0}

func isHead(l *raft.Log) bool { return len(l.Data) == 1 && &l.Data[0] == &elsewhere[0] }

// get copies the head of the entry at index to l; it returns false if no head of that entry is kept.
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

// sizeOf returns the length of an entry's data, also if l is only a head.
func (g *longEntries) sizeOf(l *raft.Log) int {
	if !isHead(l) {
		return len(l.Data)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return cmp.Or(g.heads[l.Index].size, unknownSize)
}

// note turns a long command l into a head. It keeps the head unless g.cuts differs from cuts, its value before the entry was read.
func (g *longEntries) note(l *raft.Log, cuts uint64) {
	if len(l.Data) < LongEntry || l.Type != raft.LogCommand {
		return
	}
	size := len(l.Data)
	l.Data, l.Extensions = elsewhere, nil // even empty Extensions may point into the memory of the data, which then is not freed
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cuts.Load() != cuts {
		return // the entry may have been replaced after it was read, so its head is not kept
	}
	if g.heads == nil {
		g.heads = map[uint64]head{}
	}
	for index := range g.heads {
		if len(g.heads) < mostHeads {
			break
		}
		delete(g.heads, index)
	}
	g.heads[l.Index] = head{*l, size}
	g.count.Store(int32(len(g.heads)))
}

// stored keeps the heads of the long entries among logs, which were just stored.
func (g *longEntries) stored(logs []*raft.Log) {
	for _, l := range logs {
		if len(l.Data) >= LongEntry {
			h := *l // a copy, because Raft still needs l with its data
			g.note(&h, g.cuts.Load())
		}
	}
}

// forget clears the heads. It is called when entries are deleted at either end of the log.
func (g *longEntries) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.heads)
	g.count.Store(0)
	g.cuts.Add(1)
}

// Load reads the data of the entry into l, if l is only a head.
func (g *Log) Load(l *raft.Log) error {
	if !isHead(l) {
		return nil
	}
	term := l.Term
	brake.Bring(2 * g.long.sizeOf(l)) // twice: the log store reads the bytes, and copies them into the decoded entry
	if err := g.Read(l.Index, l); err != nil || l.Term == term {
		return err
	}
	return raft.ErrLogNotFound // an entry of another leader has replaced it
}

// LoadBatch shortens req to limit bytes of data, but to no less than one entry, and loads that data. Raft sends the rest later.
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
