package datadir

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// If the directory has a pipe or a device, a start fails and does not wait for it. A socket may be there (--unixsocket).
func TestFilesThatAreNoFiles(t *testing.T) {
	for _, name := range []string{nodeFile, boltFile, votesFile, markFile, settledPath, walDir + "/00000000000000000001-0000000000000000.wal", "other"} {
		for kind, plant := range map[string]func(path string) error{
			"pipe":           func(path string) error { return syscall.Mkfifo(path, 0o600) },
			"link to device": func(path string) error { return os.Symlink("/dev/zero", path) },
		} {
			dir := t.TempDir()
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := plant(path); err != nil {
				t.Fatal(err)
			}
			d, err := Open(dir, Options{ID: "n1", Disk: SystemDisk()})
			if err == nil {
				d.Close()
			}
			if err == nil || !strings.Contains(err.Error(), name+" is no regular file") {
				t.Errorf("%s, %s: got %v", name, kind, err)
			}
		}
	}
}

// The log may be on another disk, behind a link. The check ends, whatever the link leads to.
func TestPipeBehindALink(t *testing.T) {
	dir, far := t.TempDir(), t.TempDir()
	if err := os.Symlink(far, filepath.Join(dir, walDir)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, filepath.Join(far, walDir)); err != nil {
		t.Fatal(err)
	}
	if err := checkPlain(dir); err != nil {
		t.Error(err)
	}
	if err := syscall.Mkfifo(filepath.Join(far, "segment"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := checkPlain(dir); err == nil || !strings.Contains(err.Error(), walDir+"/segment is no regular file") {
		t.Errorf("got %v", err)
	}
}

// A file that is much longer than any that a node writes is refused, and takes no memory.
func TestSmallFilesThatAreLarge(t *testing.T) {
	for _, name := range []string{nodeFile, markFile, settledPath, votesFile} {
		path := filepath.Join(t.TempDir(), name)
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Truncate(1 << 40); err != nil {
			t.Skip("this file system has no sparse files:", err)
		}
		f.Close()
		if b, err := readSmall(path); err == nil || len(b) > 0 {
			t.Errorf("%s: got %d bytes, %v", name, len(b), err)
		}
	}
}

// The bytes behind the last commit are read in pieces, however many they are.
func TestLeftFrom(t *testing.T) {
	path := filepath.Join(t.TempDir(), "segment")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	check := func(what string, want int64) {
		t.Helper()
		if got, err := leftFrom(path, 8); err != nil || got != want {
			t.Errorf("%s: got %d, %v, want %d", what, got, err, want)
		}
	}
	check("no bytes", 0)
	for _, at := range []int64{3, 8, 8 + leftPiece - 1, 8 + leftPiece, 8 + 3*leftPiece} {
		if _, err := f.WriteAt([]byte{1}, at); err != nil {
			t.Fatal(err)
		}
		check("a byte", max(at-7, 0))
	}
	if err := f.Truncate(8 + 7*leftPiece); err != nil {
		t.Fatal(err)
	}
	check("zeros at the end", 3*leftPiece+1)
}
