package datadir

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// leads makes a log believe that this node leads, and that it has followers.
func leads(g *Log) {
	always := func() bool { return true }
	g.hooks.Leads, g.hooks.Replicates = always, always
}

// held makes each write of a log wait: the write sends to begun, and goes on with a value from resume.
type held struct{ begun, resume chan error }

func hold(g *Log) held {
	h := held{make(chan error, 100), make(chan error)}
	store := g.async.store
	g.async.store = func(logs []*raft.Log) error {
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

// Until a leader's entry is on its disk, nobody applies it or is told that it is committed. Later entries are written after it.
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
	if at := g.async.upTo(7); at != 3 {
		t.Errorf("the others are told that it is committed up to entry %d", at)
	}
	mustEnd(t, "applying a written entry", done(func() error { return g.async.wait(3) }))
	applied := done(func() error { return g.async.wait(4) })
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

// The end of the log can be read while new entries come all the time: Raft reads the end before each snapshot.
func TestEndOfALogThatGrowsAllTheTime(t *testing.T) {
	g := openTestLog(t, t.TempDir(), true)
	leads(g)
	if err := g.StoreLogs(entries(1, 1)); err != nil {
		t.Fatal(err)
	}
	store, next := g.async.store, uint64(3)
	const most = 300
	g.async.store = func(logs []*raft.Log) error {
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

// asyncWrites takes only entries that a leader may leave unwritten, and writes them in order.
func TestAsyncWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stored []uint64
		step := make(chan error)
		var fatal error
		leads, replicates := true, false
		u := &asyncWrites{}
		u.init(&Hooks{Leads: func() bool { return leads }, Replicates: func() bool { return replicates }}, func(logs []*raft.Log) error {
			err := <-step
			for _, l := range logs {
				stored = append(stored, l.Index)
			}
			return err
		}, func(err error) { fatal = err })
		taken := func(want bool, logs []*raft.Log, left int64) {
			t.Helper()
			if got, err := u.add(logs, func() int64 { return left }); got != want || err != nil {
				t.Errorf("entries from %d on: taken %v, %v", logs[0].Index, got, err)
			}
		}
		const room = 1 << 20
		taken(false, entries(1, 1), room) // nobody to send it to
		replicates, leads = true, false
		taken(false, entries(1, 1), room)
		leads = true
		taken(false, entries(1, 1), EntryOverhead) // no room
		taken(false, []*raft.Log{{Index: 1, Type: raft.LogNoop}}, room)
		taken(false, []*raft.Log{{Index: 1, Type: raft.LogConfiguration}}, room)
		taken(false, []*raft.Log{{Index: 1, Data: make([]byte, recentLimit+1)}}, room)
		if err := u.drain(); err != nil {
			t.Error(err)
		}

		taken(true, entries(1, 2), room)
		synctest.Wait()
		taken(true, entries(3, 5), room)
		taken(false, entries(6, 6), 5*EntryOverhead) // with those before it
		taken(false, entries(6, asyncCount+1), room)
		taken(false, []*raft.Log{{Index: 6, Data: make([]byte, recentLimit)}, {Index: 7, Data: make([]byte, recentLimit)},
			{Index: 8, Data: make([]byte, recentLimit)}, {Index: 9, Data: make([]byte, recentLimit)}}, 4*asyncSize)
		if got := u.upTo(9); got != 0 {
			t.Errorf("on the disk up to %d", got)
		}
		waited := make(chan error, 1)
		go func() { waited <- u.wait(2) }()
		step <- nil
		synctest.Wait()
		if err := <-waited; err != nil || u.upTo(9) != 2 || u.upTo(1) != 1 {
			t.Errorf("after the first write: %v, up to %d", err, u.upTo(9))
		}
		step <- nil
		if err := u.drain(); err != nil || u.upTo(9) != 9 || u.size != 0 {
			t.Errorf("after all writes: %v, up to %d, %d bytes are left", err, u.upTo(9), u.size)
		}
		if len(stored) != 5 {
			t.Errorf("written: %v", stored)
		}
		for i, index := range stored {
			if index != uint64(i+1) {
				t.Errorf("written in this order: %v", stored)
			}
		}

		taken(true, entries(6, 6), room)
		broken := errors.New("broken")
		step <- broken
		if err := u.drain(); err != broken {
			t.Errorf("waiting for what was not written: %v", err)
		}
		synctest.Wait()
		if _, err := u.add(entries(7, 7), func() int64 { return room }); err != broken || fatal != broken || u.upTo(9) != 5 {
			t.Errorf("after a write that failed: %v, fatal %v, up to %d", err, fatal, u.upTo(9))
		}
	})
}
