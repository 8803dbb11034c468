package raftnode

import (
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/lockstep-io/lockstep/cluster/internal/roster"
)

// CheckFounder fails if addr stands for every address of the machine: no joining node could reach the founder there.
func CheckFounder(addr string) error {
	if roster.ReachesNobody(addr) {
		return fmt.Errorf("--peer-listen %s stands for every address: say with --peer-advertise under which one other nodes reach this node, even if none joins yet", addr)
	}
	return nil
}

// warnOfAddress warns if the other members would look for this node at an address that stands for every address.
func (r *Node) warnOfAddress() {
	conf := r.raft.GetConfiguration()
	if conf.Error() != nil {
		return // it is being stopped
	}
	for _, s := range conf.Configuration().Servers {
		if s.ID == raft.ServerID(r.cfg.ID) && roster.ReachesNobody(string(s.Address)) {
			r.cfg.Logger.Warn("No other node can reach this one at its address in the cluster, which stands for every address: before another one joins, start this one with --peer-advertise ADDR and say: lockstep add "+r.cfg.ID+" ADDR",
				"address", s.Address)
		}
	}
}

// reaches fails if c leaves a member with an address that nobody can reach, as earlier versions allowed. A removal always passes.
func (c Change) reaches(members []Member) error {
	for _, m := range members {
		if c.Kind != RemoveMember && m.ID != c.ID && roster.ReachesNobody(m.PeerAddr) {
			return fmt.Errorf("no other node can reach %s at %s, which stands for every address: start %s with --peer-advertise ADDR, the address under which the others reach it, and then say: lockstep add %s ADDR", m.ID, m.PeerAddr, m.ID, m.ID)
		}
	}
	return nil
}
