package datadir_test

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"github.com/lockstep-io/lockstep/cluster/internal/clustertest"
	"github.com/lockstep-io/lockstep/cluster/internal/crashdisk"
	"github.com/lockstep-io/lockstep/cluster/internal/datadir"
)

// promise changes a member's data directory as Raft does. It records what the member has told others
// that it holds.
type promise struct {
	dir      *datadir.Dir
	term     uint64            // written
	nextTerm uint64            // being written
	entries  map[uint64]uint64 // term by index
	snap     uint64            // index of the newest snapshot
	coming   uint64            // index of a snapshot that replaces the log as soon as the snapshot is there
	whole    bool              // the directory is complete
}

var termKey = []byte("CurrentTerm")

// open opens a directory on a disk.
func open(on datadir.Disk, dir string, hooks datadir.Hooks) (*datadir.Dir, error) {
	return datadir.Open(dir, datadir.Options{Disk: on, ID: "n1", LogStore: datadir.LogWAL, Lines: hclog.NewNullLogger(), Hooks: hooks})
}

func (p *promise) finish() error {
	err := p.dir.Finish("", false)
	p.whole = p.whole || err == nil
	return err
}

func (p *promise) setTerm(term uint64) error {
	p.nextTerm = term
	err := p.dir.Stable.SetUint64(termKey, term)
	if err == nil {
		p.term = term
	}
	return err
}

func (p *promise) append(first, last, term uint64) error {
	var logs []*raft.Log
	for i := first; i <= last; i++ {
		logs = append(logs, &raft.Log{Index: i, Term: term, Data: make([]byte, 300)})
	}
	if err := p.dir.Log.StoreLogs(logs); err != nil {
		return err
	}
	for _, l := range logs {
		p.entries[l.Index] = l.Term
	}
	return nil
}

// cut deletes the end of the log, because the end of another leader's log replaces it.
func (p *promise) cut(first, last uint64) error {
	maps.DeleteFunc(p.entries, func(i, _ uint64) bool { return i >= first })
	return p.dir.Log.DeleteRange(first, last)
}

// snapshot takes a snapshot and shortens the log.
func (p *promise) snapshot(index, term, shorten uint64) error {
	if err := datadir.WriteSnapshot(p.dir.Snapshots, index, term); err != nil {
		return err
	}
	p.snap = index
	first, err := p.dir.Log.FirstIndex()
	if err != nil || first > shorten {
		return err
	}
	return p.dir.Log.DeleteRange(first, shorten)
}

// install takes in a snapshot from a peer, which replaces the log.
func (p *promise) install(index, term uint64) error {
	first, err1 := p.dir.Log.FirstIndex()
	last, err2 := p.dir.Log.LastIndex()
	p.coming = index
	if err := errors.Join(err1, err2, datadir.WriteSnapshot(p.dir.Snapshots, index, term)); err != nil {
		return err
	}
	p.snap = index
	if err := p.dir.Log.DeleteRange(first, last); err != nil {
		return err
	}
	clear(p.entries)
	p.coming = 0
	return nil
}

// life is what happens to the data directory of a member, from its first start on.
func (p *promise) life() error {
	for _, step := range []func() error{
		func() error { return p.append(1, 1, 1) },
		p.finish,
		func() error { return p.setTerm(1) },
		func() error { return p.append(2, 9, 1) },
		func() error { return p.append(10, 30, 1) },
		func() error { return p.snapshot(20, 1, 20) },
		func() error { return p.append(31, 45, 1) },
		func() error { return p.setTerm(2) },
		func() error { return p.cut(41, 45) },
		func() error { return p.append(41, 60, 2) },
		func() error { return p.snapshot(50, 2, 48) },
		func() error { return p.append(61, 80, 2) },
		func() error { return p.snapshot(75, 2, 75) },
		func() error { return p.setTerm(5) },
		func() error { return p.install(200, 5) },
		func() error { return p.append(201, 230, 5) },
		// When this snapshot comes, the log has another history and reaches further.
		func() error { return p.install(210, 6) },
		func() error { return p.append(211, 212, 6) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// live runs a life on a disk and closes the directory.
func live(d *crashdisk.Disk) (*promise, error) {
	p := &promise{entries: map[uint64]uint64{}}
	var err error
	p.dir, err = open(d.As(), d.Base(), datadir.Hooks{})
	if err != nil {
		return p, err
	}
	defer p.dir.Close()
	return p, p.life()
}

// smallSegments returns the machine's disk, with segments so small that a log has many files.
func smallSegments() datadir.Disk {
	on := datadir.SystemDisk()
	on.SegmentSize = crashdisk.SegmentSize
	return on
}

// kept opens what a power failure has left, and checks the promise.
func (p *promise) kept(dir string) error {
	st, err := open(smallSegments(), dir, datadir.Hooks{})
	if err != nil {
		return err
	}
	defer st.Close()
	if !p.whole {
		return nil // it may begin anew
	}
	term, err := st.Stable.GetUint64(termKey)
	if errors.Is(err, raftboltdb.ErrKeyNotFound) {
		term, err = 0, nil
	}
	if err != nil || term != p.term && term != p.nextTerm {
		return fmt.Errorf("term %d, %v; it was %d", term, err, p.term)
	}
	snap := st.Snapshots.Newest()
	if snap.Index < p.snap {
		return fmt.Errorf("the newest snapshot is of entry %d, it was of %d", snap.Index, p.snap)
	}
	for index, term := range p.entries {
		var l raft.Log
		if index <= snap.Index || snap.Index == p.coming {
			continue
		}
		if err := st.Log.GetLog(index, &l); err != nil || l.Term != term {
			return fmt.Errorf("entry %d: %v, term %d; it was %d", index, err, l.Term, term)
		}
	}
	last, err := st.Log.LastIndex()
	if err != nil {
		return err
	}
	// The log also takes a new entry.
	next := max(last, snap.Index) + 1
	if err := st.Log.StoreLog(&raft.Log{Index: next, Term: 9}); err != nil {
		return fmt.Errorf("entry %d after the start: %w", next, err)
	}
	return nil
}

// TestJ12PowerFailureAtEveryStep: after a power failure at any step of a member's life, nothing promised is missing.
func TestJ12PowerFailureAtEveryStep(t *testing.T) {
	clustertest.Slow(t)
	whole := crashdisk.New(t.TempDir(), 0)
	if p, err := live(whole); err != nil {
		t.Fatal(err)
	} else if err := p.kept(whole.Base()); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d steps", len(whole.Steps()))
	atEach(len(whole.Steps()), func(at int) {
		d := crashdisk.New(t.TempDir(), at)
		p, _ := live(d)
		if !d.Down() {
			return // concurrent work does not always make as many steps
		}
		for _, o := range crashdisk.Outcomes {
			dir := filepath.Join(t.TempDir(), "data")
			if err := d.Image(dir, o); err != nil {
				t.Error(err)
			} else if err := p.kept(dir); err != nil {
				t.Errorf("power failure at step %d (%s), of the unsynced survives %s: %v", at, d.Steps()[at-1], o.Name, err)
			}
		}
	})
}

// A process is killed during a sync of the log. The entries that the next process finds survive a later power failure.
func TestKilledDuringASync(t *testing.T) {
	whole := crashdisk.New(t.TempDir(), 0)
	if _, err := live(whole); err != nil {
		t.Fatal(err)
	}
	var tried atomic.Int32
	atEach(len(whole.Steps()), func(at int) {
		if !strings.HasPrefix(whole.Steps()[at-1], "sync log/") {
			return
		}
		d := crashdisk.New(t.TempDir(), at)
		p, _ := live(d)
		if !d.Down() || !p.whole || d.Steps()[at-1] != whole.Steps()[at-1] {
			return
		}
		tried.Add(1)
		d.Resume()
		last := func(on datadir.Disk, dir string) uint64 {
			st, err := open(on, dir, datadir.Hooks{})
			if err != nil {
				t.Errorf("killed at step %d (%s): %v", at, d.Steps()[at-1], err)
				return 0
			}
			defer st.Close()
			last, err := st.Log.LastIndex()
			if err != nil {
				t.Error(err)
			}
			return last
		}
		found := last(d.As(), d.Base())
		dir := filepath.Join(t.TempDir(), "data")
		if err := d.Image(dir, crashdisk.Outcomes[0]); err != nil {
			t.Error(err)
		} else if kept := last(smallSegments(), dir); kept < found {
			t.Errorf("killed at step %d (%s): the next process has entry %d, and after a power failure the last is %d", at, d.Steps()[at-1], found, kept)
		}
	})
	if tried.Load() == 0 {
		t.Error("no sync of the log was met")
	}
}

// liveLeading makes a leader write a log. p has the entries reported as on the disk. late counts the entries unwritten after StoreLog.
func liveLeading(d *crashdisk.Disk) (p *promise, late int, err error) {
	p = &promise{entries: map[uint64]uint64{}}
	always := func() bool { return true }
	p.dir, err = open(d.As(), d.Base(), datadir.Hooks{Leads: always, Replicates: always})
	if err != nil {
		return p, 0, err
	}
	defer p.dir.Close()
	if err := errors.Join(p.append(1, 1, 1), p.finish()); err != nil {
		return p, 0, err
	}
	g := p.dir.Log
	for i := uint64(2); i <= 60 && err == nil; i++ {
		err = g.StoreLog(&raft.Log{Index: i, Term: 1, Data: make([]byte, 200)})
		if g.WrittenUpTo(i) < i {
			late++
		}
		if i%4 == 0 && err == nil {
			err = g.AwaitWritten(i) // as the state machine does
		}
		for on := g.WrittenUpTo(i); on > 0 && p.entries[on] == 0 && (on < i || err == nil); on-- {
			p.entries[on] = 1
		}
	}
	_, drained := g.LastIndex() // waits for all that are being written
	return p, late, errors.Join(err, drained)
}

// After a power failure at any step of a leader's writes, every entry reported to be on the disk is there.
func TestPowerFailureWhileALeaderWrites(t *testing.T) {
	clustertest.Slow(t)
	whole := crashdisk.New(t.TempDir(), 0)
	p, late, err := liveLeading(whole)
	if err == nil {
		err = p.kept(whole.Base())
	}
	if err != nil || late < 10 {
		t.Fatalf("%d entries were written later, %v", late, err)
	}
	t.Logf("%d steps, %d entries were written later", len(whole.Steps()), late)
	atEach(len(whole.Steps()), func(at int) {
		d := crashdisk.New(t.TempDir(), at)
		p, _, _ := liveLeading(d)
		if !d.Down() {
			return // how many entries are written together differs
		}
		for _, o := range crashdisk.Outcomes {
			dir := filepath.Join(t.TempDir(), "data")
			if err := d.Image(dir, o); err != nil {
				t.Error(err)
			} else if err := p.kept(dir); err != nil {
				t.Errorf("power failure at step %d (%s), of the unsynced survives %s: %v", at, d.Steps()[at-1], o.Name, err)
			}
		}
	})
}

// atEach calls fn with each number from 1 to n. It makes a few calls at a time, because each call waits for the disk.
func atEach(n int, fn func(at int)) {
	var work sync.WaitGroup
	next := make(chan int)
	for range 8 {
		work.Go(func() {
			for at := range next {
				fn(at)
			}
		})
	}
	for at := 1; at <= n; at++ {
		next <- at
	}
	close(next)
	work.Wait()
}
