package datadir

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/hashicorp/raft-wal/types"

	"github.com/lockstep-io/lockstep/cluster/internal/clustertest"
)

// fullDisk is the machine's disk, with segments so small that a log has many files. The test says when the disk has no room.
type fullDisk struct {
	systemFiles
	full     bool // no file gets room
	listFull bool // the list of segments gets no room
	dead     bool // nothing can be opened
	broken   bool // nothing can be read
	failing  bool // no segment can be written
}

func (d *fullDisk) disk() Disk {
	on := smallSegments()
	on.Files = d
	on.Meta = func(m types.MetaStore) types.MetaStore { return fullMeta{m, d} }
	return on
}

func (d *fullDisk) Create(path string) (File, error) {
	f, err := d.systemFiles.Create(path)
	return fullFile{f, d, path}, err
}

func (d *fullDisk) Open(path string) (File, error) {
	if d.dead {
		return nil, &os.PathError{Op: "open", Path: path, Err: syscall.EIO}
	}
	f, err := d.systemFiles.Open(path)
	return fullFile{f, d, path}, err
}

type fullFile struct {
	File
	d    *fullDisk
	path string
}

func (f fullFile) Reserve(from, length int64, fill bool) error {
	if f.d.full {
		return os.NewSyscallError("fallocate", syscall.ENOSPC)
	}
	return f.File.Reserve(from, length, fill)
}

func (f fullFile) ReadAt(p []byte, at int64) (int, error) {
	if f.d.broken {
		return 0, syscall.EIO
	}
	return f.File.ReadAt(p, at)
}

func (f fullFile) WriteAt(p []byte, at int64) (int, error) {
	if f.d.failing && strings.HasSuffix(f.path, ".wal") {
		return 0, syscall.EIO
	}
	return f.File.WriteAt(p, at)
}

// Write is called for files that are replaced as a whole. It fails if the disk is full.
func (f fullFile) Write(p []byte) (int, error) {
	if f.d.full {
		return 0, syscall.ENOSPC
	}
	return f.File.Write(p)
}

type fullMeta struct {
	types.MetaStore
	d *fullDisk
}

func (m fullMeta) CommitState(s types.PersistentState) error {
	if m.d.listFull {
		return fmt.Errorf("file resize error: %s", syscall.ENOSPC) // as bbolt says it
	}
	return m.MetaStore.CommitState(s)
}

// fullLog is a log on a disk that is full at times.
type fullLog struct {
	t     *testing.T
	dir   string
	disk  *fullDisk
	st    *Dir
	said  strings.Builder
	fatal error
}

func newFullLog(t *testing.T) *fullLog {
	t.Helper()
	l := &fullLog{t: t, dir: filepath.Join(t.TempDir(), "data"), disk: &fullDisk{}}
	l.must(l.open())
	l.must(l.append(1, 10))
	l.must(l.st.Finish("", false))
	t.Cleanup(func() { l.st.Close() })
	return l
}

func (l *fullLog) open() (err error) {
	l.st, err = Open(l.dir, Options{Disk: l.disk.disk(), ID: "n1", LogStore: LogWAL, Lines: hclog.NewNullLogger(),
		Hooks: Hooks{Logger: slog.New(slog.NewTextHandler(&l.said, nil)), Fatal: func(err error) { l.fatal = err }}})
	if err == nil {
		l.fatal = nil
	}
	return err
}

func (l *fullLog) reopen() {
	l.t.Helper()
	l.st.Close()
	l.must(l.open())
}

func (l *fullLog) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

// append stores entries of 300 bytes, one at a time.
func (l *fullLog) append(first, last uint64) error {
	for i := first; i <= last; i++ {
		if err := l.st.Log.StoreLog(&raft.Log{Index: i, Term: 1, Data: make([]byte, 300)}); err != nil {
			return err
		}
	}
	return nil
}

// reaches checks that the log has all entries up to last on the disk, and no more.
func (l *fullLog) reaches(last uint64) {
	l.t.Helper()
	l.st.Log.recent.forget()
	if high, err := l.st.Log.LastIndex(); err != nil || high != last {
		l.t.Errorf("the log ends at entry %d, %v; want %d", high, err, last)
	}
	for i := uint64(1); i <= last; i++ {
		var e raft.Log
		if err := l.st.Log.GetLog(i, &e); err != nil || e.Index != i || len(e.Data) != 300 {
			l.t.Fatalf("entry %d: %+v, %v", i, e, err)
		}
	}
}

// If there is no room for the log's next segment, the log accepts no entry, and says so. It goes on
// when there is room.
func TestFullDiskAtTheEndOfASegment(t *testing.T) {
	l := newFullLog(t)
	l.disk.full = true
	stored := uint64(10)
	var err error
	for range 100 {
		if err = l.append(stored+1, stored+1); err != nil {
			break
		}
		stored++
	}
	if !errors.Is(err, ErrNoRoom) || l.fatal != nil {
		t.Fatalf("after entry %d: %v, fatal %v", stored, err, l.fatal)
	}
	for range 3 { // Raft tries again
		if err := l.append(stored+1, stored+1); !errors.Is(err, ErrNoRoom) {
			t.Fatalf("again: %v", err)
		}
	}
	l.reaches(stored)
	if why := l.st.Log.Trouble(); !strings.Contains(why, syscall.ENOSPC.Error()) {
		t.Errorf("the node says of itself: %q", why)
	}
	if n := strings.Count(l.said.String(), "disk is full"); n != 1 {
		t.Errorf("said %d times: %s", n, &l.said)
	}
	l.disk.full = false
	l.must(l.append(stored+1, stored+50))
	if why := l.st.Log.Trouble(); why != "" {
		t.Errorf("with room: %q", why)
	}
	l.reopen()
	l.reaches(stored + 50)
}

// A segment takes room for entries before they come. On a full disk, the log goes on until this room is used up.
func TestRoomIsTakenAhead(t *testing.T) {
	clustertest.Slow(t)
	for _, size := range []int{300, roomStep / 5, 2*roomStep + 1} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			on := &fullDisk{}
			d := on.disk()
			d.SegmentSize = segmentSize
			dir := t.TempDir()
			open := func(isNew bool) *Log {
				wal, err := openWAL(d, filepath.Join(dir, walDir), 0, hclog.NewNullLogger())
				if err != nil {
					t.Fatal(err)
				}
				g, err := openGuarded(d.Files, wal, filepath.Join(dir, markFile), isNew, &Snapshots{})
				if err != nil {
					t.Fatal(err)
				}
				return g
			}
			g := open(true)
			last := uint64(0)
			store := func() error {
				l := &raft.Log{Index: last + 1, Term: 1, Data: bytes.Repeat([]byte{byte(last + 1)}, size)}
				err := g.StoreLogs([]*raft.Log{l})
				if err == nil {
					last++
				}
				return err
			}
			written := int64(0)
			for range 3 * roomStep / size * 8 {
				if err := store(); err != nil {
					t.Fatal(err)
				}
				written += int64(size + EntryOverhead)
				if room := g.room(); room < int64(size+EntryOverhead) && written < segmentSize/2 {
					t.Fatalf("after entry %d: room for %d bytes", last, room)
				}
			}
			on.full = true
			before := last
			for {
				err := store()
				if err == nil {
					continue
				}
				if !errors.Is(err, ErrNoRoom) {
					t.Fatal(err)
				}
				break
			}
			if last == before {
				t.Error("on a full disk there was no room for one entry")
			}
			if g.Close(); t.Failed() {
				return
			}
			on.full = false
			g = open(false)
			defer func() { g.Close() }()
			for i := uint64(1); i <= last; i++ {
				var l raft.Log
				if err := g.Read(i, &l); err != nil || len(l.Data) != size || l.Data[size-1] != byte(i) {
					t.Fatalf("entry %d of %d: %d bytes, %v", i, last, len(l.Data), err)
				}
			}
			if err := store(); err != nil {
				t.Errorf("with room again: %v", err)
			}
		})
	}
}

// If there is no room to go on after a cut, nothing is cut.
func TestFullDiskWhenTheLogIsCut(t *testing.T) {
	l := newFullLog(t)
	l.must(l.append(11, 100))
	l.disk.full = true
	for range 3 {
		if err := l.st.Log.DeleteRange(60, 100); !errors.Is(err, ErrNoRoom) || l.fatal != nil {
			t.Fatalf("%v, fatal %v", err, l.fatal)
		}
		l.reaches(100)
	}
	l.disk.full = false
	l.must(l.st.Log.DeleteRange(60, 100))
	// Entries that had room before the cut have room now.
	l.disk.full = true
	l.must(l.append(60, 70))
	l.disk.full = false
	l.must(l.append(71, 120))
	l.reopen()
	l.reaches(120)
}

// If the first append after a cut fails, the process ends, because Raft does not notice that the log is shorter.
func TestFullDiskAfterACut(t *testing.T) {
	l := newFullLog(t)
	l.must(l.append(11, 100))
	l.must(l.st.Log.DeleteRange(60, 100))
	l.disk.full = true
	huge := &raft.Log{Index: 60, Term: 2, Data: make([]byte, 2*roomStep)}
	if err := l.st.Log.StoreLog(huge); err == nil || l.fatal == nil || !strings.Contains(l.fatal.Error(), "free or repair the disk") {
		t.Fatalf("%v, fatal %v", err, l.fatal)
	}
	l.disk.full = false
	if err := l.append(60, 60); err == nil {
		t.Error("it went on")
	}
	l.reopen()
	l.reaches(59)
	l.must(l.append(60, 90))
	l.reaches(90)
}

// If a cut cannot write a segment's new end, the process ends before raft-wal notes that end. The next start finds the log uncut.
func TestDiskFailsWhenTheLogIsCut(t *testing.T) {
	l := newFullLog(t)
	l.must(l.append(11, 110))
	l.disk.failing = true
	if err := l.st.Log.DeleteRange(105, 110); err == nil || l.fatal == nil {
		t.Fatalf("%v, fatal %v", err, l.fatal)
	}
	l.disk.failing = false
	if err := l.st.Log.DeleteRange(105, 110); err == nil {
		t.Error("it went on")
	}
	l.reopen()
	l.reaches(110)
	l.must(l.st.Log.DeleteRange(105, 110))
	l.must(l.append(105, 120))
	l.reopen()
	l.reaches(120)
}

// raft-wal closes a full segment after it has answered the write. If that fails, the next start closes the segment.
func TestFullDiskWhenASegmentIsClosed(t *testing.T) {
	l := newFullLog(t)
	l.disk.listFull = true
	stored := uint64(10)
	for range 100 {
		if l.append(stored+1, stored+1) != nil {
			break
		}
		stored++
	}
	if l.fatal == nil || !strings.Contains(l.fatal.Error(), syscall.ENOSPC.Error()) {
		t.Fatalf("after entry %d: %v", stored, l.fatal)
	}
	l.st.Close()
	if err := l.open(); err == nil || !strings.Contains(err.Error(), "disk is full") || strings.Contains(err.Error(), "damaged") {
		t.Errorf("a start with a full disk: %v", err)
	}
	l.disk.listFull = false
	l.must(l.open())
	l.must(l.append(stored+1, stored+50))
	l.reopen()
	l.reaches(stored + 50)
}

// An entry that cannot be read ends the process with an error that says so; a missing entry does not.
func TestLogThatCannotBeRead(t *testing.T) {
	l := newFullLog(t)
	var e raft.Log
	if err := l.st.Log.GetLog(99, &e); !errors.Is(err, raft.ErrLogNotFound) || l.fatal != nil {
		t.Fatalf("an entry that is not there: %v, fatal %v", err, l.fatal)
	}
	l.reopen() // so that no entry is in memory
	l.disk.broken = true
	if err := l.st.Log.GetLog(9, &e); err == nil || l.fatal == nil || !strings.Contains(l.fatal.Error(), "repair the disk") {
		t.Errorf("%v, fatal %v", err, l.fatal)
	}
}

// A heartbeat that is still answered while its node stops reads a log that has been closed.
// That is no damage.
func TestLogThatHasBeenClosed(t *testing.T) {
	l := newFullLog(t)
	l.reopen() // so that no entry is in memory
	l.st.Close()
	var e raft.Log
	if err := l.st.Log.GetLog(9, &e); err == nil || l.fatal != nil {
		t.Errorf("%v, fatal %v", err, l.fatal)
	}
}

// A start on a full disk says that it is full, does no harm, and works when
// there is room.
func TestStartOnAFullDisk(t *testing.T) {
	l := newFullLog(t)
	l.must(l.append(11, 100))
	l.st.Close()
	l.disk.full = true
	err := l.open()
	if err == nil || !strings.Contains(err.Error(), "disk is full") || !strings.Contains(err.Error(), "make room") {
		t.Fatalf("%v", err)
	}
	for _, wrong := range []string{"damaged", "backup", "remove this node"} {
		if strings.Contains(err.Error(), wrong) {
			t.Errorf("a full disk is called %s: %v", wrong, err)
		}
	}
	l.disk.full = false
	l.must(l.open())
	l.reaches(100)
}

// A start on a disk that does not work says so.
func TestStartOnABrokenDisk(t *testing.T) {
	l := newFullLog(t)
	l.st.Close()
	l.disk.dead = true
	if err := l.open(); err == nil || !strings.Contains(err.Error(), "disk does not work") || strings.Contains(err.Error(), "damaged") {
		t.Errorf("%v", err)
	}
	l.disk.dead = false
	l.must(l.open())
	l.reaches(10)
}

// A log that is cut back again and again stays small.
func TestCutsLeaveLittleBehind(t *testing.T) {
	dir := t.TempDir()
	g := openTestLog(t, dir, true)
	defer g.Close()
	if err := g.StoreLogs(entries(1, 5)); err != nil {
		t.Fatal(err)
	}
	const cuts = 20
	for range cuts {
		if err := errors.Join(g.StoreLogs(entries(6, 9)), g.DeleteRange(6, 9)); err != nil {
			t.Fatal(err)
		}
	}
	size := int64(0)
	list, err := os.ReadDir(filepath.Join(dir, walDir))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if info, err := e.Info(); err == nil {
			size += info.Size()
		}
	}
	if most := int64(cuts+2) * roomStep; size > most {
		t.Errorf("%d bytes in %d files after %d cuts, want %d at most", size, len(list), cuts, most)
	}
}

// An entry may be longer than a segment, and others come after it.
func TestEntryLongerThanASegment(t *testing.T) {
	dir := t.TempDir()
	g := openTestLog(t, dir, true)
	defer func() { g.Close() }()
	const size = 63 << 20
	data := make([]byte, size)
	data[0], data[size-1] = 1, 2
	if err := errors.Join(g.StoreLogs([]*raft.Log{{Index: 1, Term: 1, Data: data}}), g.StoreLogs(entries(2, 9)), g.Close()); err != nil {
		t.Fatal(err)
	}
	g = openTestLog(t, dir, false)
	var l raft.Log
	if err := g.Read(1, &l); err != nil || len(l.Data) != size || l.Data[0] != 1 || l.Data[size-1] != 2 {
		t.Errorf("%d bytes, %v", len(l.Data), err)
	}
	if err := g.GetLog(9, &l); err != nil || l.Index != 9 {
		t.Errorf("behind it: %+v, %v", l, err)
	}
}

// If a leader has no room for a change of the members, the process ends, because Raft goes on with the change.
func TestFullDiskWhenTheMembersChange(t *testing.T) {
	l := newFullLog(t)
	leads := false
	l.st.Log.hooks.Leads = func() bool { return leads }
	l.disk.full = true
	change := &raft.Log{Index: 11, Term: 1, Type: raft.LogConfiguration, Data: make([]byte, 2*roomStep)}
	if err := l.st.Log.StoreLog(change); !errors.Is(err, ErrNoRoom) || l.fatal != nil {
		t.Fatalf("a follower: %v, fatal %v", err, l.fatal)
	}
	leads = true
	if err := l.st.Log.StoreLog(change); err == nil || l.fatal == nil || !strings.Contains(l.fatal.Error(), "free or repair the disk") {
		t.Fatalf("a leader: %v, fatal %v", err, l.fatal)
	}
	l.disk.full = false
	l.reopen()
	l.reaches(10)
}
