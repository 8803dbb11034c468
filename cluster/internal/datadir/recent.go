package datadir

import (
	"sync"

	"github.com/hashicorp/raft"
)

// recentLog keeps the last entries in memory, because Raft reads each entry again to send and to apply it.
type recentLog struct {
	mu   sync.RWMutex
	ring [recentCount]raft.Log // an entry is in the slot of its index modulo recentCount
	size int64                 // bytes of data in ring
}

const (
	// recentCount bounds the number of kept entries, recentSize the bytes of their data.
	recentCount = 128
	recentSize  = 8 << 20
	// recentLimit bounds the data of a kept entry: an entry with longer data is not kept.
	recentLimit = 1 << 20
)

func (r *recentLog) add(logs []*raft.Log) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range logs {
		r.drop(l.Index)
		if len(l.Data) <= recentLimit {
			r.ring[l.Index%recentCount] = *l
			r.size += int64(len(l.Data))
		}
		for oldest := l.Index + 1; r.size > recentSize; oldest++ { // the oldest entry is in the slot of the next index
			r.drop(oldest)
		}
	}
}

// drop empties the slot of index.
func (r *recentLog) drop(index uint64) {
	slot := &r.ring[index%recentCount]
	r.size -= int64(len(slot.Data))
	*slot = raft.Log{}
}

func (r *recentLog) get(index uint64, l *raft.Log) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	slot := &r.ring[index%recentCount]
	if index == 0 || slot.Index != index {
		return false
	}
	*l = *slot
	return true
}

func (r *recentLog) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.ring[:])
	r.size = 0
}
