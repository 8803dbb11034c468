package cluster

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft-wal/metadb"

	"github.com/lockstep-io/lockstep/cluster/internal/crashdisk"
	"github.com/lockstep-io/lockstep/cluster/internal/datadir"
	"github.com/lockstep-io/lockstep/store"
)

// The files of a data directory, for tests that damage them.
const (
	lockFile    = "LOCK"
	nodeFile    = "node.json"
	boltFile    = "raft.db"
	walDir      = "log"
	markFile    = "log.last"
	snapshotDir = "snapshots"
	stateFile   = "state.bin"
	metaFile    = "meta.json"
)

// snapshotsKept is how many snapshots a data directory keeps.
const snapshotsKept = 2

// smallSegments returns the machine's disk, with segments so small that a log has many files.
func smallSegments() datadir.Disk {
	on := datadir.SystemDisk()
	on.SegmentSize = crashdisk.SegmentSize
	return on
}

// openStopped opens the data directory of a node that does not run.
func openStopped(t testing.TB, cfg *Config) *datadir.Dir {
	t.Helper()
	dir, err := datadir.Open(cfg.Data, datadir.Options{Disk: cfg.disk, ID: cfg.ID, LogStore: cfg.LogStore, Lines: hclog.NewNullLogger()})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// dataConfig returns the configuration of a single durable node. After a snapshot, the node's log keeps few of the entries that
// the snapshot covers.
func dataConfig(t testing.TB, dir string) Config {
	cfg := Default()
	cfg.Data, cfg.PeerListen = dir, "127.0.0.1:0"
	cfg.PeerAdvertise = "n1.test:1" // nobody dials a single node
	cfg.Table, cfg.Time, cfg.Logger = store.NewTable(store.Commands()), NewSystemTime(), slog.New(slog.DiscardHandler)
	cfg.HeartbeatTimeout, cfg.ElectionTimeout, cfg.LeaderLease = 40*ms, 40*ms, 40*ms
	cfg.SnapshotInterval, cfg.SnapshotThreshold, cfg.TrailingLogs = time.Hour, 1<<40, 4
	cfg.Fatal = func(err error) { t.Error(err) }
	return cfg
}

// openNode starts a node and waits until it serves.
func openNode(t testing.TB, cfg Config) *Node {
	t.Helper()
	n, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := n.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	return n
}

func closeNode(t testing.TB, n *Node) {
	t.Helper()
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}

// lines submits a pipeline to a node.
func lines(t testing.TB, n *Node, commands ...string) string {
	t.Helper()
	tn := &testNode{Node: n, t: t, table: n.cfg.Table}
	return text(n.Submit(tn.call(commands...), nil))
}

// filled makes a data directory with snapshots and a log behind them.
func filled(t testing.TB, logStore string) string {
	t.Helper()
	dir := t.TempDir()
	cfg := dataConfig(t, dir)
	cfg.LogStore = logStore
	n := openNode(t, cfg)
	for i := range 60 {
		lines(t, n, fmt.Sprintf("SET k%d %s", i, strings.Repeat("v", 2000)))
		if i%20 == 19 {
			if err := n.Snapshot(); err != nil {
				t.Fatal(err)
			}
		}
	}
	lines(t, n, "SET last v")
	closeNode(t, n)
	return dir
}

// eachLogStore runs a test with every log store.
func eachLogStore(t *testing.T, test func(t *testing.T, logStore string)) {
	for _, kind := range []string{LogWAL, LogBolt} {
		t.Run(kind, func(t *testing.T) { test(t, kind) })
	}
}

func TestRestartKeepsEverything(t *testing.T) {
	eachLogStore(t, func(t *testing.T, logStore string) {
		dir := filled(t, logStore)
		n := openNode(t, dataConfig(t, dir))
		if got := lines(t, n, "GET last", "STRLEN k0", "STRLEN k59"); got != "v 2000 2000" {
			t.Errorf("got %q", got)
		}
		closeNode(t, n)
		// The node starts once more, and has written nothing in between.
		n = openNode(t, dataConfig(t, dir))
		if got := lines(t, n, "GET last", "DBSIZE"); got != "v 61" {
			t.Errorf("got %q", got)
		}
		closeNode(t, n)
	})
}

func newestSnapshot(t *testing.T, dir string) string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "snapshots", "*-*"))
	if err != nil || len(list) == 0 {
		t.Fatal("no snapshots", err)
	}
	newest := list[0]
	for _, s := range list { // <term>-<index>-<time>
		if strings.Split(filepath.Base(s), "-")[2] > strings.Split(filepath.Base(newest), "-")[2] {
			newest = s
		}
	}
	return newest
}

func truncate(t *testing.T, path string, size int64) {
	t.Helper()
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
}

func overwrite(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A node with an unusable directory ends at its start with one line that says what to do. It never panics or begins empty.
func TestUnusableDirectories(t *testing.T) {
	eachLogStore(t, func(t *testing.T, logStore string) {
		whole := filled(t, logStore)
		for _, test := range append(damages(), damagesOf(logStore)...) {
			t.Run(test.name, func(t *testing.T) {
				dir := t.TempDir()
				if err := os.CopyFS(dir, os.DirFS(whole)); err != nil {
					t.Fatal(err)
				}
				test.damage(t, dir)
				mustNotOpen(t, dir, test.want...)
			})
		}
	})
}

type damage struct {
	name   string
	damage func(t *testing.T, dir string)
	want   []string // parts of the error
}

// damages returns the kinds of damage that do not depend on the log store.
func damages() []damage {
	raftDB := func(dir string) string { return filepath.Join(dir, boltFile) }
	mark := func(dir string) string { return filepath.Join(dir, markFile) }
	return []damage{
		{"term missing", func(t *testing.T, dir string) { os.Remove(raftDB(dir)) }, []string{"lost its log", "backup"}},
		{"term empty", func(t *testing.T, dir string) { truncate(t, raftDB(dir), 0) }, []string{"log", "backup"}},
		{"term of one page", func(t *testing.T, dir string) { truncate(t, raftDB(dir), 4096) }, []string{"log", "damaged", "backup"}},
		{"term of garbage", func(t *testing.T, dir string) {
			overwrite(t, raftDB(dir), bytes.Repeat([]byte("garbage!"), 1<<14))
		}, []string{"log", "damaged", "backup"}},
		{"term is a directory", func(t *testing.T, dir string) {
			os.Remove(raftDB(dir))
			os.Mkdir(raftDB(dir), 0o700)
		}, []string{"log", "damaged"}},
		{"mark missing", func(t *testing.T, dir string) { os.Remove(mark(dir)) }, []string{"lost its log", markFile}},
		{"mark damaged", func(t *testing.T, dir string) { overwrite(t, mark(dir), make([]byte, 28)) }, []string{markFile, "damaged", "backup"}},
		{"node.json missing", func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, nodeFile)) }, []string{nodeFile, "backup"}},
		{"node.json empty", func(t *testing.T, dir string) { overwrite(t, filepath.Join(dir, nodeFile), nil) }, []string{nodeFile, "damaged"}},
		{"node.json cut", func(t *testing.T, dir string) { truncate(t, filepath.Join(dir, nodeFile), 10) }, []string{nodeFile, "damaged"}},
		{"node.json of another node", func(t *testing.T, dir string) {
			overwrite(t, filepath.Join(dir, nodeFile), []byte(`{"format":1,"id":"n7","log":"wal"}`))
		}, []string{`"n7"`, `"n1"`, "--id"}},
		{"a later format", func(t *testing.T, dir string) {
			overwrite(t, filepath.Join(dir, nodeFile), []byte(`{"format":2,"id":"n1"}`))
		}, []string{"format 2"}},
		{"an unknown log store", func(t *testing.T, dir string) {
			overwrite(t, filepath.Join(dir, nodeFile), []byte(`{"format":1,"id":"n1","log":"stone"}`))
		}, []string{`"stone"`}},
		{"snapshots missing", func(t *testing.T, dir string) { os.RemoveAll(filepath.Join(dir, "snapshots")) }, []string{"backup"}},
	}
}

// damagesOf returns the kinds of damage to a log store.
func damagesOf(logStore string) []damage {
	if logStore == LogBolt {
		return nil
	}
	return []damage{
		{"log missing", func(t *testing.T, dir string) { os.RemoveAll(filepath.Join(dir, walDir)) }, []string{"lost its log", "backup"}},
		{"log empty", func(t *testing.T, dir string) {
			os.RemoveAll(filepath.Join(dir, walDir))
			os.Mkdir(filepath.Join(dir, walDir), 0o700)
		}, []string{"damaged", "has reached", "backup"}},
		{"list of segments missing", func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, walDir, metadb.FileName)) }, []string{"damaged", "backup"}},
		{"list of segments cut", func(t *testing.T, dir string) {
			truncate(t, filepath.Join(dir, walDir, metadb.FileName), 8192)
		}, []string{"damaged", "backup"}},
		{"segment missing", func(t *testing.T, dir string) { os.Remove(segment(t, dir)) }, []string{"damaged", "has reached", "backup"}},
		{"segment of garbage", func(t *testing.T, dir string) {
			overwrite(t, segment(t, dir), bytes.Repeat([]byte("garbage!"), 1<<14))
		}, []string{"damaged", "backup"}},
	}
}

// segment returns the file of the log's newest segment.
func segment(t *testing.T, dir string) string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, walDir, "*.wal"))
	if err != nil || len(list) == 0 {
		t.Fatal("no segments", err)
	}
	return slices.Max(list)
}

func mustNotOpen(t *testing.T, dir string, want ...string) {
	t.Helper()
	n, err := Open(dataConfig(t, dir))
	if err == nil {
		defer n.Close()
		t.Fatalf("the node has started, with %q", lines(t, n, "DBSIZE"))
	}
	for _, w := range append(want, dir) {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not say %q: %v", w, err)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("more than one line: %v", err)
	}
	// The failed start has closed the file LOCK, so the lock is free.
	lock, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		t.Errorf("still locked: %v", err)
	}
}

// spoiled opens copies of a directory with spoiled logs. Each node must report the damage, or lose nothing.
func spoiled(t *testing.T, whole string, size int64, spoil func(dir string, at int64)) {
	t.Helper()
	refused := 0
	for at := int64(0); at < size; at += size/16 + 1000 {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(whole)); err != nil {
			t.Fatal(err)
		}
		spoil(dir, at)
		cfg := dataConfig(t, dir)
		fatal := make(chan error, 100)
		cfg.Fatal = func(err error) { fatal <- err }
		n, err := Open(cfg)
		if err != nil {
			refused++
			if !strings.Contains(err.Error(), "damaged") && !strings.Contains(err.Error(), "backup") {
				t.Errorf("spoiled at %d: %v", at, err)
			}
			continue
		}
		ctx, cancel := context.WithCancel(context.Background())
		ready := make(chan error, 1)
		go func() { ready <- n.WaitReady(ctx) }()
		select {
		case err := <-fatal: // a damaged entry ends the process
			refused++
			if !strings.Contains(err.Error(), "backup") {
				t.Errorf("spoiled at %d: %v", at, err)
			}
		case err := <-ready:
			if got := lines(t, n, "GET last", "DBSIZE"); err != nil || got != "v 61" {
				t.Errorf("spoiled at %d of %d bytes, the node has started with %q, %v", at, size, got, err)
			}
		}
		cancel()
		closeNode(t, n)
	}
	if refused < 8 {
		t.Errorf("only %d damaged logs were refused", refused)
	}
}

// logEnd returns the newest file of a log, as a path within the data directory, and how many bytes of the file are in use.
func logEnd(t *testing.T, dir, logStore string) (file string, size int64) {
	t.Helper()
	if logStore == LogBolt {
		info, err := os.Stat(filepath.Join(dir, boltFile))
		if err != nil {
			t.Fatal(err)
		}
		return boltFile, info.Size()
	}
	file = filepath.Join(walDir, filepath.Base(segment(t, dir)))
	b, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		t.Fatal(err)
	}
	return file, int64(len(bytes.TrimRight(b, "\x00")))
}

func TestLockedDirectory(t *testing.T) {
	dir := t.TempDir()
	n := openNode(t, dataConfig(t, dir))
	defer closeNode(t, n)
	if other, err := Open(dataConfig(t, dir)); err == nil {
		other.Close()
		t.Error("two nodes have one directory")
	} else if !strings.Contains(err.Error(), "in use") || !strings.Contains(err.Error(), dir) {
		t.Error(err)
	}
	if got := lines(t, n, "SET k v"); got != "OK" {
		t.Errorf("the first node suffered: %q", got)
	}
}

func TestDirectoryThatCannotBeMade(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	overwrite(t, file, nil)
	if _, err := Open(dataConfig(t, filepath.Join(file, "data"))); err == nil || !strings.Contains(err.Error(), "--data") {
		t.Error(err)
	}
}

// whereItListens changes cfg, and returns a function. When a node has been opened with cfg, the function returns the address of
// the node's peer port.
func whereItListens(cfg *Config) (at func() string) {
	var ln net.Listener
	cfg.listen = func(addr string) (_ net.Listener, err error) {
		ln, err = net.Listen("tcp", addr)
		return ln, err
	}
	return func() string { return ln.Addr().String() }
}

func TestPeerPortTaken(t *testing.T) {
	cfg := dataConfig(t, t.TempDir())
	listening := whereItListens(&cfg)
	defer closeNode(t, openNode(t, cfg))
	cfg = dataConfig(t, t.TempDir())
	cfg.PeerListen = listening()
	if _, err := Open(cfg); err == nil || !strings.Contains(err.Error(), "--peer-listen "+cfg.PeerListen) {
		t.Error(err)
	}
	// The directory is free again and complete.
	cfg.PeerListen = "127.0.0.1:0"
	closeNode(t, openNode(t, cfg))
}

// A node was killed while it made its data directory. It starts with the files that are there.
func TestInterruptedFirstStart(t *testing.T) {
	fresh := func(t *testing.T) string {
		cfg := dataConfig(t, t.TempDir())
		openStopped(t, &cfg).Close()
		return cfg.Data
	}
	for name, prepare := range map[string]func(t *testing.T) string{
		"before node.json": func(t *testing.T) string {
			dir := t.TempDir()
			overwrite(t, filepath.Join(dir, lockFile), nil)
			overwrite(t, filepath.Join(dir, nodeFile+".tmp"), []byte("{"))
			return dir
		},
		"before the log": func(t *testing.T) string {
			dir := fresh(t)
			os.Remove(filepath.Join(dir, boltFile))
			return dir
		},
		"in the log": func(t *testing.T) string {
			dir := fresh(t)
			truncate(t, filepath.Join(dir, boltFile), 5000)
			return dir
		},
		"before the log's first segment": func(t *testing.T) string {
			dir := fresh(t)
			os.Remove(filepath.Join(dir, markFile)) // the first segment gets its file with the first entry
			return dir
		},
		"before the first configuration": func(t *testing.T) string {
			return fresh(t)
		},
		"before the log was declared complete": func(t *testing.T) string {
			dir := t.TempDir()
			closeNode(t, openNode(t, dataConfig(t, dir)))
			overwrite(t, filepath.Join(dir, nodeFile), []byte(`{"format":1,"id":"n1","log":"wal","new":true}`))
			return dir
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := prepare(t)
			n := openNode(t, dataConfig(t, dir))
			if got := lines(t, n, "SET k v"); got != "OK" {
				t.Error(got)
			}
			closeNode(t, n)
			n = openNode(t, dataConfig(t, dir))
			if got := lines(t, n, "GET k"); got != "v" {
				t.Errorf("after another start: %q", got)
			}
			closeNode(t, n)
		})
	}
}
