package cluster

import (
	"errors"
	"log/slog"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"lockstep/raftfsm"
)

// leads has a log believe that Raft leads, and that there are others to lead.
func leads(g *guardedLog) {
	g.later.leads = func() bool { return true }
	g.later.peers.Store(true)
}

// held is a disk that begins to write entries when the test says so.
type held struct{ begun, resume chan error }

func hold(g *guardedLog) held {
	h := held{make(chan error, 100), make(chan error)}
	store := g.later.store
	g.later.store = func(logs []*raft.Log) error {
		h.begun <- nil
		if err := <-h.resume; err != nil {
			return err
		}
		return store(logs)
	}
	return h
}

// done runs something on another goroutine.
func done(fn func() error) <-chan error {
	c := make(chan error, 1)
	go func() { c <- fn() }()
	return c
}

func mustWait(t *testing.T, what string, c <-chan error) {
	t.Helper()
	select {
	case err := <-c:
		t.Errorf("%s did not wait for the disk: %v", what, err)
	case <-time.After(50 * ms):
	}
}

func mustEnd(t *testing.T, what string, c <-chan error) {
	t.Helper()
	select {
	case err := <-c:
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	case <-time.After(20 * time.Second):
		t.Fatalf("%s waits for ever", what)
	}
}

// While a leader's disk is busy its entries can be sent, and count nowhere as written:
// they are not applied, nobody is told that they are committed, and what replaces or
// follows them comes after them.
func TestUnwrittenEntriesCountNowhere(t *testing.T) {
	dir := t.TempDir()
	g := openTestLog(t, dir, true)
	leads(g)
	h := hold(g)
	step := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	step(g.StoreLogs(entries(1, 3))) // there is no room yet: written at once
	step(g.StoreLogs(entries(4, 6)))
	<-h.begun
	step(g.StoreLogs(entries(7, 7)))
	for i := uint64(1); i <= 7; i++ {
		var l raft.Log
		if err := g.GetLog(i, &l); err != nil || l.Index != i {
			t.Errorf("entry %d cannot be sent: %v", i, err)
		}
	}
	if at := g.later.upTo(7); at != 3 {
		t.Errorf("the others are told that it is committed up to entry %d", at)
	}
	mustEnd(t, "applying a written entry", done(func() error { return g.later.wait(3) }))
	applied := done(func() error { return g.later.wait(4) })
	mustWait(t, "applying an entry", applied)
	shorten := done(func() error { return g.DeleteRange(1, 3) })
	mustWait(t, "a deletion at the end of what is on the disk", shorten)
	last := done(func() error { _, err := g.LastIndex(); return err })
	mustWait(t, "the end of the log", last)
	barrier := done(func() error { return g.StoreLogs([]*raft.Log{{Index: 8, Term: 1, Type: raft.LogBarrier}}) })
	mustWait(t, "an entry that is no command", barrier)
	h.resume <- nil
	mustEnd(t, "applying it", applied)
	mustEnd(t, "the deletion", shorten)
	mustWait(t, "the end of the log, of the last one", last)
	<-h.begun
	h.resume <- nil
	mustEnd(t, "the end of the log", last)
	mustEnd(t, "the entry after them", barrier)
	step(g.Close())
	g = openTestLog(t, dir, false)
	if high, err := g.LastIndex(); err != nil || high != 8 {
		t.Errorf("on the disk there are %d, %v", high, err)
	}
	step(g.Close())
}

// Before each snapshot Raft asks where its log ends, on the goroutine that takes them.
// Entries that come all the time must not keep it waiting.
func TestEndOfALogThatGrowsAllTheTime(t *testing.T) {
	g := openTestLog(t, t.TempDir(), true)
	leads(g)
	if err := g.StoreLogs(entries(1, 1)); err != nil {
		t.Fatal(err)
	}
	store, next := g.later.store, uint64(3)
	const most = 300
	g.later.store = func(logs []*raft.Log) error {
		if next < most { // the next entry is there before this one is written
			if err := g.StoreLogs(entries(next, next)); err != nil {
				return err
			}
			next++
			time.Sleep(ms)
		}
		return store(logs)
	}
	if err := g.StoreLogs(entries(2, 2)); err != nil {
		t.Fatal(err)
	}
	high, err := g.LastIndex()
	if err != nil || high >= most/2 {
		t.Errorf("it was told after %d entries of %d, %v", high, most, err)
	}
	for high < most-1 && err == nil {
		high, err = g.LastIndex()
	}
	if err := errors.Join(err, g.Close()); err != nil {
		t.Error(err)
	}
}

// When entries cannot be written that Raft believes in, the process ends. Until it has,
// Raft counts them as applied, which they are not: no snapshot may be taken.
func TestNoSnapshotOfEntriesThatAreLost(t *testing.T) {
	l := newFullLog(t)
	g := l.st.guard
	fatal := make(chan error, 9)
	g.watch(slog.New(slog.DiscardHandler), func(err error) { fatal <- err })
	leads(g)
	h := hold(g)
	l.must(l.append(11, 11))
	<-h.begun
	m := &machine{log: &raftLog{st: l.st}, fsm: raftfsm.New(nil)}
	if _, err := m.Snapshot(); err != nil {
		t.Fatal(err)
	}
	h.resume <- syscall.ENOSPC
	if err, ok := m.Apply(&raft.Log{Index: 11}).(error); !ok || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("applied: %v", err)
	}
	if _, err := m.Snapshot(); err == nil {
		t.Error("a snapshot hides that entry 11 has not been applied")
	}
	if err := <-fatal; !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("fatal: %v", err)
	}
	if err := l.append(12, 12); err == nil {
		t.Error("it takes entries behind one that is lost")
	}
	if at := g.later.upTo(99); at != 10 {
		t.Errorf("the others are told that it is committed up to entry %d", at)
	}
	if err := g.later.drain(); err == nil {
		t.Error("what another leader sends would be stored behind it")
	}
	if len(fatal) > 0 {
		t.Errorf("told again: %v", <-fatal)
	}
}

// liveLeading has a leader write a log that grows beyond a segment, and notes of which
// entries it was said that they are on the disk. late is how many were written while
// Raft went on.
func liveLeading(d *crashDisk) (p *promise, late int, err error) {
	p = &promise{entries: map[uint64]uint64{}}
	p.st, err = openStorageOn(d.disk(), d.base, "n1", LogWAL, raftLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return p, 0, err
	}
	defer p.st.close()
	if err := errors.Join(p.append(1, 1, 1), p.finish()); err != nil {
		return p, 0, err
	}
	g := p.st.guard
	leads(g)
	for i := uint64(2); i <= 60 && err == nil; i++ {
		err = g.StoreLog(&raft.Log{Index: i, Term: 1, Data: make([]byte, 200)})
		if g.later.upTo(i) < i {
			late++
		}
		if i%4 == 0 && err == nil {
			err = g.later.wait(i) // as the state machine does
		}
		for on := g.later.upTo(i); on > 0 && p.entries[on] == 0 && (on < i || err == nil); on-- {
			p.entries[on] = 1
		}
	}
	return p, late, errors.Join(err, g.later.drain())
}

// Whenever the power fails while a leader writes behind Raft's back: what was said to be
// on the disk is there.
func TestPowerFailureWhileALeaderWrites(t *testing.T) {
	whole := newCrashDisk(t.TempDir(), 0)
	p, late, err := liveLeading(whole)
	if err == nil {
		err = p.kept(whole.base)
	}
	if err != nil || late < 10 {
		t.Fatalf("%d entries were written later, %v", late, err)
	}
	t.Logf("%d steps, %d entries were written later", len(whole.steps), late)
	atEach(len(whole.steps), func(at int) {
		d := newCrashDisk(t.TempDir(), at)
		p, _, _ := liveLeading(d)
		if !d.down {
			return // how many entries are written together differs
		}
		for _, o := range outcomes {
			dir := filepath.Join(t.TempDir(), "data")
			if err := d.image(dir, o); err != nil {
				t.Error(err)
			} else if err := p.kept(dir); err != nil {
				t.Errorf("power failure at step %d (%s), of the unsynced survives %s: %v", at, d.steps[at-1], o.name, err)
			}
		}
	})
}
