package datadir

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/lockstep-io/lockstep/cluster/internal/clustertest"
)

// After a power failure in the write that fills a segment, the earlier entries are there, and the log goes on.
func TestPowerFailureWhenASegmentIsFilled(t *testing.T) {
	clustertest.Slow(t)
	base := t.TempDir()
	open := func(dir string) *Dir {
		t.Helper()
		st, err := openOn(smallSegments(), dir)
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
	for at := -1; at < 0; last++ {
		st := open(grow)
		must(st.Finish("", false))
		st.Close()
		must(os.RemoveAll(before))
		must(os.CopyFS(before, os.DirFS(grow)))
		was, _ = os.ReadFile(filepath.Join(before, name)) // there is none at first
		st = open(grow)
		must(st.Log.StoreLog(entry(last + 1)))
		st.Close()
		var err error
		full, err = os.ReadFile(filepath.Join(grow, name))
		must(err)
		good, err := checkTail(filepath.Join(grow, name), 1, 0)
		must(err)
		at = int(good.index)
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
		high, err := st.Log.LastIndex()
		must(err)
		if high != last-1 && high != last {
			t.Errorf("cut at %d: it ends at entry %d, want %d", at, high, last-1)
		}
		for i := high + 1; i < high+30; i++ {
			must(st.Log.StoreLog(entry(i)))
		}
		st.Log.recent.forget()
		for i := uint64(1); i < high+30; i++ {
			var l raft.Log
			if err := st.Log.GetLog(i, &l); err != nil || l.Index != i {
				t.Errorf("cut at %d: entry %d: %+v, %v", at, i, l, err)
			}
		}
		st.Close()
	}
	if tried < 5 {
		t.Errorf("only %d parts of the write were tried", tried)
	}
}

// After repeated power failures in writes to one segment, each entry that the log holds is one that was written.
func TestPowerFailuresInOneSegment(t *testing.T) {
	clustertest.Slow(t)
	base := t.TempDir()
	name := filepath.Join(base, walDir, "00000000000000000001-0000000000000000.wal")
	// The data of an entry looks like entries, wherever a reader begins in it.
	like := bytes.Repeat([]byte{frameEntry, 0, 0, 0, frameHeader, 0, 0, 0}, 40)
	disk := SystemDisk()
	disk.SegmentSize = 256 << 10
	rng := rand.New(rand.NewPCG(1, 2))
	kept, torn := map[uint64][]byte{}, 0
	for round := range uint32(120) {
		st, err := openOn(disk, base)
		if err != nil {
			t.Fatal(err)
		}
		high, err := st.Log.LastIndex()
		if err != nil {
			t.Fatal(err)
		}
		st.Log.recent.forget()
		for i := uint64(1); i <= high; i++ {
			var l raft.Log
			if err := st.Log.GetLog(i, &l); err != nil || !bytes.Equal(l.Data, kept[i]) {
				t.Fatalf("round %d: entry %d is not what was written: %v", round, i, err)
			}
		}
		if round == 0 {
			if err := st.Finish("", false); err != nil {
				t.Fatal(err)
			}
		}
		batch := func(n int) {
			var logs []*raft.Log
			for range n {
				high++
				tail := like[:8*rng.IntN(len(like)/8)]
				// Before the data stand four numbers of variable length.
				length := func(v uint64) int { return len(binary.AppendUvarint(nil, v)) }
				before := length(high) + 2 + length(uint64(len(tail)+8))
				data := append(make([]byte, 8+(16-before)%8), tail...)
				binary.LittleEndian.PutUint32(data, round)
				kept[high] = data
				logs = append(logs, &raft.Log{Index: high, Term: 1, Data: kept[high]})
			}
			if err := st.Log.StoreLogs(logs); err != nil {
				t.Fatal(err)
			}
		}
		batch(1)
		st.Close()
		was, _ := os.ReadFile(name)
		mark, _ := os.ReadFile(filepath.Join(base, markFile))
		if st, err = openOn(disk, base); err != nil {
			t.Fatal(err)
		}
		batch(1 + rng.IntN(12))
		st.Close()
		now, _ := os.ReadFile(name)
		for at := 0; at < len(was); at += sector {
			if end := at + sector; rng.IntN(2) == 0 && !bytes.Equal(now[at:end], was[at:end]) {
				copy(now[at:end], was[at:end])
				torn++
			}
		}
		for path, b := range map[string][]byte{name: now, filepath.Join(base, markFile): mark} {
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if torn < 100 {
		t.Errorf("only %d sectors were lost", torn)
	}
}
