package raftfsm

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/store"
)

// told is a LockSink that records what it is told.
type told struct {
	off  bool
	list []string
}

func (t *told) Wanted() bool { return !t.off }

func (t *told) Locked(seq uint64, at store.Time, events []store.LockEvent) {
	line := fmt.Sprintf("%d at %d", seq, at.Wall)
	for _, e := range events {
		line += fmt.Sprintf(" %v %s", e.How, e.Owner)
	}
	t.list = append(t.list, line)
}

func (t *told) Retold(seq uint64, at store.Time, events []store.LockEvent) {
	t.Locked(seq, at, events)
	t.list[len(t.list)-1] += " (old)"
}

func (t *told) Lost(seq uint64, _ store.Time) {
	t.list = append(t.list, fmt.Sprintf("lost until %d", seq))
}

// TestLockSink: a LockSink hears of each write set that takes effect, also after a snapshot, and then knows what it has missed.
func TestLockSink(t *testing.T) {
	sink := &told{}
	f := New(nil)
	f.Witness(sink)
	lock := func(owner string) func(*store.Txn) {
		return func(t *store.Txn) { t.SetLock(0, []byte("k"), owner, 0) }
	}
	first, stale := propose(f, 1, lock("a")), propose(f, 1, lock("stale"))
	apply(t, f, 1, first)
	apply(t, f, 2, stale)
	apply(t, f, 3, propose(f, 1, func(t *store.Txn) { t.SetString(0, []byte("other"), "x", 0) }))
	if err := f.Restore(bytes.NewReader(encode(t, f)), 3); err != nil {
		t.Fatal(err)
	}
	apply(t, f, 4, propose(f, 1, lock("b")))
	sink.off = true
	apply(t, f, 5, propose(f, 1, lock("c")))
	sink.off = false
	apply(t, f, 6, propose(f, 1, func(t *store.Txn) { t.Delete(0, []byte("k")) }))
	want := []string{"1 at 1700000000001000 granted a", "2 at 1700000000001000", "lost until 2", "3 at 1700000000001000 replaced a granted b", "5 at 1700000000001000 released c"}
	if !slices.Equal(sink.list, want) {
		t.Errorf("got %q, want %q", sink.list, want)
	}
}

// TestOldLockEvents: the events of entries that are older than the process are told apart, because their subscribers have had them.
func TestOldLockEvents(t *testing.T) {
	sink := &told{}
	f := New(nil)
	f.Witness(sink)
	f.Replay(1)
	for i, owner := range []string{"a", "b"} {
		apply(t, f, uint64(i+1), propose(f, int64(i+1), func(t *store.Txn) { t.SetLock(0, []byte(owner), owner, 0) }))
	}
	if len(sink.list) != 2 || !strings.HasSuffix(sink.list[0], " granted a (old)") || !strings.HasSuffix(sink.list[1], " granted b") {
		t.Errorf("%q", sink.list)
	}
}
