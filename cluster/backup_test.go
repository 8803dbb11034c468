package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/lockstep-io/lockstep/cluster/internal/clustertest"
	"github.com/lockstep-io/lockstep/cluster/internal/crashdisk"
	"github.com/lockstep-io/lockstep/cluster/internal/datadir"
	"github.com/lockstep-io/lockstep/raftfsm"
)

// backupOf reads a whole backup of a node.
func backupOf(t *testing.T, n *Node) []byte {
	t.Helper()
	r, complete, err := n.Backup()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil || !complete {
		t.Fatalf("complete: %v, %v", complete, err)
	}
	return b
}

// everyKind are commands that leave something of every kind in the state.
var everyKind = []string{
	"SET s v", "SET lease v PX 3600000", "APPEND raw x", "HSET h f v", "RPUSH l a b", "SADD m 1 2 x", "ZADD z 1.5 a -0 b",
	"PEXPIRE h 7200000",
}

// timeAtZero is a clock that shows the beginning of Unix time as the time of day.
type timeAtZero struct{ TimeSource }

func (timeAtZero) Wall() time.Time { return time.Unix(0, 0) }

// TestTokensOfARestoredCluster: its tokens are larger than all that the old cluster has given, also after the backup, because they begin
// above the time of day or above --tokens-above. The locks of the backup keep their tokens.
func TestTokensOfARestoredCluster(t *testing.T) {
	from := openNode(t, dataConfig(t, t.TempDir()))
	held := lines(t, from, "SET held a", "LOCK.TOKEN held")
	file := backupOf(t, from)
	last := lines(t, from, "SET later a", "LOCK.TOKEN later")
	closeNode(t, from)
	for _, above := range []int64{0, 4_000_000_000_000_000} {
		cfg := dataConfig(t, filepath.Join(t.TempDir(), "new"))
		if _, err := Restore(cfg, bytes.NewReader(file), above); err != nil {
			t.Fatal(err)
		}
		n := openNode(t, cfg)
		if got := "OK " + lines(t, n, "LOCK.TOKEN held"); got != held {
			t.Errorf("a lock of the backup has the token %s, and had %s", got, held)
		}
		next := lines(t, n, "SET new a", "LOCK.TOKEN new")
		if len(next) != len(last) || next <= last {
			t.Errorf("token %s after %s", next, last)
		}
		if above > 0 && next != "OK 4000000000000001" {
			t.Errorf("token %s with --tokens-above %d", next, above)
		}
		closeNode(t, n)
	}
}

// A new cluster that begins with a backup has the same state as the old one, and no lease is shorter.
func TestBackupAndRestore(t *testing.T) {
	from := openNode(t, dataConfig(t, t.TempDir()))
	for _, command := range everyKind {
		lines(t, from, command)
	}
	file := backupOf(t, from)
	_, hash, err := from.StateHash(nil)
	if err != nil {
		t.Fatal(err)
	}
	lines(t, from, "SET later v")
	closeNode(t, from)

	cfg := dataConfig(t, filepath.Join(t.TempDir(), "new"))
	cfg.ID = "other"
	cfg.Time = timeAtZero{cfg.Time} // so the tokens go on from those of the backup
	facts, err := Restore(cfg, bytes.NewReader(file), 0)
	if err != nil || facts.Node != "n1" || facts.Keys != 7 {
		t.Fatalf("%+v, %v", facts, err)
	}
	// What was restored is what was saved, byte for byte.
	dir := openStopped(t, &cfg)
	_, in, err := dir.Snapshots.Open(dir.Snapshots.Newest().ID)
	if err != nil {
		t.Fatal(err)
	}
	fsm := raftfsm.New(nil)
	if err := errors.Join(fsm.Restore(in, 1), in.Close()); err != nil {
		t.Fatal(err)
	}
	if got, err := fsm.Snapshot().Hash(); got != hash || err != nil {
		t.Errorf("state %s, %v; it was %s", got, err, hash)
	}
	dir.Close()

	cfg.Time = NewSystemTime()
	for start := range 2 {
		n := openNode(t, cfg)
		if got := lines(t, n, "GET s", "LRANGE l 0 -1", "ZCARD z", "HGET h f", "EXISTS later"); got != "v [a b] 2 v 0" {
			t.Errorf("start %d: %s", start, got)
		}
		if got := lines(t, n, "PTTL lease"); !strings.HasPrefix(got, "3") || len(got) != 7 {
			t.Errorf("start %d: the lease ends in %s ms", start, got)
		}
		if got := lines(t, n, "SET new v"); got != "OK" {
			t.Error(got)
		}
		if members, err := n.Members(); err != nil || len(members) != 1 || members[0].ID != "other" {
			t.Errorf("members %v, %v", members, err)
		}
		closeNode(t, n)
	}
	if _, err := Restore(cfg, bytes.NewReader(file), 0); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("into a directory that is in use: %v", err)
	}
}

// A backup that is not whole is refused before anything is made.
func TestDamagedBackupsAreRefused(t *testing.T) {
	n := openNode(t, dataConfig(t, t.TempDir()))
	for _, command := range everyKind {
		lines(t, n, command)
	}
	whole := backupOf(t, n)
	closeNode(t, n)
	dir := t.TempDir()
	cfg := dataConfig(t, filepath.Join(dir, "new"))
	refuse := func(what string, at int, b []byte) {
		t.Helper()
		_, err := Restore(cfg, bytes.NewReader(b), 0)
		if !errors.Is(err, raftfsm.ErrNotBackup) {
			t.Fatalf("%s %d: %v", what, at, err)
		}
		if list, err := os.ReadDir(dir); err != nil || len(list) > 0 {
			t.Fatalf("%s %d: something was made: %v, %v", what, at, list, err)
		}
	}
	for i := range len(whole) * 8 {
		b := bytes.Clone(whole)
		b[i/8] ^= 1 << (i % 8)
		refuse("bit", i, b)
	}
	for n := range whole {
		refuse("cut to", n, whole[:n])
	}
	refuse("a byte more", 0, append(bytes.Clone(whole), 0))
}

// Restore refuses a backup with so large an index that the log would run out of numbers, and makes nothing.
func TestIndexOfABackup(t *testing.T) {
	backup := func(index uint64) (cfg Config, err error) {
		var out bytes.Buffer
		if err := raftfsm.New(nil).Snapshot().WriteBackup(&out, raftfsm.BackupHead{Index: index, Node: "n1"}); err != nil {
			t.Fatal(err)
		}
		cfg = dataConfig(t, filepath.Join(t.TempDir(), "new"))
		_, err = Restore(cfg, bytes.NewReader(out.Bytes()), 0)
		return cfg, err
	}
	cfg, err := backup(1 << 61)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		n := openNode(t, cfg)
		if got := lines(t, n, "SET k v", "GET k"); got != "OK v" {
			t.Error(got)
		}
		closeNode(t, n)
	}
	if _, err = backup(1 << 62); !errors.Is(err, raftfsm.ErrImpossible) { // peers refuse such an index
		t.Error(err)
	}
	cfg, err = backup(math.MaxUint64)
	if !errors.Is(err, raftfsm.ErrImpossible) || !strings.Contains(err.Error(), "log index is 18446744073709551615") {
		t.Error(err)
	}
	if _, err := os.Lstat(cfg.Data); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something was made: %v", err)
	}
}

// When the power fails at any step of a restore, no node starts with a part of the backup, and restoring again succeeds.
func TestRestoreStoppedAtEveryStep(t *testing.T) {
	clustertest.Slow(t)
	n := openNode(t, dataConfig(t, t.TempDir()))
	lines(t, n, "SET s v")
	file := backupOf(t, n)
	closeNode(t, n)
	for at := 1; ; at++ {
		volume := t.TempDir()
		d := crashdisk.New(volume, at)
		cfg := dataConfig(t, volume)
		cfg.disk = d.As()
		_, err := Restore(cfg, bytes.NewReader(file), 0)
		if !d.Down() {
			if err != nil || at < 10 {
				t.Errorf("%d steps, %v", at, err)
			}
			return
		}
		step := d.Steps()[at-1]
		for _, o := range crashdisk.Outcomes {
			cfg := dataConfig(t, t.TempDir())
			if err := errors.Join(d.Image(cfg.Data, o), os.Mkdir(filepath.Join(cfg.Data, "lost+found"), 0o700)); err != nil {
				t.Fatal(err)
			}
			startsOnceRestored(t, cfg, file, fmt.Sprintf("stopped at step %d (%s), %s", at, step, o.Name))
		}
		cfg.disk = datadir.SystemDisk()
		startsOnceRestored(t, cfg, file, fmt.Sprintf("ended at step %d (%s)", at, step))
	}
}

func startsOnceRestored(t *testing.T, cfg Config, file []byte, after string) {
	t.Helper()
	_, err := os.Stat(filepath.Join(cfg.Data, "node.json"))
	again := err != nil
	if _, err := os.Stat(filepath.Join(cfg.Data, "RESTORING")); err == nil {
		again = true
		if _, err := Open(cfg); err == nil || !strings.Contains(err.Error(), "run lockstep restore again") {
			t.Fatalf("%s: a node starts: %v", after, err)
		}
	}
	if again {
		if _, err := Restore(cfg, bytes.NewReader(file), 0); err != nil {
			t.Fatalf("%s: %v", after, err)
		}
	}
	n := openNode(t, cfg)
	if got := lines(t, n, "GET s"); got != "v" {
		t.Errorf("%s: %q", after, got)
	}
	closeNode(t, n)
}

// Restore keeps an existing directory, which may be a mount point or a link's target, and all files that were there.
func TestRestoreInPlace(t *testing.T) {
	n := openNode(t, dataConfig(t, t.TempDir()))
	lines(t, n, "SET s v")
	file := backupOf(t, n)
	closeNode(t, n)
	base := t.TempDir()
	at := func(name string) string { return filepath.Join(base, name) }
	volume, link := at("volume"), at("link")
	err := errors.Join(os.MkdirAll(filepath.Join(volume, "lost+found"), 0o700), os.Symlink(volume, link),
		os.Mkdir(at("link.restoring"), 0o700), os.WriteFile(at("link.restoring/file"), []byte("precious"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	was, err := os.Stat(volume)
	if err != nil {
		t.Fatal(err)
	}
	cfg := dataConfig(t, link)

	// A restore that fails removes the files that it has written. A directory that had a file before the restore is refused, and
	// that file stays.
	cfg.disk = datadir.SystemDisk()
	cfg.disk.Stable = func(raft.StableStore) raft.StableStore { return brokenStable{} }
	if _, err := Restore(cfg, bytes.NewReader(file), 0); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a full disk: %v", err)
	}
	if list, err := os.ReadDir(volume); err != nil || len(list) != 2 {
		t.Errorf("a restore that failed has left %v, %v", list, err)
	}
	cfg.disk = datadir.SystemDisk()
	for _, mine := range []string{"file", "node.json", "RESTORING/file"} {
		path := filepath.Join(volume, mine)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("precious"), 0o600)); err != nil {
			t.Fatal(err)
		}
		_, err := Restore(cfg, bytes.NewReader(file), 0)
		if b, gone := os.ReadFile(path); err == nil || gone != nil || string(b) != "precious" {
			t.Errorf("with %s: %v; it is %q, %v", mine, err, b, gone)
		}
		if err := errors.Join(os.RemoveAll(path), os.RemoveAll(filepath.Join(volume, "RESTORING"))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Restore(cfg, bytes.NewReader(file), 0); err != nil {
		t.Fatal(err)
	}
	if is, err := os.Stat(volume); err != nil || !os.SameFile(was, is) {
		t.Errorf("the directory was replaced: %v", err)
	}
	if to, err := os.Readlink(link); err != nil || to != volume {
		t.Errorf("the link leads to %q, %v", to, err)
	}
	if b, err := os.ReadFile(at("link.restoring/file")); err != nil || string(b) != "precious" {
		t.Errorf("%q, %v", b, err)
	}
	n = openNode(t, cfg)
	if got := lines(t, n, "GET s"); got != "v" {
		t.Error(got)
	}
	closeNode(t, n)
}

// brokenStable is the store of the term and the vote on a full disk: it can write neither.
type brokenStable struct{ raft.StableStore }

func (brokenStable) Get([]byte) ([]byte, error)       { return nil, errors.New("not found") }
func (brokenStable) GetUint64([]byte) (uint64, error) { return 0, errors.New("not found") }
func (brokenStable) Set(_, _ []byte) error            { return syscall.ENOSPC }
func (brokenStable) SetUint64([]byte, uint64) error   { return syscall.ENOSPC }

// Any node can give a backup. The backup holds every write that any node had acknowledged before.
func TestBackupFromAFollower(t *testing.T) {
	c := startThree(t, func(cfg *Config) { cfg.FailoverWait = 2 * time.Second })
	c.start(0, 1, 2)
	on, other := c.leader(), c.follower()
	l := c.startLoad(0, 1, 2)
	for i := range 20 {
		c.expect(on, "OK", "SET mark "+strings.Repeat("x", i+1))
		var state bytes.Buffer
		if _, err := raftfsm.ReadBackup(bytes.NewReader(backupOf(t, c.nodes[other])), &state); err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(state.Bytes(), []byte(strings.Repeat("x", i+1))) {
			t.Errorf("round %d: the backup lacks what was acknowledged before", i)
		}
	}
	for reply, n := range l.end() {
		t.Errorf("%d replies %s", n, reply)
	}
	// Without a leader, a node gives a backup of what it knows, and says that the backup may be incomplete.
	c.stop((on + 1) % 3)
	c.stop((on + 2) % 3)
	n := c.nodes[on]
	c.until("the end of the term", func() bool { return !n.Reaches() })
	r, complete, err := n.Backup()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := raftfsm.ReadBackup(r, io.Discard); err != nil || complete {
		t.Errorf("alone: complete %v, %v", complete, err)
	}
	r.Close()
}

// The backup of a restarted node without a leader has the node's whole log, committed or not.
func TestBackupWithoutALeader(t *testing.T) {
	for name, snapshot := range map[string]bool{"from the log": false, "from a snapshot and the log": true} {
		t.Run(name, func(t *testing.T) {
			c := startThree(t, func(cfg *Config) { cfg.FailoverWait = 200 * ms })
			c.start(0, 1, 2)
			leader := c.leader()
			locks := func(from, to int) {
				for i := from; i < to; i++ {
					c.expect(leader, "OK", fmt.Sprintf("SET lock%d owner PX 3600000 NX", i))
				}
			}
			locks(0, 20)
			if snapshot {
				if err := c.nodes[leader].Snapshot(); err != nil {
					t.Fatal(err)
				}
				locks(20, 30)
			}
			want := c.do(leader, "DBSIZE")
			for i := range c.nodes {
				c.stop(i)
			}
			c.sinks[leader] = &notes{}
			c.cfg[leader].Sink = c.sinks[leader]
			n, err := Open(c.cfg[leader])
			if err != nil {
				t.Fatal(err)
			}
			c.nodes[leader] = n
			r, complete, err := n.Backup()
			if err != nil || complete {
				t.Fatalf("complete: %v, %v", complete, err)
			}
			defer r.Close()
			file, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			facts, err := raftfsm.ReadBackup(bytes.NewReader(file), io.Discard)
			if err != nil || fmt.Sprint(facts.Keys) != want {
				t.Errorf("the backup has %d keys of %s, %v", facts.Keys, want, err)
			}
		})
	}
}

// Restore refuses a peer address that means every address of the machine, because other members could never reach it.
func TestRestoreForEveryAddress(t *testing.T) {
	cfg := Default()
	cfg.Data, cfg.PeerListen = filepath.Join(t.TempDir(), "data"), "0.0.0.0:7379"
	if _, err := Restore(cfg, nil, 0); err == nil || !strings.Contains(err.Error(), "--peer-advertise") {
		t.Errorf("got %v", err)
	}
}
