package datadir

import (
	"errors"
	"log/slog"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// narrowDisk has two limits: room bounds what can be reserved at once, and free is the free space that the disk reports.
type narrowDisk struct {
	fullDisk
	room, free int64
}

func (d *narrowDisk) Create(path string) (File, error) {
	f, err := d.fullDisk.Create(path)
	return narrowFile{f, d}, err
}

func (d *narrowDisk) Open(path string) (File, error) {
	f, err := d.fullDisk.Open(path)
	return narrowFile{f, d}, err
}

func (d *narrowDisk) Free(string) (int64, error) { return d.free, nil }

type narrowFile struct {
	File
	d *narrowDisk
}

func (f narrowFile) Reserve(from, length int64, fill bool) error {
	if length > f.d.room {
		return syscall.ENOSPC
	}
	return f.File.Reserve(from, length, fill)
}

// newNarrowLog returns a log on a disk that has room for 2 MB at once and 64 MB in all.
func newNarrowLog(t *testing.T) (*fullLog, *narrowDisk) {
	t.Helper()
	l := newFullLog(t)
	l.st.Close()
	d := &narrowDisk{room: 2 << 20, free: 64 << 20}
	on := l.disk.disk()
	on.Files = d
	var err error
	l.st, err = Open(l.dir, Options{Disk: on, ID: "n1", LogStore: LogWAL, Lines: hclog.NewNullLogger(),
		Hooks: Hooks{Logger: slog.New(slog.NewTextHandler(&l.said, nil)), Fatal: func(err error) { l.fatal = err }}})
	l.must(err)
	return l, d
}

// If another entry takes the place of one that did not fit, the trouble ends. Room still stays below the size of that one.
func TestTroubleEndsWithAnotherEntry(t *testing.T) {
	l, d := newNarrowLog(t)
	long := &raft.Log{Index: 12, Term: 1, Data: make([]byte, 3<<20)}
	batch := []*raft.Log{{Index: 11, Term: 1, Data: make([]byte, 300)}, long}
	if err := l.st.Log.StoreLogs(batch); !errors.Is(err, ErrNoRoom) {
		t.Fatalf("a long entry: %v", err)
	}
	l.must(l.append(11, 11))
	if l.st.Log.Probe(); l.st.Log.Trouble() == "" || l.st.Log.Stuck() != 12 {
		t.Errorf("the entry before ended the trouble; it is stuck at %d", l.st.Log.Stuck())
	}
	l.must(l.append(12, 12))
	if why := l.st.Log.Trouble(); why != "" || l.st.Log.Stuck() != 0 {
		t.Errorf("another entry is in its place: %q", why)
	}
	if room, want := l.st.Log.Room(), sizeOf(batch)-1; room != want {
		t.Errorf("room for %d bytes, want %d", room, want)
	}
	d.room = 4 << 20
	if l.st.Log.Probe(); l.st.Log.Room() != d.free-roomKept {
		t.Errorf("with room: room for %d bytes", l.st.Log.Room())
	}
	if n := strings.Count(l.said.String(), "The log can be written again"); n != 1 {
		t.Errorf("said %d times", n)
	}
	l.reaches(12)
}

// TestTroubleOfAFullDisk: if the disk has no room for short entries either, no other entry ends the trouble.
func TestTroubleOfAFullDisk(t *testing.T) {
	l, d := newNarrowLog(t)
	d.room = 0
	if err := l.long(11); !errors.Is(err, ErrNoRoom) {
		t.Fatalf("a long entry: %v", err)
	}
	l.must(l.append(11, 11))
	if l.st.Log.Probe(); l.st.Log.Trouble() == "" {
		t.Error("the trouble ended")
	}
	d.room = roomKept
	if l.st.Log.Probe(); l.st.Log.Trouble() != "" {
		t.Error("the trouble goes on with room for short entries")
	}
}

// TestSnapshotsLeaveRoomForTheLog: a snapshot that would fill the disk is given up before it does.
func TestSnapshotsLeaveRoomForTheLog(t *testing.T) {
	l, d := newNarrowLog(t)
	create := func() (raft.SnapshotSink, error) {
		return l.st.Snapshots.Create(1, 5, 1, raft.Configuration{}, 1, nil)
	}
	sink, err := create()
	l.must(err)
	piece := make([]byte, syncBytes)
	_, err = sink.Write(piece)
	l.must(err)
	d.free = roomKept + syncBytes - 1
	if _, err := sink.Write(piece); !errors.Is(err, ErrNoRoom) {
		t.Errorf("a snapshot goes on: %v", err)
	}
	l.must(sink.Cancel())
	if _, err := create(); !errors.Is(err, ErrNoRoom) {
		t.Errorf("a snapshot begins: %v", err)
	}
}
