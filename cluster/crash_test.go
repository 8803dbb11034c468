package cluster

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

// promise is what a member has told others that it holds, while it changes its
// storage as Raft does.
type promise struct {
	st       *storage
	term     uint64            // written
	nextTerm uint64            // being written
	entries  map[uint64]uint64 // term by index
	snap     uint64            // index of the newest snapshot
	coming   uint64            // index of one that replaces the log as soon as it is there
	whole    bool              // the directory is complete
}

var termKey = []byte("CurrentTerm")

func (p *promise) finish() error {
	err := p.st.finish("", false)
	p.whole = p.whole || err == nil
	return err
}

func (p *promise) setTerm(term uint64) error {
	p.nextTerm = term
	err := p.st.stable.SetUint64(termKey, term)
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
	if err := p.st.log.StoreLogs(logs); err != nil {
		return err
	}
	for _, l := range logs {
		p.entries[l.Index] = l.Term
	}
	return nil
}

// cut deletes the end of the log, because another leader's replaces it.
func (p *promise) cut(first, last uint64) error {
	maps.DeleteFunc(p.entries, func(i, _ uint64) bool { return i >= first })
	return p.st.log.DeleteRange(first, last)
}

// snapshot takes one and shortens the log.
func (p *promise) snapshot(index, term, shorten uint64) error {
	if err := writeSnapshot(p.st.snaps, index, term); err != nil {
		return err
	}
	p.snap = index
	first, err := p.st.log.FirstIndex()
	if err != nil || first > shorten {
		return err
	}
	return p.st.log.DeleteRange(first, shorten)
}

// install takes in a snapshot from a peer, which replaces the log.
func (p *promise) install(index, term uint64) error {
	first, err1 := p.st.log.FirstIndex()
	last, err2 := p.st.log.LastIndex()
	p.coming = index
	if err := errors.Join(err1, err2, writeSnapshot(p.st.snaps, index, term)); err != nil {
		return err
	}
	p.snap = index
	if err := p.st.log.DeleteRange(first, last); err != nil {
		return err
	}
	clear(p.entries)
	p.coming = 0
	return nil
}

// life is what happens to the storage of a member, from its first start on.
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
		// A log of another history that reaches further than the snapshot.
		func() error { return p.install(210, 6) },
		func() error { return p.append(211, 212, 6) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// live runs a life on a disk and closes the storage.
func live(d *crashDisk) (*promise, error) {
	p := &promise{entries: map[uint64]uint64{}}
	var err error
	p.st, err = openStorageOn(d.disk(), d.base, "n1", LogWAL, raftLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return p, err
	}
	defer p.st.close()
	return p, p.life()
}

// smallSegments is the machine's disk with a log in many files.
func smallSegments() disk {
	d := systemDisk()
	d.segmentSize = 8 << 10
	return d
}

// kept opens what a power failure has left, and checks the promise.
func (p *promise) kept(dir string) error {
	st, err := openStorageOn(smallSegments(), dir, "n1", LogWAL, raftLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	defer st.close()
	if !p.whole {
		return nil // it may begin anew
	}
	term, err := st.stable.GetUint64(termKey)
	if errors.Is(err, raftboltdb.ErrKeyNotFound) {
		term, err = 0, nil
	}
	if err != nil || term != p.term && term != p.nextTerm {
		return fmt.Errorf("term %d, %v; it was %d", term, err, p.term)
	}
	snap := st.snaps.newest()
	if snap.Index < p.snap {
		return fmt.Errorf("the newest snapshot is of entry %d, it was of %d", snap.Index, p.snap)
	}
	for index, term := range p.entries {
		var l raft.Log
		if index <= snap.Index || snap.Index == p.coming {
			continue
		}
		if err := st.log.GetLog(index, &l); err != nil || l.Term != term {
			return fmt.Errorf("entry %d: %v, term %d; it was %d", index, err, l.Term, term)
		}
	}
	last, err := st.log.LastIndex()
	if err != nil {
		return err
	}
	// And it goes on.
	next := max(last, snap.Index) + 1
	if err := st.log.StoreLog(&raft.Log{Index: next, Term: 9}); err != nil {
		return fmt.Errorf("entry %d after the start: %w", next, err)
	}
	return nil
}

// TestJ12PowerFailureAtEveryStep stops the disk at every single step of a
// member's life, and starts from all that may be found then. Nothing that was
// promised is missing, and the start needs no help.
func TestJ12PowerFailureAtEveryStep(t *testing.T) {
	whole := newCrashDisk(t.TempDir(), 0)
	if p, err := live(whole); err != nil {
		t.Fatal(err)
	} else if err := p.kept(whole.base); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d steps", len(whole.steps))
	atEach(len(whole.steps), func(at int) {
		d := newCrashDisk(t.TempDir(), at)
		p, _ := live(d)
		if !d.down {
			return // what happens beside the rest is not always as many steps
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

// TestKilledDuringASync kills the process, not the machine, while it waits for
// the disk: the next one finds what was written, and tells others that it has it.
// A power failure after that must not take it away.
func TestKilledDuringASync(t *testing.T) {
	whole := newCrashDisk(t.TempDir(), 0)
	if _, err := live(whole); err != nil {
		t.Fatal(err)
	}
	var tried atomic.Int32
	atEach(len(whole.steps), func(at int) {
		if !strings.HasPrefix(whole.steps[at-1], "sync "+walDir+"/") {
			return
		}
		d := newCrashDisk(t.TempDir(), at)
		p, _ := live(d)
		if !d.down || !p.whole || d.steps[at-1] != whole.steps[at-1] {
			return
		}
		tried.Add(1)
		d.down, d.stopAt = false, 0
		last := func(on disk, dir string) uint64 {
			st, err := openStorageOn(on, dir, "n1", LogWAL, raftLogger(slog.New(slog.DiscardHandler)))
			if err != nil {
				t.Errorf("killed at step %d (%s): %v", at, d.steps[at-1], err)
				return 0
			}
			defer st.close()
			last, err := st.log.LastIndex()
			if err != nil {
				t.Error(err)
			}
			return last
		}
		found := last(d.disk(), d.base)
		dir := filepath.Join(t.TempDir(), "data")
		if err := d.image(dir, outcomes[0]); err != nil {
			t.Error(err)
		} else if kept := last(smallSegments(), dir); kept < found {
			t.Errorf("killed at step %d (%s): the next process has entry %d, and after a power failure the last is %d", at, d.steps[at-1], found, kept)
		}
	})
	if tried.Load() == 0 {
		t.Error("no sync of the log was met")
	}
}

// atEach calls fn with 1 to n, a few at a time: they wait for the disk.
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

// TestJ18SingleNodeLosesNothing stops the disk of a node that is alone, at many
// steps while clients write and snapshots are taken. What was acknowledged is
// there at the next start.
func TestJ18SingleNodeLosesNothing(t *testing.T) {
	const last = 200
	for at := 17; at < last; at += 9 {
		d := newCrashDisk(t.TempDir(), at)
		d.quiet = true
		acked := writeUntilDown(t, d, 60)
		if !d.down {
			break
		}
		o := outcomes[at%len(outcomes)]
		dir := filepath.Join(t.TempDir(), "data")
		if err := d.image(dir, o); err != nil {
			t.Fatal(err)
		}
		n := openNode(t, dataConfig(t, dir))
		for i := range acked {
			if got := lines(t, n, fmt.Sprintf("GET k%d", i)); got != strings.Repeat("v", 300) {
				t.Fatalf("power failure at step %d (%s), of the unsynced survives %s: k%d of %d acknowledged is %q", at, d.steps[at-1], o.name, i, acked, got)
			}
		}
		if got := lines(t, n, "SET after v"); got != "OK" {
			t.Error(got)
		}
		closeNode(t, n)
	}
}

// writeUntilDown writes keys until the power fails, and returns how many were
// acknowledged.
func writeUntilDown(t *testing.T, d *crashDisk, most int) (acked int) {
	t.Helper()
	cfg := dataConfig(t, d.base)
	cfg.disk, cfg.FailoverWait = d.disk(), 50*ms
	cfg.Fatal = func(err error) {
		if !errors.Is(err, errPower) { // the process has none
			t.Error(err)
		}
	}
	n, err := Open(cfg)
	if err != nil {
		return 0
	}
	defer n.Close() // what it says of a disk that is gone does not matter
	for acked < most {
		if got := lines(t, n, fmt.Sprintf("SET k%d %s", acked, strings.Repeat("v", 300))); got == "OK" {
			acked++
		} else if d.isDown() {
			return acked
		}
		if acked%15 == 14 && n.Snapshot() != nil && d.isDown() {
			return acked
		}
	}
	return acked
}
