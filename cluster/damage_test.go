package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/lockstep-io/lockstep/cluster/internal/clustertest"
	"github.com/lockstep-io/lockstep/cluster/internal/roster"
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

// If the newest snapshot is damaged, the node starts from the snapshot before it and the log, and lacks nothing.
func TestDamagedSnapshotFallsBack(t *testing.T) {
	clustertest.Slow(t)
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

// While all members restart, no reader is told that a key is absent: each waits, or is told that there is no leader.
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

func TestLogCutAnywhere(t *testing.T) {
	clustertest.Slow(t)
	eachLogStore(t, func(t *testing.T, logStore string) {
		whole := filled(t, logStore)
		file, size := logEnd(t, whole, logStore)
		spoiled(t, whole, size, func(dir string, at int64) {
			truncate(t, filepath.Join(dir, file), at)
		})
	})
}

// A log has lost a page in its middle. The node does not take that for the torn end that a crash leaves.
func TestLogPageLost(t *testing.T) {
	whole := filled(t, LogWAL)
	file, size := logEnd(t, whole, LogWAL)
	spoiled(t, whole, size, func(dir string, at int64) {
		f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteAt(make([]byte, 4096), at)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	})
}

// A damaged entry ends the process. No snapshot is written that would hide the damage from the next start.
func TestDamagedEntryIsFatal(t *testing.T) {
	dir := t.TempDir()
	cfg := dataConfig(t, dir)
	fatal := make(chan error, 100)
	cfg.Fatal = func(err error) { fatal <- err }
	n := openNode(t, cfg)
	if got := lines(t, n, "SET k v"); got != "OK" {
		t.Error(got)
	}
	if _, err := n.cons.Propose([]byte("not an entry")); !errors.Is(err, errUnknown) {
		t.Errorf("propose: %v", err)
	}
	if err := <-fatal; !strings.Contains(err.Error(), "log entry") || !strings.Contains(err.Error(), "backup") {
		t.Error(err)
	}
	if err := n.Snapshot(); err == nil {
		t.Error("a snapshot was taken of a state that has lost an entry")
	}
	closeNode(t, n)
	n, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer closeNode(t, n)
	select {
	case <-fatal:
	case <-time.After(10 * time.Second):
		t.Error("the next start went past the damaged entry")
	}
}

// TestTermBehindTheLog: a node does not start if its stored term is earlier than the term of its last entry, or higher than any
// cluster reaches.
func TestTermBehindTheLog(t *testing.T) {
	for _, term := range []uint64{1, 1 << 40, roster.Highest} {
		cfg := dataConfig(t, t.TempDir())
		dir := openStopped(t, &cfg)
		entry := func(index, term uint64) *raft.Log {
			return &raft.Log{Index: index, Term: term, Type: raft.LogNoop}
		}
		if err := errors.Join(dir.Stable.SetUint64([]byte("CurrentTerm"), 7), dir.Log.StoreLogs([]*raft.Log{entry(1, 1), entry(2, 2)}), dir.Finish("C", false),
			dir.Stable.SetUint64([]byte("CurrentTerm"), term)); err != nil {
			t.Fatal(err)
		}
		dir.Close()
		mustNotOpen(t, cfg.Data, fmt.Sprintf("raft.db holds term %d", term), "lockstep remove")
	}
}

// TestNodeWhoseDirectoryIsRemovedEnds: a node ends when its data directory is removed. Writes that it acknowledged after the
// removal would be lost when its process ends.
func TestNodeWhoseDirectoryIsRemovedEnds(t *testing.T) {
	cfg := dataConfig(t, filepath.Join(t.TempDir(), "data"))
	fatal := make(chan error, 8)
	cfg.Fatal = func(err error) { fatal <- err }
	n := openNode(t, cfg)
	defer closeNode(t, n)
	if got := lines(t, n, "SET lock me"); got != "OK" {
		t.Fatal(got)
	}
	if err := os.RemoveAll(cfg.Data); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-fatal:
		if want := "was removed, moved or replaced"; !strings.Contains(err.Error(), want) {
			t.Errorf("it ends with %q, which does not say %q", err, want)
		}
	case <-time.After(20 * time.Second):
		t.Error("it goes on")
	}
}
