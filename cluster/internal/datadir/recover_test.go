package datadir_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/lockstep-io/lockstep/cluster/internal/crashdisk"
	"github.com/lockstep-io/lockstep/cluster/internal/datadir"
)

// writeOn writes a file on a disk, and syncs it and its directory.
func writeOn(d datadir.Disk, path, text string) error {
	if err := d.Mkdir(filepath.Dir(path)); err != nil {
		return err
	}
	f, err := d.Create(path)
	if err != nil {
		return err
	}
	_, err = f.Write([]byte(text))
	return errors.Join(err, f.Sync(), f.Close(), d.SyncDir(filepath.Dir(path)))
}

// fillWith writes files whose contents say which they are: the old ones or the new ones. The new contents have fewer files.
func fillWith(d datadir.Disk, dir, what string) error {
	names := []string{"node.json", "log/1.wal", "log/2.wal", "log.last", "snapshots/a/state.bin"}
	if what == "old" {
		names = append(names, "log.settled", "snapshots/b/state.bin")
	}
	for _, sub := range []string{"log", "snapshots"} {
		if err := d.Mkdir(filepath.Join(dir, sub)); err != nil {
			return err
		}
	}
	for _, name := range names {
		if err := writeOn(d, filepath.Join(dir, name), what+" "+name); err != nil {
			return err
		}
	}
	return errors.Join(d.SyncDir(filepath.Join(dir, "log")), d.SyncDir(filepath.Join(dir, "snapshots")), d.SyncDir(dir))
}

// contents returns the text of each file below dir, by name, without LOCK.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() || e.Name() == "LOCK" {
			return err
		}
		b, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		files[rel] = string(b)
		return err
	})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return files
}

// allAre fails the test unless dir has exactly the files of fillWith.
func allAre(t *testing.T, dir, what, after string) {
	t.Helper()
	n := 0
	for name, text := range contents(t, dir) {
		if first, _, _ := strings.Cut(name, string(filepath.Separator)); strings.HasPrefix(first, "before-recover-") || first == "recovered.tmp" || first == "RECOVERING.tmp" {
			continue
		}
		if n++; text != what+" "+name {
			t.Errorf("%s: %s has %q", after, name, text)
		}
	}
	if want := map[string]int{"old": 7, "new": 5}[what]; n != want {
		t.Errorf("%s: %d files in %s, want the %d %s ones", after, n, dir, want, what)
	}
}

// recoverAgain runs a recovery again after an interrupted one, and checks that it leaves the new contents, and the old ones beside them.
func recoverAgain(t *testing.T, dir, after string) {
	t.Helper()
	disk := datadir.SystemDisk()
	r, err := datadir.BeginRecovery(disk, dir)
	if err != nil {
		t.Fatalf("%s: %v", after, err)
	}
	defer r.Close()
	interrupted, err := r.Interrupted()
	if err != nil {
		t.Fatalf("%s: %v", after, err)
	}
	kept := filepath.Join(dir, "before-recover-1")
	switch _, err := os.Lstat(kept); {
	case interrupted:
		if _, err := datadir.Open(dir, datadir.Options{Disk: disk, ID: "n1", Lines: hclog.NewNullLogger()}); err == nil || !strings.Contains(err.Error(), "in use") {
			t.Errorf("%s: locked: %v", after, err)
		}
		_, err = r.Complete()
		if err != nil {
			t.Fatalf("%s: %v", after, err)
		}
	case err != nil: // nothing was changed yet
		allAre(t, dir, "old", after+", before the second try")
		if _, err := r.Replace(func(path string) error { return fillWith(disk, path, "new") }); err != nil {
			t.Fatalf("%s: %v", after, err)
		}
	}
	allAre(t, dir, "new", after)
	allAre(t, kept, "old", after)
	for _, left := range []string{"RECOVERING", "recovered.tmp"} {
		if _, err := os.Lstat(filepath.Join(dir, left)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %s is left: %v", after, left, err)
		}
	}
}

// TestRecoveryStoppedAtEveryStep: when the power fails or the process is killed at any step, the old contents are whole and in their places, or
// running the recovery again completes it; and the old contents are never lost.
func TestRecoveryStoppedAtEveryStep(t *testing.T) {
	for at := 1; ; at++ {
		base := t.TempDir()
		count := crashdisk.New(base, 0)
		if err := fillWith(count.As(), base, "old"); err != nil {
			t.Fatal(err)
		}
		before := len(count.Steps())
		if err := os.RemoveAll(base); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(base, 0o700); err != nil {
			t.Fatal(err)
		}
		d := crashdisk.New(base, before+at)
		if err := fillWith(d.As(), base, "old"); err != nil {
			t.Fatal(err)
		}
		r, err := datadir.BeginRecovery(d.As(), base)
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.Replace(func(path string) error { return fillWith(d.As(), path, "new") })
		if r.Close(); !d.Down() {
			if err != nil || at < 30 {
				t.Errorf("%d steps, %v", at, err)
			}
			return
		}
		step := d.Steps()[before+at-1]
		for _, o := range crashdisk.Outcomes {
			dir := t.TempDir()
			if err := d.Image(dir, o); err != nil {
				t.Fatal(err)
			}
			recoverAgain(t, dir, fmt.Sprintf("stopped at step %d (%s), %s", at, step, o.Name))
		}
		recoverAgain(t, base, fmt.Sprintf("ended at step %d (%s)", at, step))
	}
}

// TestInterruptedRecoveryIsNotStarted: no node starts with a directory that is half recovered, and a damaged RECOVERING is refused.
func TestInterruptedRecoveryIsNotStarted(t *testing.T) {
	dir, disk := t.TempDir(), datadir.SystemDisk()
	for text, says := range map[string]string{
		"old before-recover-1\n":         "",
		"new before-recover-1\n":         "",
		"":                               "damaged",
		"new ../x\n":                     "damaged",
		"new before-recover-1/../../x\n": "damaged",
		"older before-recover-1\n":       "damaged",
		"old before-recover-01\n":        "damaged",
	} {
		if err := os.WriteFile(filepath.Join(dir, "RECOVERING"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := datadir.Open(dir, datadir.Options{Disk: disk, ID: "n1", Lines: hclog.NewNullLogger()}); err == nil || !strings.Contains(err.Error(), "lockstep recover was interrupted") {
			t.Errorf("%q: a node starts: %v", text, err)
		}
		r, err := datadir.BeginRecovery(disk, dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Interrupted(); (err != nil) != (says != "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", text, err)
		}
		r.Close()
	}
}
