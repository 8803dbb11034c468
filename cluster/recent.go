package cluster

import (
	"sync"

	"github.com/hashicorp/raft"
)

// recentLog keeps the end of the log in memory. Raft writes each entry to the log and
// reads it again: a leader for every follower, and each node when it is committed.
type recentLog struct {
	mu   sync.RWMutex
	ring [recentCount]raft.Log
}

const (
	recentCount = 128
	// recentLimit is how long an entry is kept at most; so all are 8 MiB.
	recentLimit = 64 << 10
)

func (r *recentLog) add(logs []*raft.Log) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range logs {
		slot := &r.ring[l.Index%recentCount]
		*slot = raft.Log{}
		if len(l.Data) <= recentLimit {
			*slot = *l
		}
	}
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
}
