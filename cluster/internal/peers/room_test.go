package peers

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/clock"
)

// narrow is a leader. Its disk has a given room, and it has proposed a given number of bytes.
type narrow struct {
	threeMembers
	until, begun int64
}

func (n *narrow) Proposed() (begun, done int64) { return n.begun, n.begun }
func (n *narrow) RoomUntil() int64              { return n.until }

// TestRoomOfAMajority: an entry has room if a majority has room for it. A silent member stores nothing.
func TestRoomOfAMajority(t *testing.T) {
	const silent = -1
	for _, c := range []struct {
		own, second, third int64 // room in bytes; 0: any amount
		want               int64
	}{
		{10, 20, 30, 20},
		{30, 10, 20, 20},
		{10, 20, 0, 20},
		{10, 0, 0, math.MaxInt64},
		{0, 10, 20, 20},
		{0, 0, 20, math.MaxInt64},
		{30, silent, 20, 20},
		{30, 0, silent, 30},
		{30, silent, silent, math.MaxInt64}, // the answers may just be late
		{30, math.MaxInt64 - 1, 20, 30},
		{0, math.MaxInt64 - 1, 20, plenty},
	} {
		raft := &narrow{until: c.own}
		if c.own == 0 {
			raft.until = math.MaxInt64
		}
		w := NewWatcher(context.Background(), Config{ID: "n1", DownAfter: time.Second, Clock: clock.NewSystem(), Raft: func() Raft { return raft }})
		w.voter = true
		for id, room := range map[string]int64{"n2": c.second, "n3": c.third} {
			h := &heard{voter: true, told: true, seen: 10 * time.Second}
			switch room {
			case 0:
			case silent:
				h.seen = 0
			default:
				h.status.Room = room + 1
			}
			w.heard[id] = h
		}
		if w.sumRoom(10 * time.Second); w.Room() != c.want {
			t.Errorf("own %d, others %d and %d: %d, want %d", c.own, c.second, c.third, w.Room(), c.want)
		}
	}
}

// TestRoomShrinksByWhatIsProposed: after a member has told its room, each proposal of the leader takes some of that room.
func TestRoomShrinksByWhatIsProposed(t *testing.T) {
	raft := &narrow{until: 1000, begun: 100}
	w := NewWatcher(context.Background(), Config{ID: "n1", DownAfter: time.Second, Clock: clock.NewSystem(), Raft: func() Raft { return raft }})
	w.voter = true
	for _, id := range []string{"n2", "n3"} {
		w.heard[id] = &heard{voter: true, told: true, status: Status{Room: 301, asOf: 100}}
	}
	for proposed, want := range map[int64]int64{100: 300, 300: 100, 500: 0} {
		raft.begun = proposed
		if w.sumRoom(0); w.Room() != want {
			t.Errorf("after %d bytes: %d, want %d", proposed, w.Room(), want)
		}
	}
	if own := w.ownRoom(); own != 1000-raft.begun+1 {
		t.Errorf("of itself it says %d", own)
	}
}
