package raftnode

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/lockstep-io/lockstep/cluster/brake"
	"github.com/lockstep-io/lockstep/cluster/internal/crashdisk"
	"github.com/lockstep-io/lockstep/cluster/internal/datadir"
	"github.com/lockstep-io/lockstep/raftfsm"
	"github.com/lockstep-io/lockstep/store"
)

// TestAppliedEntriesAreLetGo: the data of long entries are read one entry at a time, although Raft holds dozens until the last is
// applied.
func TestAppliedEntriesAreLetGo(t *testing.T) {
	cfg := memberConfig(t, t.TempDir())
	dir, err := openDirectory(cfg, cfg.Data, hclog.NewNullLogger(), datadir.Hooks{Logger: cfg.Logger, Fatal: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	txn := store.New().Begin(store.Time{Lease: 1}, 1, store.Env{})
	txn.SetString(0, []byte("long"), strings.Repeat("v", 2*datadir.LongEntry), 0)
	entry := raftfsm.Entry{Lease: 1, Writes: txn.Writes().Bytes(), Version: txn.Writes().Version()}
	if err := dir.Log.StoreLog(&raft.Log{Index: 1, Term: 1, Data: entry.Append(nil)}); err != nil {
		t.Fatal(err)
	}
	var l raft.Log
	if err := errors.Join(dir.Log.AwaitWritten(1), dir.Log.GetLog(1, &l)); err != nil {
		t.Fatal(err)
	}
	fsm := raftfsm.New(nil)
	m := &machine{log: &Node{dir: dir, cfg: cfg, trans: &transport{}}, fsm: fsm, hooks: Hooks{Applied: func(raftfsm.Outcome) {}}}
	if out, ok := m.Apply(&l).(raftfsm.Outcome); !ok || !out.Accepted {
		t.Fatalf("applied: %+v", out)
	}
	if fsm.DataSize() < 2*datadir.LongEntry {
		t.Errorf("the state has %d bytes", fsm.DataSize())
	}
	if len(l.Data) >= datadir.LongEntry {
		t.Errorf("Raft still holds %d bytes of the entry", len(l.Data))
	}
}

// fullDisk lets no file be made while it is full.
type fullDisk struct {
	datadir.Files
	full bool
}

func (d *fullDisk) Create(path string) (datadir.File, error) {
	if d.full {
		return nil, syscall.ENOSPC
	}
	return d.Files.Create(path)
}

// sentSnapshot stores a snapshot as if a peer had sent it, and returns its bytes.
func sentSnapshot(t *testing.T, dir *datadir.Dir) []byte {
	t.Helper()
	sent := raftfsm.New(nil)
	if _, err := sent.Apply(1, (&raftfsm.Entry{Lease: 1}).Append(nil)); err != nil {
		t.Fatal(err)
	}
	var state bytes.Buffer
	sink, err := dir.Snapshots.Create(raft.SnapshotVersionMax, 5, 1, raft.Configuration{}, 5, nil)
	if err := errors.Join(err, dir.Remember("n2", "two", 1), sent.Snapshot().Encode(&state)); err != nil {
		t.Fatal(err)
	}
	if _, err := sink.Write(state.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
	return state.Bytes()
}

// TestRestoreThatFails: if a node cannot note which members it forgets with a snapshot, it keeps its state, as Raft believes.
func TestRestoreThatFails(t *testing.T) {
	cfg := memberConfig(t, t.TempDir())
	disk := &fullDisk{Files: cfg.Disk.Files}
	cfg.Disk.Files = disk
	dir, err := openDirectory(cfg, cfg.Data, hclog.NewNullLogger(), datadir.Hooks{Logger: cfg.Logger})
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	state := sentSnapshot(t, dir)
	fsm := raftfsm.New(nil)
	m := &machine{log: &Node{dir: dir, cfg: cfg, trans: &transport{}}, fsm: fsm, hooks: Hooks{Restored: func(uint64, int64) {}, Members: func() {}}}
	for _, disk.full = range []bool{true, false} {
		err := m.Restore(io.NopCloser(bytes.NewReader(state)))
		if seq, _ := fsm.Position(); (err != nil) != disk.full || (seq == 0) != disk.full {
			t.Errorf("full: %v, the state has %d entries, %v", disk.full, seq, err)
		}
	}
}

// TestOneStateBesideTheWritten: near the memory limit no entry is applied while an earlier state is still being written, and that
// writing makes no pauses.
func TestOneStateBesideTheWritten(t *testing.T) {
	cfg := memberConfig(t, t.TempDir())
	dir, err := openDirectory(cfg, cfg.Data, hclog.NewNullLogger(), datadir.Hooks{Logger: cfg.Logger})
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	m := &machine{log: &Node{dir: dir, cfg: cfg, stop: make(chan struct{})}, fsm: raftfsm.New(nil)}
	m.awaitRoom(func() bool { t.Error("no state is being written"); return true })
	snap, err := m.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	m.awaitRoom(func() bool { return true }) // Raft may need the state machine before it writes
	m.written.Load().begun.Store(true)
	m.awaitRoom(func() bool { return false })
	if m.written.Load().hurried.Load() {
		t.Error("it does not rest, though there is memory")
	}
	released, hurried := false, m.written.Load()
	m.awaitRoom(func() bool {
		go func() {
			for !hurried.hurried.Load() {
				runtime.Gosched()
			}
			released = true
			snap.Release()
		}()
		return true
	})
	if !released {
		t.Error("it did not wait")
	}
	m.awaitRoom(func() bool { t.Error("the state has been written"); return true })
}

// TestCopyingAwaitsTheWritten: an evaluation or entry that copies much data waits, in the middle, for the snapshot that is being
// written.
func TestCopyingAwaitsTheWritten(t *testing.T) {
	defer brake.Set(0, 0)
	const keys, large = 8, 1 << 20
	fsm := raftfsm.New(nil)
	crowded := 0 // how often others were asked to give up their states
	m := newMachine(&Node{cfg: &Config{}, fsm: fsm, stop: make(chan struct{})}, Hooks{Crowded: func() { crowded++ }})
	index, entry := uint64(0), func(write func(txn *store.Txn, key []byte)) (data []byte) {
		fsm.View(func(st *store.Store, seq uint64) {
			txn := st.Begin(store.Time{Lease: 1}, seq+1, store.Env{})
			for i := range keys {
				write(txn, []byte{'k', byte(i)})
			}
			data = (&raftfsm.Entry{Prev: seq, Lease: 1, Writes: txn.Writes().Bytes()}).Append(nil)
		})
		return data
	}
	apply := func(data []byte) {
		index++
		if out, err := fsm.Apply(index, data); err != nil || !out.Accepted {
			t.Fatal(out, err)
		}
	}
	apply(entry(func(txn *store.Txn, key []byte) { txn.SetString(0, key, strings.Repeat("x", large), 0) }))
	brake.Set(1, 0) // memory is scarce
	patch := func(txn *store.Txn, key []byte) { txn.Patch(0, key, 0, "y") }
	data := []byte(nil)
	for what, do := range map[string]func(){"an evaluation": func() { data = entry(patch) }, "an entry": func() { apply(data) }} {
		if data == nil {
			data = entry(patch)
		}
		w := &writtenState{s: fsm.Snapshot(), over: make(chan struct{})}
		m.written.Store(w)
		w.begun.Store(true)
		over := make(chan struct{})
		go func() {
			defer close(over)
			do()
		}()
		for !w.hurried.Load() {
			select {
			case <-over:
				t.Fatalf("%s did not wait", what)
			default:
				runtime.Gosched()
			}
		}
		w.Release()
		if <-over; crowded == 0 {
			t.Errorf("%s did not ask for other states", what)
		}
		crowded = 0
	}
}

// TestRestoreAwaitsTheWritten: near the memory limit, a node waits for its own snapshot before it reads a peer's. Other readers
// give up their states.
func TestRestoreAwaitsTheWritten(t *testing.T) {
	defer brake.Set(0, 0)
	cfg := memberConfig(t, t.TempDir())
	dir, err := openDirectory(cfg, cfg.Data, hclog.NewNullLogger(), datadir.Hooks{Logger: cfg.Logger})
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	state, crowded := sentSnapshot(t, dir), 0
	hooks := Hooks{Restored: func(uint64, int64) {}, Members: func() {}, Crowded: func() { crowded++ }}
	m := &machine{log: &Node{dir: dir, cfg: cfg, trans: &transport{}, stop: make(chan struct{})}, fsm: raftfsm.New(nil), hooks: hooks}
	if _, err := m.Snapshot(); err != nil {
		t.Fatal(err)
	}
	w := m.written.Load()
	w.begun.Store(true)
	brake.Set(1, 0)
	brake.Bring(1 << 30) // after this cycle of the collector memory is known to be scarce
	over := make(chan error)
	go func() { over <- m.Restore(io.NopCloser(bytes.NewReader(state))) }()
	for !w.hurried.Load() {
		select {
		case err := <-over:
			t.Fatalf("it did not wait, %v", err)
		default:
			runtime.Gosched()
		}
	}
	w.Release()
	if err := <-over; err != nil || crowded == 0 {
		t.Errorf("others were asked %d times for their states, %v", crowded, err)
	}
}

// While an entry that could not be written counts as applied in Raft, no snapshot may be taken.
func TestNoSnapshotOfEntriesThatAreLost(t *testing.T) {
	g, fatal := &crashdisk.Gate{}, make(chan error, 9)
	always := func() bool { return true }
	cfg := memberConfig(t, t.TempDir())
	cfg.Disk.Files = g
	dir, err := openDirectory(cfg, cfg.Data, hclog.NewNullLogger(), datadir.Hooks{
		Logger: cfg.Logger, Fatal: func(err error) { fatal <- err }, Leads: always, Replicates: always,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	store := func(index uint64) error {
		return dir.Log.StoreLog(&raft.Log{Index: index, Term: 1, Data: make([]byte, 300)})
	}
	for i := uint64(1); i <= 10; i++ {
		if err := errors.Join(store(i), dir.Log.AwaitWritten(i)); err != nil {
			t.Fatal(err)
		}
	}
	g.Shut()
	if err := store(11); err != nil {
		t.Fatal(err)
	}
	m := &machine{log: &Node{dir: dir}, fsm: raftfsm.New(nil)}
	if _, err := m.Snapshot(); err != nil {
		t.Fatal(err)
	}
	g.LetGo(syscall.EIO)
	if err, ok := m.Apply(&raft.Log{Index: 11}).(error); !ok || !errors.Is(err, syscall.EIO) {
		t.Errorf("applied: %v", err)
	}
	if _, err := m.Snapshot(); err == nil {
		t.Error("a snapshot hides that entry 11 has not been applied")
	}
	if err := <-fatal; !errors.Is(err, syscall.EIO) {
		t.Errorf("fatal: %v", err)
	}
	if err := store(12); err == nil {
		t.Error("it takes entries behind one that is lost")
	}
	if at := dir.Log.WrittenUpTo(99); at != 10 {
		t.Errorf("the others are told that it is committed up to entry %d", at)
	}
	if _, err := dir.Log.LastIndex(); err == nil {
		t.Error("what another leader sends would be stored behind it")
	}
	if len(fatal) > 0 {
		t.Errorf("told again: %v", <-fatal)
	}
}
