package datadir

import (
	"bytes"
	"errors"
	"math/rand"
	"testing"

	"github.com/hashicorp/raft"
)

// Entries are read as the disk holds them, from memory or not, and also after another leader's entries have replaced the log's end.
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
			must(g.Read(i, &here))
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

// recentLog keeps the end of the log, and no more than recentSize bytes of it.
func TestRecentEntriesTakeNoMoreMemory(t *testing.T) {
	var r recentLog
	size := func() (sum int64) {
		for _, l := range r.ring {
			sum += int64(len(l.Data))
		}
		return sum
	}
	rnd := rand.New(rand.NewSource(1))
	of := []int{10, 5000, 300 << 10, recentLimit, recentLimit + 1}
	lengths := []int{0} // of the entries
	for last := 1; last < 10*recentCount; last++ {
		lengths = append(lengths, of[rnd.Intn(len(of))])
		r.add([]*raft.Log{{Index: uint64(last), Data: make([]byte, lengths[last])}})
		if got := size(); got != r.size || got > recentSize {
			t.Fatalf("entry %d: %d bytes are kept, counted %d", last, got, r.size)
		}
		sum := 0
		for i := last; i > max(0, last-recentCount); i-- {
			if lengths[i] > recentLimit {
				continue
			}
			if sum += lengths[i]; sum > recentSize {
				break
			}
			if !r.get(uint64(i), new(raft.Log)) {
				t.Fatalf("entry %d is not kept when entry %d has come", i, last)
			}
		}
	}
	r.forget()
	r.add(entries(1, asyncCount)) // as after a cut
	long := make([]byte, asyncSize/asyncCount-EntryOverhead)
	for i := range uint64(asyncCount) {
		r.add([]*raft.Log{{Index: 100 + i, Data: long}})
	}
	for i := range uint64(asyncCount) {
		if !r.get(100+i, new(raft.Log)) {
			t.Errorf("entry %d may be unwritten and is not kept", 100+i)
		}
	}
	if got := size(); got != r.size {
		t.Errorf("%d bytes are kept, counted %d", got, r.size)
	}
}
