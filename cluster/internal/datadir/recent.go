package datadir

import (
	"sync"

	"github.com/hashicorp/raft"
)

// recentLog keeps the end of the log in memory. Raft writes each entry to the log and
// reads it again: a leader for every follower, and each node when it is committed.
type recentLog struct {
	mu   sync.RWMutex
	ring [recentCount]raft.Log
	size int64 // of their data
}

const (
	// recentCount is how many entries are kept at most, recentSize how long they are together.
	recentCount = 128
	recentSize  = 8 << 20
	// recentLimit is how long an entry is at most that is kept.
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
		for oldest := l.Index + 1; r.size > recentSize; oldest++ { // it lies where the next one will
			r.drop(oldest)
		}
	}
}

// drop makes room where an entry lies, or will.
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
