package datadir

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// readBack returns the index of the log's last entry, or -1 if the log is refused. Each entry must be the one that was written.
func readBack(t *testing.T, what, dir string) (last int) {
	t.Helper()
	d := SystemDisk()
	d.Files = unsyncedFiles{}
	w, err := openWAL(d, filepath.Join(dir, walDir), reached(filepath.Join(dir, markFile)), hclog.NewNullLogger())
	if err != nil {
		return -1
	}
	g, err := openGuarded(d, w, filepath.Join(dir, markFile), false, &Snapshots{})
	if err != nil {
		w.Close()
		return -1
	}
	defer g.Close()
	high, err := g.LastIndex()
	for i := uint64(1); i <= high && err == nil; i++ {
		var l raft.Log
		if err = g.Read(i, &l); err == nil {
			err = sameAsWritten(&l)
		}
	}
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
	return int(high)
}

// After a flipped bit, the log is refused, or all its entries are the written ones. Only with an old log.last may entries be missing.
func TestFlippedBitsInTheLog(t *testing.T) {
	dir := t.TempDir()
	d := SystemDisk()
	d.Files, d.SegmentSize = unsyncedFiles{}, 512
	st, err := openOn(d, dir)
	if err != nil {
		t.Fatal(err)
	}
	last := uint64(12)
	for i := uint64(1); i <= last; i++ {
		if err := st.Log.StoreLog(written(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := st.Finish("", false); err != nil {
		t.Fatal(err)
	}
	st.Close()
	files, err := filepath.Glob(filepath.Join(dir, walDir, "*.wal"))
	if err != nil || len(files) < 2 || readBack(t, "whole", dir) != int(last) {
		t.Fatalf("%q, %v", files, err)
	}
	fresh, err := os.ReadFile(filepath.Join(dir, markFile))
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for _, name := range files {
		whole, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for at := range len(bytes.TrimRight(whole, "\x00")) {
			for what, mark := range map[string][]byte{"": fresh, " and an old mark": mark{last: 1}.encode()} {
				what = fmt.Sprintf("%s, bit %d of byte %d%s", filepath.Base(name), at%8, at, what)
				b := bytes.Clone(whole)
				b[at] ^= 1 << (at % 8)
				overwrite(t, name, b)
				overwrite(t, filepath.Join(dir, markFile), mark)
				switch got := readBack(t, what, dir); {
				case got < 0:
					refused++
				case got < int(last) && bytes.Equal(mark, fresh):
					t.Errorf("%s: the log ends at entry %d, want %d", what, got, last)
				}
			}
		}
		overwrite(t, name, whole)
	}
	if refused < 1000 {
		t.Errorf("only %d logs were refused", refused)
	}
}

// If a flipped bit makes a command one of Raft's own entries, the node does not start, and the log stays as it is.
func TestCommandThatBecomesANoop(t *testing.T) {
	dir := t.TempDir()
	st, err := openDir(dir, LogWAL)
	if err != nil {
		t.Fatal(err)
	}
	for i := uint64(1); i <= 9; i++ {
		if err := st.Log.StoreLog(written(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := st.Finish("", false); err != nil {
		t.Fatal(err)
	}
	st.Close()
	name := filepath.Join(dir, walDir, "00000000000000000001-0000000000000000.wal")
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(b, written(4).Data) - 2 // behind the type is the length
	b[at] ^= byte(raft.LogNoop)
	overwrite(t, name, b)
	for range 2 {
		mustNotOpen(t, dir, "entry 3", "damaged", "lockstep remove")
	}
	if now, err := os.ReadFile(name); err != nil || !bytes.Equal(now, b) {
		t.Errorf("the refused log has changed (%v)", err)
	}
}
