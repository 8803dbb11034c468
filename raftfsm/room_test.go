package raftfsm

import (
	"testing"

	"lockstep/store"
)

// TestRoomWhileTheStateIsRead: what limits the data is known while somebody reads it, and
// is that of the last entry.
func TestRoomWhileTheStateIsRead(t *testing.T) {
	f := New(nil)
	f.Limit(store.Limits{Memory: 1 << 30, Entry: 2 << 20})
	check := func(full bool, entry int64) {
		t.Helper()
		f.View(func(*store.Store, uint64) {
			if f.OutOfMemory() != full || f.MaxEntry() != entry {
				t.Errorf("out of memory %t, an entry of %d, want %t and %d", f.OutOfMemory(), f.MaxEntry(), full, entry)
			}
		})
	}
	check(false, 2<<20)
	var txn *store.Txn
	f.View(func(s *store.Store, seq uint64) { txn = s.Begin(store.Time{}, seq+1, store.Env{}) })
	txn.SetConfig(store.ParamMaxMemory, "1")
	txn.SetConfig(store.ParamMaxEntry, "3mb")
	if _, err := f.Apply(1, (&Entry{Writes: txn.Writes().Bytes()}).Append(nil)); err != nil {
		t.Fatal(err)
	}
	check(true, 3<<20)
}
