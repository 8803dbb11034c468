package peers

import (
	"math"
	"slices"
	"time"
)

// plenty is the number of bytes from which on a node does not mention its room in its status: it cannot lose that much room before its
// next status.
const plenty = 256 << 20

// ownRoom returns the room of this node as a Status has it.
func (w *Watcher) ownRoom() int64 {
	begun, _ := w.cfg.Raft().Proposed()
	if room := w.cfg.Raft().RoomUntil() - begun; room < plenty {
		return max(room, 0) + 1
	}
	return 0
}

// Room returns the length of the longest entry for which the disks of a majority have room, as far as this node has heard. Only a
// leader needs it.
func (w *Watcher) Room() int64 {
	begun, _ := w.cfg.Raft().Proposed()
	return max(w.room.Load()-begun, 0)
}

// sumRoom finds up to which total of proposed bytes (RoomUntil) a majority of all voters have room on their disks. A silent voter stores
// nothing, so it is not one of those with room. A voter that has not said how much room it has, has room without limit. If less than a
// majority of the voters are heard, sumRoom sets no limit. The caller holds mu.
func (w *Watcher) sumRoom(now time.Duration) {
	var until []int64
	voters := 0
	if w.voter {
		until, voters = append(until, w.cfg.Raft().RoomUntil()), 1
	}
	for _, h := range w.heard {
		if !h.voter {
			continue
		}
		voters++
		switch {
		case now-h.seen >= w.cfg.DownAfter:
		case h.status.Room == 0:
			until = append(until, math.MaxInt64)
		default:
			until = append(until, h.status.asOf+min(h.status.Room-1, plenty))
		}
	}
	slices.Sort(until)
	if majority := voters/2 + 1; len(until) >= majority {
		w.room.Store(until[len(until)-majority])
	} else {
		w.room.Store(math.MaxInt64) // nothing is committed, or the answers are late
	}
}
