package peers

import (
	"math"
	"slices"
	"time"
)

// plenty is the room, in bytes, from which on a status does not name it: it cannot run out before the next status.
const plenty = 256 << 20

// ownRoom returns the room of this node as a Status has it.
func (w *Watcher) ownRoom() int64 {
	begun, _ := w.cfg.Raft().Proposed()
	if room := w.cfg.Raft().RoomUntil() - begun; room < plenty {
		return max(room, 0) + 1
	}
	return 0
}

// Room returns the length of the longest entry for which a majority has room on disk, as far as this node has heard.
func (w *Watcher) Room() int64 {
	begun, _ := w.cfg.Raft().Proposed()
	return max(w.room.Load()-begun, 0)
}

// sumRoom notes up to which total of proposed bytes (RoomUntil) a majority of the voters has room. The caller holds mu.
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
