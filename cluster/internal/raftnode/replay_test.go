package raftnode

import (
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/lockstep-io/lockstep/cluster/internal/datadir"
)

// Raft learns of commits no faster than the state machine follows. But each request may raise the commit index at least a
// little.
func TestCommitIndexIsToldInPortions(t *testing.T) {
	var p progress
	tell := func(commit uint64) uint64 {
		req := raft.AppendEntriesRequest{LeaderCommitIndex: commit}
		p.pace(&req, func(index uint64) bool { return index > 600_000 })
		return req.LeaderCommitIndex
	}
	for _, step := range []struct{ done, told, want uint64 }{
		{0, 0, 0}, // a request without a commit index
		{0, 10, 10},
		{0, 1_000_000, paceWindow},
		{0, 1_000_000, paceWindow + paceStep}, // these may be entries that never reach the state machine
		{paceWindow, 1_000_000, 2 * paceWindow},
		{500_000, 1_000_000, 500_000 + paceWindow},
		{999_990, 1_000_000, 1_000_000},
		{1_000_000, 1_000_001, 1_000_001},
		{1_000_000, 7, 7}, // a new leader that knows less
		{1_000_000, 2_000_000, 1_000_000 + paceWindow},
		{1_000_000, 2_000_000, 1_000_000 + paceWindow}, // entries for the state machine, which wait
		{1_000_001, 2_000_000, 1_000_001 + paceWindow},
	} {
		p.done.Store(step.done)
		if got := tell(step.told); got != step.want {
			t.Errorf("%+v: Raft is told %d", step, got)
		}
	}
}

// TestWhatWaitsForTheStateMachineIsBounded: while the state machine waits for the collector, a leader that keeps sending entries
// makes only a few megabytes wait.
func TestWhatWaitsForTheStateMachineIsBounded(t *testing.T) {
	const most = 8 << 20
	var p progress
	commit, waits := uint64(0), 0
	for range 1000 {
		commit += 64 // as many as Raft sends at once
		req := raft.AppendEntriesRequest{LeaderCommitIndex: commit}
		p.pace(&req, func(uint64) bool { return true })
		waits = int(p.passed) * (datadir.LongEntry - 1) // without the data of long entries
	}
	if waits > most {
		t.Errorf("entries of %d MB may wait for the state machine, want %d MB", waits>>20, most>>20)
	}
}

// A node that has applied the log up to a commit index has caught up if the leader's next one is only a little higher.
func TestCaughtUp(t *testing.T) {
	var p progress
	done := uint64(0)
	p.begin(func(index uint64) bool { return done >= index })
	var said []string
	look := func() {
		if p.caughtUp() {
			said = append(said, "yes")
		} else {
			said = append(said, "no")
		}
	}
	tell := func(commit uint64) {
		p.pace(&raft.AppendEntriesRequest{LeaderCommitIndex: commit}, func(uint64) bool { return false })
	}
	look() // no leader has told a commit index
	tell(5000)
	look()
	tell(9000)
	done = 5000
	look() // the node has applied its goal, but more has been committed
	tell(9000)
	look()
	done = 9000
	look() // the leader may have committed more by now
	tell(12_000)
	look() // the leader has committed much more
	done = 12_000
	tell(12_010)
	look()
	tell(50_000)
	look() // once caught up, the node remains so
	p.reset()
	look() // another leader: the node has to catch up anew
	tell(50_000)
	look()
	done = 50_000
	look()
	tell(50_000)
	look()
	if got, want := strings.Join(said, " "), "no no no no no no yes yes no no no yes"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
