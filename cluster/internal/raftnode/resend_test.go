package raftnode

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/raft"
)

// TestFullMembersAreSentEntriesAtOnce: if a member cannot store entries, Raft does not wait longer and longer before it sends
// them again.
func TestFullMembersAreSentEntriesAtOnce(t *testing.T) {
	a, b := newPeer(t, "127.0.0.1:0"), newPeer(t, "127.0.0.1:0")
	for _, c := range []struct {
		name   string
		answer raft.AppendEntriesResponse
		atOnce bool
	}{
		{"stored", raft.AppendEntriesResponse{Term: 1, Success: true}, false},
		{"not stored", raft.AppendEntriesResponse{Term: 1, LastLog: 7}, true},
		{"of a later term", raft.AppendEntriesResponse{Term: 2, LastLog: 7}, false},
	} {
		c.answer.RPCHeader = raft.RPCHeader{ID: []byte("b"), Addr: []byte("b\x00D")}
		b.answer.Store(&c.answer)
		got := raft.AppendEntriesResponse{}
		if err := a.AppendEntries("b", raft.ServerAddress(b.address()), &anEntry, &got); err != nil {
			t.Fatal(c.name, err)
		}
		if got.NoRetryBackoff != c.atOnce || got.Success != c.answer.Success || got.Term != c.answer.Term || got.LastLog != c.answer.LastLog {
			t.Errorf("%s: Raft is told %+v", c.name, got)
		}
	}
}

// TestEntriesWaitForAMemberThatRefuses: a member refuses entries for a while, and gets them when it no longer refuses them.
// Raft is told of no failure.
func TestEntriesWaitForAMemberThatRefuses(t *testing.T) {
	a, b := newPeer(t, "127.0.0.1:0"), newPeer(t, "127.0.0.1:0")
	const refusals = 3
	var refused atomic.Int32
	b.meet = func(_, _, _ []byte) error {
		if refused.Add(1) <= refusals {
			return errors.New("not now")
		}
		return nil
	}
	sent := make(chan error, 1)
	go func() { sent <- a.send(b.address(), anEntry) }()
	for {
		select {
		case err := <-sent:
			if err != nil || refused.Load() <= refusals {
				t.Errorf("after %d refusals: %v", refused.Load(), err)
			}
			return
		default:
			_ = a.send(b.address(), aHeartbeat) // it may be refused, too
		}
	}
}
