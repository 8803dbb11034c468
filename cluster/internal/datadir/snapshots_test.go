package datadir

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/lockstep-io/lockstep/raftfsm"
)

// While a snapshot is sent, and for afterRead after its last read, the log keeps the entries behind the snapshot.
func TestLogStaysWhileASnapshotIsRead(t *testing.T) {
	s, err := openSnapshots(t.TempDir(), SystemDisk(), hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	var now time.Duration
	s.clock = func() time.Duration { return now }
	keepSnapshot(t, s, 10, 1)
	_, r, err := s.Open(s.Newest().ID)
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

// failingDir is a disk on which one or two things fail: to sync the directory dir, and to rename a snapshot to an unfinished name.
type failingDir struct {
	Files
	dir           string
	sync, renames bool
}

func (f *failingDir) SyncDir(path string) error {
	if f.sync && path == f.dir {
		return syscall.EIO
	}
	return f.Files.SyncDir(path)
}

func (f *failingDir) Rename(from, to string) error {
	if f.renames && filepath.Ext(to) == unfinished {
		return syscall.EIO
	}
	return f.Files.Rename(from, to)
}

// Snapshots that could not be finished, or not be deleted, are gone when the disk works again.
func TestNoSnapshotIsLeftOver(t *testing.T) {
	for name, broken := range map[string]failingDir{"sync": {sync: true}, "renames": {renames: true}, "both": {sync: true, renames: true}} {
		base := t.TempDir()
		disk := broken
		disk.Files, disk.dir = SystemDisk().Files, filepath.Join(base, snapshotDir)
		s, err := openSnapshots(base, &disk, hclog.NewNullLogger())
		if err != nil {
			t.Fatal(err)
		}
		for i := range 10 {
			if i == 9 {
				disk.sync, disk.renames = false, false
			}
			sink, err := s.Create(1, uint64(10+i), 1, raft.Configuration{}, 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := raftfsm.New(nil).Snapshot().Encode(sink); err != nil {
				t.Fatal(err)
			}
			if err := sink.Close(); (err != nil) != disk.sync {
				t.Errorf("%s, snapshot %d: %v", name, i, err)
			}
		}
		known, err := s.List()
		if err != nil {
			t.Fatal(err)
		}
		if list, err := os.ReadDir(disk.dir); err != nil || len(list) != len(known) || len(s.spoiled) > 0 {
			t.Errorf("%s: there are %v, %v; %d are known, %v shall go", name, list, err, len(known), s.spoiled)
		}
	}
}
