package datadir

import (
	"cmp"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"lockstep/cluster/brake"
)

// longEntries keeps long entries out of memory. Raft reads dozens of entries at once, to send or to apply them, and passes them
// on as fast as it can read. So a restarted node would hold its whole log in memory, and a leader would send 64 entries at once
// to a node that has fallen behind. Therefore Raft gets only the head of a long entry, without its data. Load reads the data of
// one entry just before it is applied. LoadBatch reads the data of a limited number of entries just before they are sent.
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
	// LongEntry is the number of data bytes from which on an entry is long. A thousand shorter entries may be in memory at
	// once while they wait to be applied.
	LongEntry = 8 << 10
	// mostHeads is the highest number of heads that are kept. If the head of a long entry is not kept, GetLog reads the whole
	// entry to make the head, and Load reads the entry again.
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

// note turns l into a head and keeps the head, if l is a long entry of the type raft.LogCommand. The parameter cuts is the
// value of g.cuts before the entry was read.
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

// LoadBatch shortens req to its first entries that together have at most limit bytes of data, but keeps at least one entry. It loads the
// data of those kept entries that are only heads. Raft sends the other entries in the next request.
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
