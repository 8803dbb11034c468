package raftfsm

import (
	"bytes"
	"slices"
	"testing"

	"github.com/lockstep-io/lockstep/store"
)

// watcher is a sink that records the users that it is told of.
type watcher struct {
	messages
	told [][]string
}

func (w *watcher) AccountsChanged(a store.Accounts) {
	names := []string{}
	for _, acc := range a.List {
		names = append(names, acc.Name)
	}
	w.told = append(w.told, names)
}

var _ store.AccountSink = (*watcher)(nil)

// TestSinkIsToldOfUsers: the sink is told of the users exactly after every change of them, replayed or not, and after a restore.
func TestSinkIsToldOfUsers(t *testing.T) {
	table := store.NewTable(store.Commands())
	user := func(name string) func(*store.Txn) {
		return func(txn *store.Txn) { txn.SetUser(store.NewUser(table, name, false)) }
	}
	w := &watcher{}
	f := New(w)
	f.Introduce(w)
	f.Replay(2)
	apply(t, f, 1, propose(f, 1, user("a")))
	apply(t, f, 2, propose(f, 2, set("k", "v", 0)))
	apply(t, f, 3, propose(f, 3, user("b")))
	apply(t, f, 4, propose(f, 4, func(txn *store.Txn) { txn.DeleteUser("a") }))
	apply(t, f, 5, propose(f, 5, set("k", "w", 0)))
	want := [][]string{{"a"}, {"a", "b"}, {"b"}}
	if !slices.EqualFunc(w.told, want, slices.Equal) {
		t.Errorf("told of %q, want %q", w.told, want)
	}
	other := &watcher{}
	g := New(other)
	g.Introduce(other)
	if err := g.Restore(bytes.NewReader(encode(t, f)), 0); err != nil {
		t.Fatal(err)
	}
	if !slices.EqualFunc(other.told, want[2:], slices.Equal) {
		t.Errorf("after a snapshot told of %q, want %q", other.told, want[2:])
	}
	if !bytes.Equal(encode(t, f), encode(t, g)) {
		t.Error("the snapshots differ")
	}
}
