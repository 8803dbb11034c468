package datadir

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/lockstep-io/lockstep/cluster/internal/clustertest"
)

// lengths are lengths of entries: those at which the log begins to treat entries differently, and some others.
var lengths = []int{
	0, 1, 300, 4096, fillLimit - 100, fillLimit - 1, fillLimit, fillLimit + 1,
	roomStep - 60, roomStep - 1, roomStep, roomStep + 1, 700_000, recentLimit - 1, recentLimit, recentLimit + 1,
}

// someData returns the data of the entry at an index. It differs from entry to entry, but is the same at each call.
func someData(index uint64, size int) []byte {
	b := make([]byte, size)
	rand.New(rand.NewSource(int64(index))).Read(b)
	return b
}

// sizedLog is a log with entries of many lengths.
type sizedLog struct {
	t     *testing.T
	disk  Disk
	dir   string
	rnd   *rand.Rand
	log   *Log
	sizes []int // by index
	fatal error
}

func newSizedLog(t *testing.T, d Disk, seed int64) *sizedLog {
	l := &sizedLog{t: t, disk: d, dir: t.TempDir(), rnd: rand.New(rand.NewSource(seed)), sizes: []int{0}}
	l.open(true)
	t.Cleanup(func() { l.log.Close() })
	return l
}

func (l *sizedLog) open(isNew bool) {
	l.t.Helper()
	wal, err := openWAL(l.disk, filepath.Join(l.dir, walDir), l.last(), hclog.NewNullLogger())
	if err != nil {
		l.t.Fatal(err)
	}
	g, err := openGuarded(l.disk.Files, wal, filepath.Join(l.dir, markFile), isNew, &Snapshots{})
	if err != nil {
		l.t.Fatal(err)
	}
	l.log = g
	l.log.hooks = Hooks{Logger: slog.New(slog.DiscardHandler), Fatal: func(err error) { l.fatal = err }}
}

func (l *sizedLog) last() uint64 { return uint64(len(l.sizes) - 1) }

// next returns new entries, no more of them than the parameter most. It draws their lengths from the parameter among.
func (l *sizedLog) next(most int, among []int) (logs []*raft.Log) {
	for i := range uint64(1 + l.rnd.Intn(most)) {
		index := l.last() + 1 + i
		logs = append(logs, &raft.Log{Index: index, Term: 1, Data: someData(index, among[l.rnd.Intn(len(among))])})
	}
	return logs
}

func (l *sizedLog) store(logs []*raft.Log) error {
	err := l.log.StoreLogs(logs)
	if err == nil {
		for _, e := range logs {
			l.sizes = append(l.sizes, len(e.Data))
		}
	}
	return err
}

// holds checks what is on the disk.
func (l *sizedLog) holds() {
	l.t.Helper()
	for i := uint64(1); i <= l.last(); i++ {
		var e raft.Log
		if err := l.log.logStore.GetLog(i, &e); err != nil || !bytes.Equal(e.Data, someData(i, l.sizes[i])) {
			l.t.Fatalf("entry %d of %d: %d bytes, want %d; %v", i, l.last(), len(e.Data), l.sizes[i], err)
		}
	}
}

// Whenever a leader's disk is full, entries that the log has accepted find room, and refused entries may be stored later.
func TestLeadersDiskFull(t *testing.T) {
	taken, refused := uint64(0), 0
	for seed := range int64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			on := &fullDisk{}
			d := SystemDisk()
			d.Files = on
			l := newSizedLog(t, d, seed)
			leads(l.log)
			among := lengths[:1+l.rnd.Intn(len(lengths))]
			for range 40 {
				if err := l.log.async.drain(); err != nil { // the disk looks whether it is full
					t.Fatal(err)
				}
				on.full = l.rnd.Intn(3) == 0
				logs := l.next(4, among)
				err := l.store(logs)
				if errors.Is(err, ErrNoRoom) {
					refused++
					on.full = false
					err = l.store(logs)
				}
				if err := errors.Join(err, l.log.async.drain(), l.fatal); err != nil {
					t.Fatalf("after entry %d: %v", l.last(), err)
				}
			}
			taken += l.log.async.taken
			on.full = false
			if err := l.log.Close(); err != nil {
				t.Fatal(err)
			}
			l.open(false)
			l.holds()
		})
	}
	if taken == 0 || refused == 0 {
		t.Errorf("%d entries were taken unwritten, %d refused", taken, refused)
	}
}

// After a power failure in a long write, of which any sectors may be missing, nothing else is missing, and the log goes on.
func TestPowerFailsInALongWrite(t *testing.T) {
	clustertest.Slow(t)
	whole, none := 0, 0
	for seed := range int64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			l := newSizedLog(t, SystemDisk(), seed)
			more := func() {
				if err := l.store(l.next(3, lengths)); err != nil {
					t.Fatal(err)
				}
			}
			for range 1 + l.rnd.Intn(4) {
				more()
			}
			before, sure := l.segment(), l.last()
			more()
			if err := l.log.Close(); err != nil {
				t.Fatal(err)
			}
			torn := l.segment()
			missing := [](func(at int) bool){
				func(int) bool { return l.rnd.Intn(2) == 0 },
				func(int) bool { return l.rnd.Intn(300) == 0 },
				func() func(int) bool { end := l.rnd.Intn(len(torn)); return func(at int) bool { return at >= end } }(),
			}[l.rnd.Intn(3)]
			for at := 0; at < len(torn); at += sector {
				if missing(at) {
					was := torn[at:min(at+sector, len(torn))]
					clear(was[copy(was, before[min(at, len(before)):]):])
				}
			}
			if err := errors.Join(os.WriteFile(l.path(), torn, 0o600), os.WriteFile(filepath.Join(l.dir, markFile), mark{last: sure}.encode(), 0o600)); err != nil {
				t.Fatal(err)
			}
			l.open(false)
			switch got, err := l.log.LastIndex(); {
			case err == nil && got == sure:
				none++
			case err == nil && got == l.last():
				whole++
			default:
				t.Fatalf("the log ends at %d, %v; want %d, or %d", got, err, sure, l.last())
			}
			got, _ := l.log.LastIndex()
			l.sizes = l.sizes[:got+1]
			l.holds()
			for range 3 {
				more()
			}
			if err := l.log.Close(); err != nil {
				t.Fatal(err)
			}
			l.open(false)
			l.holds()
		})
	}
	if whole == 0 || none == 0 {
		t.Errorf("the last write was there %d times and missing %d times", whole, none)
	}
}

// path returns the path of the only segment.
func (l *sizedLog) path() string {
	l.t.Helper()
	list, err := filepath.Glob(filepath.Join(l.dir, walDir, "*.wal"))
	if err != nil || len(list) != 1 {
		l.t.Fatalf("%q, %v: want one segment", list, err)
	}
	return list[0]
}

func (l *sizedLog) segment() []byte {
	l.t.Helper()
	b, err := os.ReadFile(l.path())
	if err != nil {
		l.t.Fatal(err)
	}
	return b
}

// roomDisk is a disk whose files note how much of their room was filled with zeros.
type roomDisk struct {
	systemFiles
	unfilled int // short writes to room that was not filled
	refused  int // requests for room that were refused
	full     bool
}

func (d *roomDisk) Create(path string) (File, error) {
	f, err := d.systemFiles.Create(path)
	return &roomFile{File: f, d: d}, err
}

func (d *roomDisk) Open(path string) (File, error) {
	f, err := d.systemFiles.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	return &roomFile{File: f, d: d, filled: info.Size()}, nil // a spare is filled
}

type roomFile struct {
	File
	d      *roomDisk
	filled int64
}

func (f *roomFile) Reserve(from, length int64, fill bool) error {
	if f.d.full {
		f.d.refused++
		return os.NewSyscallError("fallocate", syscall.ENOSPC)
	}
	if fill && from <= steps(f.filled) {
		f.filled = max(f.filled, from+length)
	}
	return f.File.Reserve(from, length, fill)
}

func (f *roomFile) WriteAt(p []byte, at int64) (int, error) {
	end := at + int64(len(p))
	if len(p) < fillLimit && steps(end) > steps(f.filled) {
		f.d.unfilled++
	}
	f.filled = max(f.filled, end)
	return f.File.WriteAt(p, at)
}

// Short entries find room that is filled with zeros, even where the room was reserved for long entries.
func TestShortEntriesFindFilledRoom(t *testing.T) {
	clustertest.Slow(t)
	on := &roomDisk{}
	d := SystemDisk()
	d.Files = on
	l := newSizedLog(t, d, 1)
	for range 3 {
		for _, size := range []int{recentLimit, 300} {
			for range 1 + 4*roomStep/(size+1)/9*8 {
				if err := l.store(l.next(1, []int{size})); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if on.unfilled > 0 {
		t.Errorf("%d short writes were made to room that was not filled", on.unfilled)
	}
	l.holds()
}

// The log asks a full disk for room only twice: once ahead, and once when a write needs the room.
func TestFullDiskIsAskedOnce(t *testing.T) {
	clustertest.Slow(t)
	on := &roomDisk{}
	d := SystemDisk()
	d.Files = on
	l := newSizedLog(t, d, 1)
	for end := 0; ; end += 300 + EntryOverhead {
		on.full = end > roomStep/2
		if err := l.store(l.next(1, []int{300})); errors.Is(err, ErrNoRoom) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if on.refused != 2 { // once ahead, and once when the room was needed
		t.Errorf("asked %d times, want 2", on.refused)
	}
	on.full = false
	on.refused = 0
	for range 3 * roomStep / 300 {
		if err := l.store(l.next(1, []int{300})); err != nil {
			t.Fatal(err)
		}
		if room := l.log.room(); room < roomStep/8 {
			t.Fatalf("no room is taken ahead any more: %d bytes", room)
		}
	}
	l.holds()
}
