package raftnode

import (
	"strings"
	"testing"

	"github.com/hashicorp/raft"
)

// Raft is told of a commit no faster than the state machine follows, and always
// a little.
func TestCommitIndexIsToldInPortions(t *testing.T) {
	var p progress
	tell := func(commit uint64) uint64 {
		req := raft.AppendEntriesRequest{LeaderCommitIndex: commit}
		p.pace(&req)
		return req.LeaderCommitIndex
	}
	for _, step := range []struct{ done, told, want uint64 }{
		{0, 0, 0}, // a request that says nothing of it
		{0, 10, 10},
		{0, 1_000_000, paceWindow},
		{0, 1_000_000, paceWindow + paceStep}, // these may be entries that never reach the state machine
		{paceWindow, 1_000_000, 2 * paceWindow},
		{500_000, 1_000_000, 500_000 + paceWindow},
		{999_990, 1_000_000, 1_000_000},
		{1_000_000, 1_000_001, 1_000_001},
		{1_000_000, 7, 7}, // a new leader that knows less
	} {
		p.done.Store(step.done)
		if got := tell(step.told); got != step.want {
			t.Errorf("%+v: Raft is told %d", step, got)
		}
	}
}

// Caught up is who has applied what was committed when he asked, and what came
// in the meantime.
func TestCaughtUp(t *testing.T) {
	var p progress
	done := uint64(0)
	caught := func() bool { return p.caughtUp(func(index uint64) bool { return done >= index }) }
	var said []string
	look := func() {
		if caught() {
			said = append(said, "yes")
		} else {
			said = append(said, "no")
		}
	}
	tell := func(commit uint64) { p.pace(&raft.AppendEntriesRequest{LeaderCommitIndex: commit}) }
	look() // nobody has told anything
	tell(5000)
	look()
	tell(9000)
	done = 5000
	look() // what was asked for, but more has come
	done = 9000
	look()
	tell(50_000)
	look() // it is and remains so …
	p.reset()
	look() // … until there is another leader
	tell(50_000)
	look()
	done = 50_000
	look()
	if got, want := strings.Join(said, " "), "no no no yes yes no no yes"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
