package cluster

import (
	"bytes"
	"errors"
	"testing"

	"github.com/hashicorp/raft"
)

// What is kept in memory is what the disk holds: also after the end of the log was cut
// off and others' entries took its place, and of entries too long to be kept.
func TestRecentEntriesAreThoseOnDisk(t *testing.T) {
	g := openTestLog(t, t.TempDir(), true)
	defer g.Close()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	same := func(first, last uint64) {
		t.Helper()
		for i := first; i <= last; i++ {
			var here, disk raft.Log
			must(g.GetLog(i, &here))
			must(g.logStore.GetLog(i, &disk))
			if here.Index != i || here.Term != disk.Term || !bytes.Equal(here.Data, disk.Data) {
				t.Errorf("entry %d: %+v, on disk %+v", i, here, disk)
			}
		}
	}
	must(g.StoreLogs(entries(1, 2*recentCount)))
	same(1, 2*recentCount)

	const cut = 2*recentCount - 10
	must(g.DeleteRange(cut, 2*recentCount))
	for i := uint64(cut); i <= 2*recentCount; i++ {
		if err := g.GetLog(i, new(raft.Log)); !errors.Is(err, raft.ErrLogNotFound) {
			t.Errorf("entry %d was cut off: %v", i, err)
		}
	}
	must(g.StoreLogs([]*raft.Log{
		{Index: cut, Term: 2, Data: []byte("another leader's")},
		{Index: cut + 1, Term: 2, Data: make([]byte, recentLimit+1)},
	}))
	same(1, cut+1)
	if g.recent.get(cut+1, new(raft.Log)) {
		t.Error("an entry too long to be kept is kept")
	}
	if !g.recent.get(cut, new(raft.Log)) {
		t.Error("the end of the log is not kept in memory")
	}
}
