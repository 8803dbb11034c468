package cluster

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
)

// The power fails in the write that fills a segment. Whatever part of it is on the disk,
// the entries before it are there, and the log goes on.
func TestPowerFailureWhenASegmentIsFilled(t *testing.T) {
	base := t.TempDir()
	open := func(dir string) *storage {
		t.Helper()
		st, err := openStorageOn(smallSegments(), dir, "n1", LogWAL, raftLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	entry := func(i uint64) *raft.Log { return &raft.Log{Index: i, Term: 1, Data: make([]byte, 300)} }
	grow, before := filepath.Join(base, "grow"), filepath.Join(base, "before")
	name := filepath.Join(walDir, "00000000000000000001-0000000000000000.wal")
	var was, full []byte
	last := uint64(0)
	for at := int64(-1); at < 0; last++ {
		st := open(grow)
		must(st.finish("", false))
		st.close()
		must(os.RemoveAll(before))
		must(os.CopyFS(before, os.DirFS(grow)))
		was, _ = os.ReadFile(filepath.Join(before, name)) // there is none at first
		st = open(grow)
		must(st.log.StoreLog(entry(last + 1)))
		st.close()
		var err error
		full, err = os.ReadFile(filepath.Join(grow, name))
		must(err)
		at, _ = tornIndex(full)
	}
	tried := 0
	for at := range full {
		if at%frameHeader != 0 || at < len(was) && full[at] == was[at] {
			continue
		}
		tried++
		dir := filepath.Join(base, "cut")
		must(os.RemoveAll(dir))
		must(os.CopyFS(dir, os.DirFS(before)))
		torn := append(append([]byte(nil), full[:at]...), make([]byte, len(full)-at)...)
		must(os.WriteFile(filepath.Join(dir, name), torn, 0o600))
		st := open(dir)
		high, err := st.log.LastIndex()
		must(err)
		if high != last-1 && high != last {
			t.Errorf("cut at %d: it ends at entry %d, want %d", at, high, last-1)
		}
		for i := high + 1; i < high+30; i++ {
			must(st.log.StoreLog(entry(i)))
		}
		st.guard.recent.forget()
		for i := uint64(1); i < high+30; i++ {
			var l raft.Log
			if err := st.log.GetLog(i, &l); err != nil || l.Index != i {
				t.Errorf("cut at %d: entry %d: %+v, %v", at, i, l, err)
			}
		}
		st.close()
	}
	if tried < 5 {
		t.Errorf("only %d parts of the write were tried", tried)
	}
}
