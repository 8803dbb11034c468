package datadir

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/go-hclog"
)

// onSnapshot makes a directory whose log begins behind its only snapshot, and returns where the state of the snapshot is.
func onSnapshot(t *testing.T) (dir, state string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "data")
	d, err := openDir(dir, LogWAL)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := errors.Join(d.Log.StoreLogs(entries(1, 10)), d.Finish("", false)); err != nil {
		t.Fatal(err)
	}
	keepSnapshot(t, d.Snapshots, 10, 1)
	if err := d.Log.DeleteRange(1, 10); err != nil {
		t.Fatal(err)
	}
	return dir, filepath.Join(newestSnapshot(dir, d.Snapshots), stateFile)
}

// If the disk or missing rights prevent the reading of a snapshot, the error names file and reason, and speaks of no damage.
func TestSnapshotThatCannotBeRead(t *testing.T) {
	t.Run("disk", func(t *testing.T) {
		const unreadable = "/proc/self/mem" // Linux: no memory is at the address 0
		if _, err := os.ReadFile(unreadable); !errors.Is(err, syscall.EIO) {
			t.Skip("no file here fails to be read:", err)
		}
		dir, state := onSnapshot(t)
		if err := errors.Join(os.Rename(state, state+".old"), os.Symlink(unreadable, state)); err != nil {
			t.Fatal(err)
		}
		mustNotOpen(t, dir, "the disk does not work", state, "input/output error", "repair it and start again")
		if err := os.Rename(state+".old", state); err != nil {
			t.Fatal(err)
		}
		mustOpen(t, dir)
	})
	t.Run("rights", func(t *testing.T) {
		if os.Getuid() == 0 {
			t.Skip("nothing keeps root from a file")
		}
		dir, state := onSnapshot(t)
		if err := os.Chmod(state, 0); err != nil {
			t.Fatal(err)
		}
		mustNotOpen(t, dir, state, "permission denied", "is intact", "chown -R")
		if err := os.Chmod(state, 0o600); err != nil {
			t.Fatal(err)
		}
		mustOpen(t, dir)
	})
	t.Run("damage", func(t *testing.T) {
		dir, state := onSnapshot(t)
		flip(t, state)
		mustNotOpen(t, dir, "is damaged", AdviceRejoin)
	})
}

func mustOpen(t *testing.T, dir string) {
	t.Helper()
	d, err := openDir(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
}

// TestUnusedSnapshots: what is wrong with a snapshot decides whether the node starts without it.
func TestUnusedSnapshots(t *testing.T) {
	causes := map[error]bool{
		syscall.EACCES: false, syscall.EPERM: false, syscall.EMFILE: false, syscall.ENOMEM: false, syscall.ESTALE: false, syscall.EINVAL: false,
		syscall.EIO: true, syscall.ENOENT: true, errors.New("not what was written"): true,
	}
	for _, cause := range damagedFS {
		causes[cause] = true
	}
	for cause, starts := range causes {
		s := &Snapshots{log: hclog.NewNullLogger()}
		err := s.found("1-1-1", snapshotMeta{}, &os.PathError{Op: "open", Path: "state.bin", Err: cause})
		if starts != (err == nil) || len(s.list) > 0 || starts != (len(s.spoiled) == 1) {
			t.Errorf("%v: %v; used %v, unused %v", cause, err, s.list, s.spoiled)
		}
		if why := s.lacking(errors.New("no snapshot")); strings.Contains(why.Error(), "open state.bin") != isBroken(cause) {
			t.Errorf("%v: %v", cause, why)
		}
	}
}
