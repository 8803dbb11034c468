package cluster

import (
	"errors"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
)

func openTestLog(t *testing.T, dir string, isNew bool) *guardedLog {
	t.Helper()
	w, err := openWAL(filepath.Join(dir, walDir), raftLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	g, err := openGuarded(w, filepath.Join(dir, markFile), isNew)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func entries(first, last uint64) (logs []*raft.Log) {
	for i := first; i <= last; i++ {
		logs = append(logs, &raft.Log{Index: i, Term: 1, Data: []byte{byte(i)}})
	}
	return logs
}

// The mark follows the log through everything that Raft does to it.
func TestMarkFollowsTheLog(t *testing.T) {
	dir := t.TempDir()
	g := openTestLog(t, dir, true)
	defer func() { g.Close() }()
	expect := func(what string, first, last uint64) {
		t.Helper()
		mark, err := readMark(filepath.Join(dir, markFile))
		low, err1 := g.FirstIndex()
		high, err2 := g.LastIndex()
		if err := errors.Join(err, err1, err2); err != nil || mark != last || high != last || low != first {
			t.Errorf("%s: mark %d, log %d to %d, %v; want %d to %d", what, mark, low, high, err, first, last)
		}
		var l raft.Log
		if err := g.GetLog(first-1, &l); first > 0 && !errors.Is(err, raft.ErrLogNotFound) {
			t.Errorf("%s: an entry before the first: %v", what, err)
		}
	}
	step := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	expect("new", 0, 0)
	step(g.StoreLogs(entries(1, 10)))
	expect("stored", 1, 10)
	step(g.DeleteRange(1, 4))
	expect("shortened after a snapshot", 5, 10)
	step(g.DeleteRange(8, 10))
	expect("cut by another leader", 5, 7)
	step(g.StoreLog(entries(8, 8)[0]))
	step(g.Close())
	g = openTestLog(t, dir, false)
	expect("opened again", 5, 8)
	step(g.DeleteRange(5, 8))
	expect("emptied", 0, 0)
	step(g.StoreLogs(entries(100, 101)))
	expect("behind a snapshot", 100, 101)
}
