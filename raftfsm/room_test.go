package raftfsm

import (
	"testing"

	"github.com/lockstep-io/lockstep/store"
)

// TestRoomWhileTheStateIsRead: while a reader has the state locked, other goroutines still get the limits and the scripts that
// the last entry has left.
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

	for i, want := range []bool{true, true, false} {
		before := f.Catalogue()
		f.View(func(s *store.Store, seq uint64) { txn = s.Begin(store.Time{}, seq+1, store.Env{}) })
		switch i {
		case 0:
			txn.LoadScript("1234", "return 1", true)
		case 1:
			txn.SetString(0, []byte("k"), "v", 0)
		case 2:
			txn.FlushScripts()
		}
		if _, err := f.Apply(uint64(2+i), (&Entry{Prev: uint64(1 + i), Writes: txn.Writes().Bytes()}).Append(nil)); err != nil {
			t.Fatal(err)
		}
		f.View(func(*store.Store, uint64) {
			if body, ok := f.Catalogue().Script("1234"); ok != want || ok && body != "return 1" {
				t.Errorf("after entry %d the script is %q, %t", 2+i, body, ok)
			}
			if _, ok := before.Script("1234"); ok != (i > 0) {
				t.Errorf("entry %d has changed what was before it", 2+i)
			}
			if same := f.Catalogue() == before; same != (i == 1) {
				t.Errorf("entry %d: another catalogue is %t", 2+i, !same)
			}
		})
	}
}
