package raftnode

import (
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// What a node does while its disk is full. Its log is in trouble (datadir.Log) from the first entry that does not fit, and Raft
// deposes the node if it led. If the node is elected again, it serves nobody (report): the disk would have no room for the next
// long entry either, and each such entry would depose the node again. Its clients are told that the disk is full instead. If there are
// other voters, the node hands its leadership to one of them.

// troubleTick is how often watchTrouble checks whether the log is in trouble.
const troubleTick = 500 * time.Millisecond

// Trouble says why the log accepts no entries at present; "" if it accepts them.
func (r *Node) Trouble() string { return r.dir.Log.Trouble() }

// watchTrouble ends the trouble of the log when there is room, and hands over leadership while there is none.
func (r *Node) watchTrouble() {
	tick := time.NewTicker(troubleTick)
	defer tick.Stop()
	for {
		select {
		case <-r.stop:
			return
		case <-tick.C:
		}
		if r.Trouble() == "" {
			continue
		}
		r.dir.Log.Probe()
		if r.Trouble() != "" && r.raft.State() == raft.Leader {
			r.handOver()
		}
	}
}

// handOver hands leadership to the first heir that can take it.
func (r *Node) handOver() {
	members, err := r.Members()
	if err != nil {
		return // Raft is being stopped
	}
	for _, id := range heirs(members, r.cfg.ID) {
		err := r.Transfer(id)
		if err == nil {
			return
		}
		r.cfg.Logger.Debug("this node cannot lead, because its disk is full, and cannot hand over", "to", id, "error", err)
	}
}

// heirs lists the other voters, beginning with the one behind this node. The disk of an heir may be full, too. It then hands over to
// the one behind it, so the leadership comes to every voter. If each node began with the first voter, two full nodes would hand over to
// each other for ever.
func heirs(members []Member, self string) (ids []string) {
	at := slices.IndexFunc(members, func(m Member) bool { return m.ID == self })
	for i := range members {
		if m := members[(at+1+i)%len(members)]; m.Voter && m.ID != self {
			ids = append(ids, m.ID)
		}
	}
	return ids
}
