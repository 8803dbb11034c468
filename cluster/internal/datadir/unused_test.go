package datadir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A directory lacks node.json, but has another file of a node. Each start refuses the directory, which stays as it is.
func TestDirectoryWithoutItsRecord(t *testing.T) {
	whole := t.TempDir()
	st, err := openDir(whole, LogWAL)
	if err != nil {
		t.Fatal(err)
	}
	keepSnapshot(t, st.Snapshots, 2, 1)
	if err := errors.Join(st.Log.StoreLogs(entries(1, 9)), st.Stable.SetUint64([]byte(currentTerm), 1), st.Finish("", false)); err != nil {
		t.Fatal(err)
	}
	st.Close()
	for _, left := range ownFiles {
		if _, err := os.Stat(filepath.Join(whole, left)); left == nodeFile || left == settledPath && err != nil {
			continue
		}
		dir := filepath.Join(t.TempDir(), left)
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.CopyFS(dir, os.DirFS(whole))); err != nil {
			t.Fatal(err)
		}
		for _, name := range ownFiles {
			if name != left {
				if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
			}
		}
		for range 2 {
			mustNotOpen(t, dir, left, nodeFile, "lockstep remove")
		}
		if _, err := os.Stat(filepath.Join(dir, left)); err != nil {
			t.Error(err)
		}
	}
	dir := t.TempDir() // a crash has left the file that was to become the first node.json
	overwrite(t, filepath.Join(dir, nodeFile+".tmp"), []byte(`{"for`))
	if st, err = openDir(dir, LogWAL); err != nil {
		t.Fatal(err)
	}
	st.Close()
	if list, err := os.ReadDir(dir); err != nil || strings.Contains(fmt.Sprint(list), ".tmp") {
		t.Errorf("%v, %v", list, err)
	}
}
