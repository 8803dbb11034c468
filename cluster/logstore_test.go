package cluster

import (
	"bytes"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hashicorp/raft"

	"lockstep/raftfsm"
)

func openTestLog(t *testing.T, dir string, isNew bool) *guardedLog {
	t.Helper()
	logs := raftLogger(slog.New(slog.DiscardHandler))
	w, err := openWAL(systemDisk(), filepath.Join(dir, walDir), 0, logs)
	if err != nil {
		t.Fatal(err)
	}
	snaps, err := openSnapshots(dir, systemDisk(), logs)
	if err != nil {
		t.Fatal(err)
	}
	g, err := openGuarded(systemDisk(), w, filepath.Join(dir, markFile), isNew, snaps)
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

// keepSnapshot puts a small snapshot into a store.
func keepSnapshot(t *testing.T, s *snapshotStore, index, term uint64) {
	t.Helper()
	if err := writeSnapshot(s, index, term); err != nil {
		t.Fatal(err)
	}
}

// writeSnapshot writes one in pieces.
func writeSnapshot(s *snapshotStore, index, term uint64) error {
	sink, err := s.Create(1, index, term, raft.Configuration{Servers: []raft.Server{{ID: "n1", Address: "n1.test:1"}}}, 1, nil)
	if err != nil {
		return err
	}
	sink.(*snapshotSink).own = true // of whatever the log holds
	var b bytes.Buffer
	if err := raftfsm.New(nil).Snapshot().Encode(&b); err != nil {
		return err
	}
	for piece := range slices.Chunk(b.Bytes(), 7) {
		if _, err := sink.Write(piece); err != nil {
			return errors.Join(err, sink.Cancel())
		}
	}
	return sink.Close()
}

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
