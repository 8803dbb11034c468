package cluster

import (
	"testing"
	"testing/synctest"

	"lockstep/cluster/internal/forward"
)

// TestOlderLeader: a node knows that its commands may reach a leader of version 0.1.0: by its link to the leader, or, while there is
// no leader, because it has never heard from a member.
func TestOlderLeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		check := func(what string, n *Node, older, may bool) {
			t.Helper()
			if n.Older() != older || n.MayBeOlder() != may {
				t.Errorf("%s: older %v, may be older %v", what, n.Older(), n.MayBeOlder())
			}
		}
		check("a leader of this version", p.b, false, false)
		p.cut()
		synctest.Wait()
		p.cfg.speaks = forward.Version{Major: forward.Major, Minor: forward.MinorLeases - 1}
		p.connect()
		check("a leader of version 0.1.0", p.b, true, true)
		check("this node leads", p.Node, false, false)
		p.peers.Update() // finds n2 in the configuration and has never heard of it
		check("this node leads, and a member is unknown", p.Node, false, true)
		p.depose()
		synctest.Wait()
		check("nobody leads, and a member is unknown", p.Node, true, true)
	})
}
