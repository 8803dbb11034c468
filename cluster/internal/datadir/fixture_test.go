package datadir

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/lockstep-io/lockstep/raftfsm"
)

const ms = time.Millisecond

// sector is the number of bytes that a disk writes as a whole.
const sector = 512

// openOn opens a directory of node n1 on a disk.
func openOn(d Disk, dir string) (*Dir, error) {
	return Open(dir, Options{Disk: d, ID: "n1", LogStore: LogWAL, Lines: hclog.NewNullLogger()})
}

// openDir opens a directory of node n1.
func openDir(dir, logStore string) (*Dir, error) {
	return Open(dir, Options{Disk: SystemDisk(), ID: "n1", LogStore: logStore, Lines: hclog.NewNullLogger()})
}

// mustNotOpen checks that a directory is refused with one line, and that it is unlocked after that.
func mustNotOpen(t *testing.T, dir string, want ...string) {
	t.Helper()
	d, err := openDir(dir, "")
	if err == nil {
		d.Close()
		t.Fatal("the directory is used")
	}
	for _, w := range append(want, dir) {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not say %q: %v", w, err)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("more than one line: %v", err)
	}
	again, err := acquire(dir)
	if err != nil {
		t.Errorf("still locked: %v", err)
	}
	again.Close()
}

func overwrite(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

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

// unsyncedFiles are the machine's files, which are never synced, so that tests need not wait for the disk.
type unsyncedFiles struct{ systemFiles }

func (f unsyncedFiles) Create(path string) (File, error) { return unsynced(f.systemFiles.Create(path)) }
func (f unsyncedFiles) Open(path string) (File, error)   { return unsynced(f.systemFiles.Open(path)) }
func (unsyncedFiles) SyncDir(string) error               { return nil }

type unsyncedFile struct{ File }

func (unsyncedFile) Sync() error     { return nil }
func (unsyncedFile) SyncData() error { return nil }

func unsynced(f File, err error) (File, error) { return unsyncedFile{f}, err }

// newestSnapshot returns the path of the newest snapshot in a directory.
func newestSnapshot(dir string, s *Snapshots) string {
	return filepath.Join(dir, snapshotDir, s.Newest().ID)
}

// smallSegments returns the machine's disk, with segments so small that a log has many files.
func smallSegments() Disk {
	d := SystemDisk()
	d.SegmentSize = 8 << 10
	return d
}

func openTestLog(t *testing.T, dir string, isNew bool) *Log {
	t.Helper()
	logs := hclog.NewNullLogger()
	w, err := openWAL(SystemDisk(), filepath.Join(dir, walDir), 0, logs)
	if err != nil {
		t.Fatal(err)
	}
	snaps, err := openSnapshots(dir, SystemDisk(), logs)
	if err != nil {
		t.Fatal(err)
	}
	g, err := openGuarded(SystemDisk(), w, filepath.Join(dir, markFile), isNew, snaps)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func entries(first, last uint64) (logs []*raft.Log) {
	for i := first; i <= last; i++ {
		logs = append(logs, &raft.Log{Index: i, Term: 1, Data: []byte{byte(i)}})
	}
	return logs
}

// keepSnapshot puts a small snapshot into a store.
func keepSnapshot(t *testing.T, s *Snapshots, index, term uint64) {
	t.Helper()
	if err := writeSnapshot(s, index, term); err != nil {
		t.Fatal(err)
	}
}

// writeSnapshot writes a snapshot in pieces.
func writeSnapshot(s *Snapshots, index, term uint64) error {
	sink, err := s.Create(1, index, term, raft.Configuration{Servers: []raft.Server{{ID: "n1", Address: "n1.test:1"}}}, 1, nil)
	if err != nil {
		return err
	}
	sink.(*snapshotSink).own = true // so it is kept whatever the log holds
	var b bytes.Buffer
	if err := raftfsm.New(nil).Snapshot().Encode(&b); err != nil {
		return err
	}
	for piece := range slices.Chunk(b.Bytes(), 7) {
		if _, err := sink.Write(piece); err != nil {
			return errors.Join(err, sink.Cancel())
		}
	}
	return sink.Close()
}
