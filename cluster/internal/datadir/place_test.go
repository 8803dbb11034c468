package datadir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
)

// TestDirectoryThatIsNotInItsPlace: an open directory knows when it was removed, moved or replaced, and when it was not.
func TestDirectoryThatIsNotInItsPlace(t *testing.T) {
	for name, c := range map[string]struct {
		change func(path string) error
		want   string
	}{
		"untouched":       {func(string) error { return nil }, ""},
		"removed":         {os.RemoveAll, "is not there"},
		"moved":           {func(path string) error { return os.Rename(path, path+".old") }, "is not there"},
		"without a lock":  {func(path string) error { return os.Remove(filepath.Join(path, lockFile)) }, "is not there"},
		"below a file":    {func(path string) error { return errors.Join(os.RemoveAll(path), os.WriteFile(path, nil, 0o600)) }, "is not there"},
		"linked to":       {func(path string) error { return errors.Join(os.Rename(path, path+".1"), os.Symlink(path+".1", path)) }, ""},
		"replaced":        {replaceDirectory, "another file LOCK"},
		"moved, and back": {func(path string) error { return errors.Join(os.Rename(path, path+".1"), os.Rename(path+".1", path)) }, ""},
	} {
		path := filepath.Join(t.TempDir(), "above", "data")
		d, err := openDir(path, LogWAL)
		if err != nil {
			t.Fatal(name, err)
		}
		if err := c.change(path); err != nil {
			t.Fatal(name, err)
		}
		moved, err := d.Moved()
		if moved != (c.want != "") || moved && !strings.Contains(err.Error(), c.want) || !moved && err != nil {
			t.Errorf("%s: %v, %v", name, moved, err)
		}
		d.Close()
	}
}

// replaceDirectory renames a directory, and makes one in its place, as another process could.
func replaceDirectory(path string) error {
	return errors.Join(os.Rename(path, path+".old"), os.Mkdir(path, 0o700), os.WriteFile(filepath.Join(path, lockFile), nil, 0o600))
}

// TestSnapshotMakesNoDirectoryAbove: when a data directory was removed, a snapshot does not make it anew. The new directory would
// look like one that belongs to a node.
func TestSnapshotMakesNoDirectoryAbove(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	d, err := openDir(path, LogWAL)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Snapshots.Create(1, 1, 1, raft.Configuration{}, 1, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a snapshot in a directory that was removed:", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the directory is there again:", err)
	}
}
