package cluster

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// flip changes a bit in the middle of a file.
func flip(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 4
	overwrite(t, path, b)
}

// If the newest snapshot is damaged, the one before it and the log make it good.
func TestDamagedSnapshotFallsBack(t *testing.T) {
	eachLogStore(t, func(t *testing.T, logStore string) {
		whole := filled(t, logStore)
		for name, spoil := range map[string]func(dir string){
			"a bit of the state":       func(dir string) { flip(t, filepath.Join(dir, stateFile)) },
			"the state cut":            func(dir string) { truncate(t, filepath.Join(dir, stateFile), 100) },
			"no state":                 func(dir string) { os.Remove(filepath.Join(dir, stateFile)) },
			"a bit of the description": func(dir string) { flip(t, filepath.Join(dir, metaFile)) },
			"the description cut":      func(dir string) { truncate(t, filepath.Join(dir, metaFile), 1) },
			"no description":           func(dir string) { os.Remove(filepath.Join(dir, metaFile)) },
		} {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(whole)); err != nil {
				t.Fatal(err)
			}
			spoil(newestSnapshot(t, dir))
			n := openNode(t, dataConfig(t, dir))
			if got := lines(t, n, "GET last", "DBSIZE", "STRLEN k0", "STRLEN k59"); got != "v 61 2000 2000" {
				t.Errorf("%s: %q", name, got)
			}
			if err := n.Snapshot(); err != nil {
				t.Error(err)
			}
			closeNode(t, n)
			closeNode(t, openNode(t, dataConfig(t, dir)))
		}
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(whole)); err != nil {
			t.Fatal(err)
		}
		list, err := filepath.Glob(filepath.Join(dir, snapshotDir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range list {
			flip(t, filepath.Join(path, stateFile))
		}
		mustNotOpen(t, dir, "backup", "join")
	})
}

// TestReadsOfRestartingMembers restarts all members at once. Whoever reads before
// the state is whole waits, or is told that there is no leader; nobody is told
// that a key is absent.
func TestReadsOfRestartingMembers(t *testing.T) {
	c := startThree(t, func(cfg *Config) { cfg.FailoverWait = 5 * time.Second })
	c.start(0, 1, 2)
	c.expect(c.leader(), "OK", "SET k v")
	for range 3 {
		for i := range 3 {
			c.stop(i)
		}
		var readers sync.WaitGroup
		for i := range 3 {
			n, err := Open(c.cfg[i])
			if err != nil {
				t.Fatal(err)
			}
			c.nodes[i] = n
			readers.Go(func() {
				for n.WaitReady(shortly(t, time.Millisecond)) != nil {
					if got := lines(t, n, "GET k"); got != "v" && got != "-CLUSTERDOWN" {
						t.Errorf("n%d: before it is ready a read is told %q", i+1, got)
						return
					}
				}
				if got := lines(t, n, "GET k"); got != "v" {
					t.Errorf("n%d: the first read is told %q", i+1, got)
				}
			})
		}
		readers.Wait()
		c.leader()
	}
}

func shortly(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
