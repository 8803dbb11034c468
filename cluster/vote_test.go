package cluster

import (
	"errors"
	"fmt"
	"testing"

	"github.com/hashicorp/raft"
)

// stoppingStable loses every write from some step on, as a process that is killed.
type stoppingStable struct {
	raft.StableStore
	left int
}

var errStopped = errors.New("the process has been killed")

func (s *stoppingStable) Set(k, v []byte) error {
	if s.left--; s.left < 0 {
		return errStopped
	}
	return s.StableStore.Set(k, v)
}

func (s *stoppingStable) SetUint64(k []byte, v uint64) error {
	if s.left--; s.left < 0 {
		return errStopped
	}
	return s.StableStore.SetUint64(k, v)
}

// Raft writes a vote in two steps. If the process is killed between them, the new
// term stands beside the candidate of an earlier vote, and Raft would repeat to that
// candidate a vote that it never gave, without a look at its log.
func TestKilledWhileVoting(t *testing.T) {
	for steps := range 5 {
		t.Run(fmt.Sprint(steps), func(t *testing.T) {
			disk := raft.NewInmemStore()
			vote := func(s raft.StableStore, term uint64, candidate string) error {
				f := fatalStable{s, func(error) {}} // as raft.persistVote
				if err := f.SetUint64([]byte("LastVoteTerm"), term); err != nil {
					return err
				}
				return f.Set([]byte("LastVoteCand"), []byte(candidate))
			}
			if err := vote(disk, 5, "stale"); err != nil {
				t.Fatal(err)
			}
			if err := vote(&stoppingStable{disk, steps}, 9, "other"); err != nil && !errors.Is(err, errStopped) {
				t.Fatal(err)
			}
			term, err1 := disk.GetUint64([]byte("LastVoteTerm"))
			candidate, err2 := disk.Get([]byte("LastVoteCand"))
			if err1 != nil || err2 != nil && err2.Error() != "not found" { // as Raft sees it
				t.Fatal(err1, err2)
			}
			if term == 9 && string(candidate) == "stale" {
				t.Error("in term 9 it has voted for the candidate of term 5")
			}
		})
	}
}
