package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/lockstep-io/lockstep/cluster/internal/clustertest"
	"github.com/lockstep-io/lockstep/store"
)

func yes(*Survey) (bool, error) { return true, nil }

// TestInspectChangesNothing: a look at a directory changes no byte, no name and no time of it, with a torn end of the log, too, and leaves
// no copy behind.
func TestInspectChangesNothing(t *testing.T) {
	clustertest.Slow(t)
	eachLogStore(t, func(t *testing.T, logStore string) {
		temp := t.TempDir()
		t.Setenv("TMPDIR", temp)
		dir := filled(t, logStore)
		before := picture(t, dir)
		for _, all := range []bool{false, true} {
			s, err := Inspect(t.Context(), dir, all)
			if err != nil {
				t.Fatal(err)
			}
			if s.ID != "n1" || s.LogStore != logStore || s.Contents.Keys != 61 || len(s.Snapshots) != 2 || len(s.Damage) != 0 || s.Reached != s.Last || s.Committed < s.Snapshots[0].Index {
				t.Errorf("%+v", s)
			}
		}
		if after := picture(t, dir); after != before {
			t.Errorf("before:\n%s\nafter:\n%s", before, after)
		}
		if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
			t.Errorf("left over: %v, %v", left, err)
		}
		n := openNode(t, dataConfig(t, dir))
		if _, err := Inspect(t.Context(), dir, false); err == nil || !strings.Contains(err.Error(), "in use") {
			t.Errorf("while a node runs: %v", err)
		}
		closeNode(t, n)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := Inspect(ctx, dir, false); err == nil {
			t.Error("a look after a signal")
		}
		if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
			t.Errorf("left over after a signal: %v, %v", left, err)
		}
	})
}

// picture describes all files of a directory: names, sizes, times and contents.
func picture(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		var content []byte
		if !e.IsDir() {
			if content, err = os.ReadFile(path); err != nil {
				return err
			}
		}
		fmt.Fprintf(&b, "%s %s %d %s %x\n", path, info.Mode(), info.Size(), info.ModTime(), hashOfBytes(content))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// hashOfBytes is FNV-1a.
func hashOfBytes(b []byte) uint64 {
	h := uint64(14695981039346656037)
	for _, c := range b {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return h
}

// TestInspectFindsDamage: damage that keeps a node from starting is an error that names the directory and not its copy. Other damage is listed.
// A recovery refuses the first kind, and changes nothing.
func TestInspectFindsDamage(t *testing.T) {
	clustertest.Slow(t)
	whole := filled(t, LogWAL)
	older := ""
	if list, err := os.ReadDir(filepath.Join(whole, "snapshots")); err != nil || len(list) != 2 {
		t.Fatal(list, err)
	} else {
		older = filepath.Join("snapshots", list[0].Name())
		if newest := newestSnapshot(t, whole); filepath.Join(whole, older) == newest {
			older = filepath.Join("snapshots", list[1].Name())
		}
	}
	for name, c := range map[string]struct {
		spoil  func(dir string)
		says   string // the error; "": none
		listed string // the damage
	}{
		"the older snapshot":    {func(dir string) { flip(t, filepath.Join(dir, older, stateFile)) }, "", "snapshot"},
		"the newest snapshot":   {func(dir string) { flip(t, filepath.Join(newestSnapshot(t, dir), stateFile)) }, "", "snapshot"},
		"the log":               {func(dir string) { spoilAt(t, segment(t, dir), 100, 101) }, "damaged", ""},
		"node.json":             {func(dir string) { flip(t, filepath.Join(dir, "node.json")) }, "node.json is damaged", ""},
		"no node.json":          {func(dir string) { os.Remove(filepath.Join(dir, "node.json")) }, "no node.json", ""},
		"no vote":               {func(dir string) { os.Remove(filepath.Join(dir, "raft.last")) }, "raft.last", ""},
		"the term":              {func(dir string) { flip(t, filepath.Join(dir, "raft.last")) }, "raft.last", ""},
		"a log that was cut":    {func(dir string) { spoilAt(t, segment(t, dir), 120_000, 1<<30) }, "it ends at entry", ""},
		"no log":                {func(dir string) { os.RemoveAll(filepath.Join(dir, "log")) }, "lost its log", ""},
		"both snapshots":        {func(dir string) { os.RemoveAll(filepath.Join(dir, "snapshots")) }, "snapshots", ""},
		"an unfinished restore": {func(dir string) { overwrite(t, filepath.Join(dir, "RESTORING"), nil) }, "lockstep restore was interrupted", ""},
		"a newer version": {func(dir string) {
			overwrite(t, filepath.Join(dir, "node.json"), []byte(`{"format":9,"id":"n1","log":"wal"}`))
		}, "upgrade", ""},
		"a pipe": {func(dir string) { mkfifo(t, filepath.Join(dir, "log.settled")) }, "no regular file", ""},
	} {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(whole)); err != nil {
			t.Fatal(err)
		}
		c.spoil(dir)
		before := ""
		if name != "a pipe" {
			before = picture(t, dir)
		}
		s, err := Inspect(t.Context(), dir, true)
		if (err != nil) != (c.says != "") || err != nil && (!strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), dir) || strings.Contains(err.Error(), "lockstep-view")) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil && (len(s.Damage) != 1 || !strings.Contains(s.Damage[0], c.listed) || s.Contents.Keys != 61) {
			t.Errorf("%s: %+v", name, s)
		}
		if c.says == "" {
			continue
		}
		cfg := dataConfig(t, dir)
		if _, err := Recover(t.Context(), cfg, 0, yes); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: recovered: %v", name, err)
		}
		if name != "a pipe" && picture(t, dir) != before {
			t.Errorf("%s: the directory was changed", name)
		}
	}
	if _, err := Recover(t.Context(), dataConfig(t, filepath.Join(t.TempDir(), "none")), 0, yes); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
}

// TestRecoverOneOfThree: a survivor of three nodes goes on alone with its whole log, under another cluster's name and with larger tokens; the
// others, if they come back, do not take it in, and it does not take them in.
func TestRecoverOneOfThree(t *testing.T) {
	for _, snapshot := range []bool{false, true} {
		c := startThree(t, func(cfg *Config) { cfg.FailoverWait = 300 * ms })
		c.start(0, 1, 2)
		leader := c.leader()
		for i := range 20 {
			c.expect(leader, "OK", fmt.Sprintf("SET lock%d owner%d PX 3600000 NX", i, i))
		}
		if snapshot {
			if err := c.nodes[leader].Snapshot(); err != nil {
				t.Fatal(err)
			}
			c.expect(leader, "OK", "SET lock20 owner20 PX 3600000 NX")
		}
		token := c.do(leader, "LOCK.TOKEN lock0")
		old := c.nodes[leader].cons.Cluster()
		for i := range c.nodes {
			c.stop(i)
		}
		cfg := c.cfg[leader]
		if _, err := Recover(t.Context(), cfg, 0, func(*Survey) (bool, error) { return false, nil }); !errors.Is(err, ErrDeclined) {
			t.Fatalf("declined: %v", err)
		}
		done, err := Recover(t.Context(), cfg, 0, yes)
		if err != nil {
			t.Fatal(err)
		}
		if len(done.Survey.Members) != 3 || done.Addr != cfg.PeerListen || done.FirstFree < int64(done.Survey.Contents.Token)+tokenGap {
			t.Errorf("%+v", done)
		}
		alone := cfg
		alone.Peers = nil
		if n, err := Open(cfg); err == nil {
			closeNode(t, n)
			t.Fatal("it starts with the old --peers")
		}
		n := openNode(t, alone)
		if name := n.cons.Cluster(); name == old || name == "" {
			t.Errorf("the cluster's name is %q", name)
		}
		for i := range 20 {
			if got := lines(t, n, fmt.Sprintf("GET lock%d", i)); got != fmt.Sprintf("owner%d", i) {
				t.Errorf("lock%d: %s", i, got)
			}
		}
		if got := lines(t, n, "LOCK.TOKEN lock0", "SET fresh me NX PX 60000"); got != token+" OK" {
			t.Errorf("the old token: %s", got)
		}
		if got := lines(t, n, "LOCK.TOKEN fresh"); got <= fmt.Sprint(done.FirstFree) || len(got) < 16 {
			t.Errorf("a new lock has the token %s, and %d was given", got, done.FirstFree)
		}
		c.start((leader+1)%3, (leader+2)%3) // they are a majority of the old cluster
		members, err := n.cons.Members()
		if err != nil || len(members) != 1 {
			t.Errorf("the members are %+v, %v", members, err)
		}
		for i := range c.nodes {
			if i == leader {
				continue
			}
			if got, err := c.nodes[i].cons.Members(); err != nil || len(got) != 3 {
				t.Errorf("the old cluster has the members %+v, %v", got, err)
			}
			c.stop(i)
		}
		if got := lines(t, n, "GET fresh"); got != "me" {
			t.Errorf("after the old ones came back: %s", got)
		}
		closeNode(t, n)
		if again, err := Recover(t.Context(), alone, store.MaxFirstToken, yes); err != nil || again.FirstFree != store.MaxFirstToken || again.Kept == done.Kept {
			t.Errorf("again: %+v, %v", again, err)
		}
	}
}

// TestRecoverRefuses: a node that is no member, or that has nothing, is not recovered.
func TestRecoverRefuses(t *testing.T) {
	clustertest.Slow(t)
	dir := t.TempDir()
	cfg := dataConfig(t, dir)
	n := openNode(t, cfg)
	if _, err := Recover(t.Context(), cfg, 0, yes); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("while a node runs: %v", err)
	}
	closeNode(t, n)
	s, err := Inspect(t.Context(), dir, false)
	if err != nil {
		t.Fatal(err)
	}
	gone := *s
	gone.Members = nil
	joining := *s
	joining.Joining = true
	other := *s
	other.ID = "n2"
	for want, s := range map[string]*Survey{"empty": &gone, "not become a member": &joining, "was removed": &other} {
		if err := s.CheckRecoverable(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	cfg.PeerAdvertise = "0.0.0.0:7379"
	if _, err := Recover(t.Context(), cfg, 0, yes); err == nil || !strings.Contains(err.Error(), "--peer-advertise") {
		t.Errorf("an address that means every one: %v", err)
	}
}

// spoilAt changes the bytes of a file from an offset up to another one: one byte gets another value, more become zeros.
func spoilAt(t *testing.T, path string, from, to int) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if to == from+1 {
		b[from] ^= 4
	} else {
		clear(b[from:min(to, len(b))])
	}
	overwrite(t, path, b)
}

func mkfifo(t *testing.T, path string) {
	t.Helper()
	if err := errors.Join(os.RemoveAll(path), syscall.Mkfifo(path, 0o600)); err != nil {
		t.Fatal(err)
	}
}
