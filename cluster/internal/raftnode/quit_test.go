package raftnode

import (
	"errors"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/raftfsm"
)

// TestQuitAnswersWhatWaitsForTheStateMachine: a node that stops while it replays a long log does not wait for Raft's answers,
// which would never come.
func TestQuitAnswersWhatWaitsForTheStateMachine(t *testing.T) {
	applies, release := make(chan struct{}, 1), make(chan struct{})
	leads := make(chan Leadership, 100)
	r, err := Open(memberConfig(t, t.TempDir()), raftfsm.New(nil), Hooks{
		Applied: func(raftfsm.Outcome) {
			applies <- struct{}{}
			<-release
		},
		Restored: func(uint64, int64) {}, Members: func() {}, Vouched: func(string) bool { return false }, Leads: leads, Crowded: func() {},
	})
	if err != nil {
		t.Fatal(err)
	}
	for l := range leads {
		if l.Self {
			break
		}
	}
	proposed, barred := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := r.Propose((&raftfsm.Entry{Lease: 1}).Append(nil))
		proposed <- err
	}()
	<-applies
	held := r.raft.CommitIndex()
	go func() { barred <- r.Barrier() }()
	for r.raft.CommitIndex() == held {
		time.Sleep(time.Millisecond)
	}
	go r.Quit()
	for what, c := range map[string]struct {
		got  chan error
		want error
	}{"the proposal": {proposed, ErrUnknown}, "the barrier": {barred, ErrStopped}} {
		select {
		case err := <-c.got:
			if !errors.Is(err, c.want) {
				t.Errorf("%s: got %v, want %v", what, err, c.want)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s is not answered", what)
		}
	}
	close(release)
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
