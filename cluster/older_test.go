package cluster

import (
	"testing"
	"testing/synctest"

	"github.com/lockstep-io/lockstep/cluster/internal/forward"
	"github.com/lockstep-io/lockstep/store"
)

// TestOlderLeader: a node knows from the link, or without a leader from the members, when its commands may reach version 0.1.0.
func TestOlderLeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		check := func(what string, n *Node, known, older, may bool) {
			t.Helper()
			if n.KnowsOlder() != known || n.Older() != older || n.MayBeOlder() != may {
				t.Errorf("%s: known %v, older %v, may be older %v", what, n.KnowsOlder(), n.Older(), n.MayBeOlder())
			}
		}
		check("a leader of this version", p.b, false, false, false)
		p.cut()
		synctest.Wait()
		p.cfg.speaks = forward.Version{Major: forward.Major, Minor: forward.MinorLeases - 1}
		p.connect()
		check("a leader of version 0.1.0", p.b, true, true, true)
		check("this node leads", p.Node, false, false, false)
		p.peers.Update() // finds n2 in the configuration, but has never heard from n2
		check("this node leads, and a member is unknown", p.Node, false, false, true)
		p.depose()
		synctest.Wait()
		check("nobody leads, and a member is unknown", p.Node, false, true, true)
	})
}

// TestCallsInTheNameOfAnOlderNode: a call that a node of version 0.1.0 sends in its own name gets a plain error: other replies
// pass for success.
func TestCallsInTheNameOfAnOlderNode(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, b := newTestNode(t), newTestNode(t)
		n.lead()
		b.cfg.speaks.Minor = 0 // version 0.1.0
		l := n.carried(b.Node)
		calls := n.call("SETNX k v", "KEYS *", "GET k")
		calls[0].User, calls[1].User = store.SystemUser, store.SystemUser
		got := make(chan []store.Reply, 1)
		l.Call(forward.Submit, func(buf []byte) []byte {
			return forward.AppendSubmit(buf, forward.Ticket{ID: 1, Low: 1}, l.Token, calls, 0)
		}, func(body []byte, err error) {
			replies, failure := forward.ReadResult(body, nil)
			if err != nil || failure != nil {
				t.Errorf("no replies: %v, %v", err, failure)
			}
			got <- replies
		})
		replies := <-got
		for i, r := range replies[:2] {
			if r.Kind != store.Failure || r.Str != string(errNewerLeader) {
				t.Errorf("the answer to call %d is %+v", i+1, r)
			}
		}
		if len(replies) != 3 || replies[2].IsError() {
			t.Errorf("the answers are %+v", replies)
		}
		n.expect("nil", "GET k")
	})
}
