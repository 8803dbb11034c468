package cluster

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// slowSnapshots is a disk to which no snapshot is written fast.
type slowSnapshots struct {
	systemFiles
	began *atomic.Int32
}

func (s slowSnapshots) Create(path string) (file, error) {
	if filepath.Base(path) == stateFile {
		s.began.Add(1)
		time.Sleep(time.Second)
	}
	return s.systemFiles.Create(path)
}

// What comes after a snapshot stays while a node is sent it and shortly after, and no longer if that node hangs.
func TestLogStaysWhileASnapshotIsRead(t *testing.T) {
	s, err := openSnapshots(t.TempDir(), systemDisk(), raftLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	var now time.Duration
	s.clock = func() time.Duration { return now }
	keepSnapshot(t, s, 10, 1)
	_, r, err := s.Open(s.newest().ID)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for i := range uint64(5) {
		keepSnapshot(t, s, 20+i, 1)
	}
	for range 3 {
		if got := s.covered(); got != 9 {
			t.Errorf("while it is read, the log may go up to %d, want 9", got)
		}
		if _, err := r.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		now += afterRead
	}
	now++
	if got := s.covered(); got != 23 {
		t.Errorf("when it has not been read for long, the log may go up to %d, want 23", got)
	}
}

// A follower that needs a snapshot gets in, however many its leader takes while it installs one: at the quota of its
// data directory that is one after the other.
func TestFollowerIsNotOutrunBySnapshots(t *testing.T) {
	var began atomic.Int32
	c := startThree(t, func(cfg *Config) {
		cfg.TrailingLogs = 1
		if cfg.ID == "n3" {
			cfg.disk.files = slowSnapshots{began: &began}
		}
	})
	c.start(0, 1, 2)
	leader := c.leader()
	if leader == 2 {
		if err := c.nodes[2].Transfer("n1"); err != nil {
			t.Fatal(err)
		}
		c.until("n1 leads", func() bool { leader = c.leader(); return leader != 2 })
	}
	c.stop(2)
	n := 0
	shorten := func() {
		for range 5 {
			n++
			c.expect(leader, "OK", fmt.Sprintf("SET last %d", n))
		}
		if err := c.nodes[leader].Snapshot(); err != nil {
			t.Fatal(err)
		}
	}
	for range snapshotsKept + 1 {
		shorten()
	}
	began.Store(0)
	c.start(2)
	reached := c.nodes[2].cons.(*raftLog)
	c.until("the follower has what the leader had", func() bool {
		had := c.nodes[leader].cons.(*raftLog).raft.LastIndex()
		shorten()
		time.Sleep(200 * ms)
		return reached.raft.AppliedIndex() >= had
	})
	if got := began.Load(); got == 0 || got > 2 {
		t.Errorf("it was sent %d snapshots", got)
	}
}
