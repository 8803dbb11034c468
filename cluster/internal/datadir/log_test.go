package datadir

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
)

// The mark follows the log through everything that Raft does to it.
func TestMarkFollowsTheLog(t *testing.T) {
	dir := t.TempDir()
	g := openTestLog(t, dir, true)
	defer func() { g.Close() }()
	expect := func(what string, first, last uint64) {
		t.Helper()
		m, err := readMark(filepath.Join(dir, markFile))
		low, err1 := g.FirstIndex()
		high, err2 := g.LastIndex()
		if err := errors.Join(err, err1, err2); err != nil || m.last != last || high != last || low != first {
			t.Errorf("%s: mark %d, log %d to %d, %v; want %d to %d", what, m.last, low, high, err, first, last)
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
	step(g.DeleteRange(1, 6))
	expect("no snapshot yet", 1, 10)
	keepSnapshot(t, g.snaps, 4, 1)
	step(g.DeleteRange(1, 4))
	expect("one snapshot, which may turn out to be damaged", 1, 10)
	keepSnapshot(t, g.snaps, 6, 1)
	step(g.DeleteRange(1, 6))
	expect("shortened after a snapshot", 5, 10)
	step(g.DeleteRange(8, 10))
	expect("cut by another leader", 5, 7)
	step(g.StoreLog(entries(8, 8)[0]))
	step(g.Close())
	g = openTestLog(t, dir, false)
	step(g.join())
	expect("opened again", 5, 8)
	keepSnapshot(t, g.snaps, 99, 2)
	step(g.DeleteRange(5, 8))
	expect("emptied", 0, 0)
	if g.mark.base != 99 {
		t.Errorf("an empty log that begins with snapshot %d", g.mark.base)
	}
	step(g.StoreLogs(entries(100, 101)))
	expect("behind a snapshot", 100, 101)
}
