package raftnode

import (
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// From the first entry that a full disk does not take, the log is in trouble (datadir.Log), and Raft deposes the node if it led.
// If the node is elected again, it serves nobody (report) and hands over its leadership.
//
// A leader may have an entry that no majority has room for, and so commit nothing. Then a follower without room for that entry,
// but with room for short ones, stands for election. Raft elects it only if a majority lacks the entry.

// troubleTick is how often watchTrouble checks whether the log is in trouble.
const troubleTick = 500 * time.Millisecond

// Trouble says why the log accepts no entries at present; "" if it accepts them.
func (r *Node) Trouble() string { return r.dir.Log.Trouble() }

// watchTrouble ends the trouble of the log when there is room, and hands over leadership while there is no room.
func (r *Node) watchTrouble() {
	tick := time.NewTicker(troubleTick)
	defer tick.Stop()
	var stuck stuck
	for {
		select {
		case <-r.stop:
			return
		case <-tick.C:
		}
		r.dir.Log.Probe()
		r.measureRoom()
		switch leads := r.raft.State() == raft.Leader; {
		case r.Trouble() == "":
			stuck.ticks = 0
		case leads:
			r.handOver()
		default:
			r.unlock(&stuck)
		}
	}
}

// stuck counts for how many ticks the leader has been sending an entry that it does not commit and this node cannot store.
type stuck struct {
	ticks int
	due   int // at how many ticks the node stands for election
}

// After stuckTicks ticks (troubleTick) the first member stands for election. stuckMost bounds the ticks between two attempts.
const (
	stuckTicks = 4
	stuckMost  = 128
)

// unlock makes this node stand for election if the leader has not committed, for s.due ticks, an entry that does not fit here.
func (r *Node) unlock(s *stuck) {
	index := r.dir.Log.Stuck()
	if index == 0 || r.trans.progress.toldIndex() >= index {
		s.ticks = 0
		return
	}
	if s.ticks++; s.ticks == 1 {
		members, err := r.Members()
		at := slices.IndexFunc(members, func(m Member) bool { return m.ID == r.cfg.ID && m.Voter })
		if err != nil || at < 0 {
			s.ticks = 0
			return
		}
		s.due = stuckTicks + 2*at // the members stand one after the other, so that they do not split the votes
	}
	if s.ticks < s.due {
		return
	}
	s.due += min(s.due, stuckMost)
	r.cfg.Logger.Info("The leader does not commit an entry, and this node has no room for it: standing for election", "entry", index)
	if err := r.Campaign(); err != nil {
		r.cfg.Logger.Warn("cannot stand for election", "error", err)
	}
}

// handOver hands leadership to the first heir that can take it. It returns false if there is none.
func (r *Node) handOver() bool {
	members, err := r.Members()
	if err != nil {
		return false // Raft is being stopped
	}
	for _, id := range heirs(members, r.cfg.ID) {
		err := r.Transfer(id)
		if err == nil {
			return true
		}
		r.cfg.Logger.Debug("this node cannot lead, because its disk is full, and cannot hand over", "to", id, "error", err)
	}
	return false
}

// heirs lists the other voters, beginning with the one behind self, so that two full nodes do not pass leadership to and fro.
func heirs(members []Member, self string) (ids []string) {
	at := slices.IndexFunc(members, func(m Member) bool { return m.ID == self })
	for i := range members {
		if m := members[(at+1+i)%len(members)]; m.Voter && m.ID != self {
			ids = append(ids, m.ID)
		}
	}
	return ids
}
