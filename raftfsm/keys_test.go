package raftfsm

import (
	"bytes"
	"slices"
	"testing"

	"github.com/lockstep-io/lockstep/store"
)

// seen is a KeySink that records what it is told.
type seen struct {
	list []string
}

func (s *seen) Touch(key string, _ uint64) { s.list = append(s.list, "touched "+key) }
func (s *seen) TouchAll()                  { s.list = append(s.list, "touched all") }
func (s *seen) Applied(writes []byte)      { store.EachTouched(writes, s) }
func (s *seen) Missed()                    { s.list = append(s.list, "replaced") }

// TestKeySinkSeesWhatTakesEffect: a KeySink gets the writes of accepted entries only. Of a restore, it learns only that the state was
// replaced.
func TestKeySinkSeesWhatTakesEffect(t *testing.T) {
	sink := &seen{}
	f := New(nil)
	f.Show(sink)
	set := func(key string) func(*store.Txn) {
		return func(t *store.Txn) { t.SetString(0, []byte(key), "v", 0) }
	}
	first, stale := propose(f, 1, set("a")), propose(f, 1, set("stale"))
	apply(t, f, 1, first)
	apply(t, f, 2, stale)
	apply(t, f, 3, propose(f, 1, func(t *store.Txn) { t.Flush(0) }))
	if want := []string{"touched a", "touched all"}; !slices.Equal(sink.list, want) {
		t.Errorf("got %q, want %q", sink.list, want)
	}
	sink.list = nil
	if err := f.Restore(bytes.NewReader(encode(t, f)), 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Restore(bytes.NewReader(nil), 0); err == nil {
		t.Error("nothing is a snapshot")
	}
	if want := []string{"replaced"}; !slices.Equal(sink.list, want) {
		t.Errorf("got %q, want %q", sink.list, want)
	}
}
