package datadir

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// The size of a directory leaves out lost+found: in a volume it belongs to root, and an error there would hide the size.
func TestSizeWithoutLostAndFound(t *testing.T) {
	dir := t.TempDir()
	lost := filepath.Join(dir, lostAndFound)
	if err := errors.Join(os.Mkdir(lost, 0o700), os.WriteFile(filepath.Join(lost, "a"), make([]byte, 10), 0o600),
		os.WriteFile(filepath.Join(dir, "b"), make([]byte, 3), 0o600), os.Chmod(lost, 0)); err != nil {
		t.Fatal(err)
	}
	if size, err := (&Dir{path: dir}).Size(); size != 3 || err != nil {
		t.Errorf("%d bytes, %v", size, err)
	}
}
