package datadir

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/lockstep-io/lockstep/cluster/brake"
)

// Log is Raft's log. A log store takes a damaged end for a torn write, and goes on with a shorter log. So the file log.last has the
// index of the last entry, and Open fails if the log store ends before that. log.last is not synced after an append: after a power
// failure its index may be too low, but never too high.
//
// An append or a cut of the end that fails for lack of disk space leaves the log unchanged, and the node goes on. Every other failure
// ends the process: after a failed sync the kernel may have dropped the data, and raft-wal takes a segment for sealed even if its seal
// was not written.
//
// Two appends end the process even for lack of disk space: a leader's change of the members (configures), and the first append after a
// cut. If the latter fails, hashicorp/raft still acknowledges the cut entries, and counts them when it votes. Therefore cutEnd first
// reserves room for the next segment.
type Log struct {
	logStore
	snaps *Snapshots

	first  atomic.Uint64 // entries with a lower index are deleted
	closed atomic.Bool
	recent recentLog
	long   longEntries
	async  asyncWrites
	grown  growth

	trouble trouble
	hooks   Hooks    // of the running node; empty until Open sets them at its end
	writing underway // an append, or a cut of the log's end

	configs configLog
	noted   atomic.Uint64 // the index in log.settled

	mu   sync.Mutex
	file File
	mark mark

	settledFile File // nil: not opened yet
	appends     int
	cut         bool  // the end of the log was cut off, and nothing was appended since
	lost        error // the failure because of which failed has called Hooks.Fatal
}

// mark is the content of log.last:
//
//	+--------+---------+----------+---------+---------+---------+
//	| "LAST" | version | reserved | last    | base    | crc32c  |
//	|        | 1 byte  | 3 bytes  | 8 bytes | 8 bytes | 4 bytes |
//	+--------+---------+----------+---------+---------+---------+
//
// in little endian. last is the index of the last entry; 0 if the log is empty. For an empty
// log, base is the index of the snapshot that replaces the whole log, and Open fails without
// that snapshot or a newer one. Version 1 had only last and its checksum.
type mark struct{ last, base uint64 }

const (
	markMagic   = "LAST"
	markVersion = 2
	markLen     = 4 + 4 + 8 + 8 + 4
	markLenV1   = 8 + 4
)

var markTable = crc32.MakeTable(crc32.Castagnoli)

var errNoMark = errors.New("it does not say how far the log reached")

func (m mark) encode() []byte {
	b := append([]byte(markMagic), markVersion, 0, 0, 0)
	b = binary.LittleEndian.AppendUint64(b, m.last)
	b = binary.LittleEndian.AppendUint64(b, m.base)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, markTable))
}

func decodeMark(b []byte) (m mark, err error) {
	if len(b) < markLenV1 {
		return m, errNoMark
	}
	body, sum := b[:len(b)-4], binary.LittleEndian.Uint32(b[len(b)-4:])
	switch {
	case crc32.Checksum(body, markTable) != sum:
		return m, errNoMark
	case len(b) == markLenV1:
		m.last = binary.LittleEndian.Uint64(b)
	case string(b[:4]) != markMagic || b[4] == 0:
		return m, errNoMark
	case b[4] > markVersion:
		return m, fmt.Errorf("it has version %d, this program knows %d: its data is intact; upgrade this node's program and start it again", b[4], markVersion)
	case len(b) != markLen:
		return m, errNoMark
	default:
		m.last, m.base = binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:])
	}
	return m, nil
}

func readMark(path string) (mark, error) {
	b, err := readSmall(path)
	if err != nil {
		return mark{}, err
	}
	return decodeMark(b)
}

// reached returns the index in the file log.last: 0 if there is no such file, math.MaxUint64 if it cannot be read.
func reached(path string) uint64 {
	m, err := readMark(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return math.MaxUint64
	}
	return m.last
}

// openGuarded returns a Log for a log store that fits log.last, the file at path. Only a new directory may lack log.last.
func openGuarded(d Files, log logStore, path string, isNew bool, snaps *Snapshots) (*Log, error) {
	last, err := touchEnds(log)
	if err != nil {
		return nil, err
	}
	m, err := readMark(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && isNew:
	case err != nil:
		return nil, fmt.Errorf("%s: %w", filepath.Base(path), err)
	case last < m.last:
		return nil, fmt.Errorf("it ends at entry %d and has reached %d", last, m.last)
	}
	first, err := log.FirstIndex()
	if err != nil {
		return nil, err
	}
	g := &Log{logStore: log, snaps: snaps, mark: mark{last, m.base}}
	g.async.init(&g.hooks, g.append, g.giveUp)
	g.grown.much = make(chan struct{}, 1)
	g.first.Store(first)
	if err := replaceFile(d, path, g.mark.encode()); err != nil {
		return nil, err
	}
	g.file, err = d.Open(path)
	return g, err
}

// join fails if entries are missing between snapshots and log. It deletes a log that a peer's snapshot was replacing when the process
// ended.
func (g *Log) join() error {
	first, err := g.logStore.FirstIndex()
	if err != nil {
		return err
	}
	newest := g.snaps.Newest()
	switch {
	case g.mark.last == 0 && newest.Index < g.mark.base:
		return g.snaps.lacking(fmt.Errorf("the snapshot of entry %d, which the log begins with, is missing or damaged; the newest whole one is of entry %d", g.mark.base, newest.Index))
	case g.mark.last == 0:
		return nil
	case first > newest.Index+1:
		return g.snaps.lacking(fmt.Errorf("it begins at entry %d; the snapshots of entry %d and later are missing or damaged, the newest whole one is of entry %d", first, first-1, newest.Index))
	case newest.Index < first:
		return nil
	}
	if g.mark.last >= newest.Index {
		var l raft.Log
		if err := g.GetLog(newest.Index, &l); err != nil || l.Term == newest.Term {
			return err
		}
	} else if !g.IsMonotonic() {
		return nil // this log store (bbolt) may have a gap between the log and the next entry
	}
	return g.DeleteRange(first, g.mark.last)
}

// outgrown reports whether the log holds a snapshot's last entry; for this node's newest snapshot, whether the log goes on behind that
// entry.
func (g *Log) outgrown(index, term uint64) (bool, error) {
	first, err1 := g.FirstIndex()
	last, err2 := g.LastIndex()
	if err := errors.Join(err1, err2); err != nil || last < index {
		return false, err
	}
	if newest := g.snaps.Newest(); newest.Index == index && newest.Term == term {
		return last > index, nil
	}
	if index < first {
		return false, nil
	}
	var l raft.Log
	err := g.GetLog(index, &l)
	return l.Term == term, err
}

// set changes the mark; the caller holds mu.
func (g *Log) set(m mark) error {
	if _, err := g.file.WriteAt(m.encode(), 0); err != nil {
		return err
	}
	g.mark = m
	return nil
}

// StoreLog implements raft.LogStore.
func (g *Log) StoreLog(l *raft.Log) error { return g.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore.
func (g *Log) StoreLogs(logs []*raft.Log) error {
	if len(logs) == 0 {
		return nil
	}
	if err := g.refuseCut(logs[0].Index); err != nil {
		return err
	}
	taken, err := g.async.add(logs, g.logStore.room)
	if err == nil && !taken {
		if err = g.async.drain(); err == nil {
			err = g.append(logs)
		}
	}
	if err == nil {
		g.grown.add(logs, g.snaps.Newest().Index)
		g.recent.add(logs)
		g.long.stored(logs)
		for _, l := range logs {
			g.configs.note(l)
		}
	}
	return err
}

// append writes entries to the disk, and after them the mark.
func (g *Log) append(logs []*raft.Log) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lost != nil {
		return g.lost
	}
	defer g.writing.begin(g.hooks.Clock)()
	err := g.logStore.StoreLogs(logs)
	if err == nil {
		err = errors.Join(g.set(mark{logs[len(logs)-1].Index, g.mark.base}), g.noteSettled())
	}
	if err != nil {
		g.trouble.wants(logs, g.logStore.lacked())
		return g.failed(err, errors.Is(err, ErrNoRoom) && !g.cut && !g.configures(logs))
	}
	g.cut = false
	g.stored(logs)
	return nil
}

// configures reports whether a leader changes the members: Raft goes on with the change even if it was not stored.
func (g *Log) configures(logs []*raft.Log) bool {
	return g.hooks.leads() && slices.ContainsFunc(logs, func(l *raft.Log) bool { return l.Type == raft.LogConfiguration })
}

// DeleteRange implements raft.LogStore. At the beginning of the log it keeps the entries that the node needs if the newest snapshot is
// damaged.
func (g *Log) DeleteRange(first, last uint64) error {
	if err := g.async.wait(last + 1); err != nil {
		return err
	}
	if done, err := g.cutEnd(first, last); done {
		return err
	}
	if last = min(last, g.snaps.covered()); last < first {
		return nil
	}
	g.long.forget()
	// The entries that are kept now are deleted after a later snapshot.
	if err := g.shorten(first, last); err != nil {
		return err
	}
	return g.begins()
}

// cutEnd deletes the end of the log; done: the range reaches that end. It first sets the mark back: log.last must name no missing entry.
func (g *Log) cutEnd(first, last uint64) (done bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if last < g.mark.last {
		return false, nil
	}
	if g.lost != nil {
		return true, g.lost
	}
	defer g.writing.begin(g.hooks.Clock)()
	if err := g.refuseCut(first); err != nil {
		return true, err
	}
	if err := g.prepare(); err != nil {
		g.trouble.wants(nil, g.logStore.lacked())
		return true, g.failed(err, true)
	}
	g.recent.forget()
	g.long.forget()
	g.configs.cut(first)
	if err = g.retract(first); err == nil {
		err = g.logStore.DeleteRange(first, last)
	}
	if err == nil {
		err = g.begins()
	}
	if err != nil {
		return true, g.failed(err, false)
	}
	g.cut = true
	if g.hooks.Cut != nil {
		g.hooks.Cut(first - 1)
	}
	return true, nil
}

func (g *Log) begins() error {
	low, err := g.FirstIndex()
	g.first.Store(low)
	return err
}

// retract sets the mark to the entry before first; if none is left, to an empty log behind the newest snapshot.
func (g *Log) retract(first uint64) error {
	low, err := g.FirstIndex()
	if err != nil {
		return err
	}
	m := mark{last: first - 1, base: g.mark.base}
	if first <= low {
		m = mark{base: g.snaps.Newest().Index}
	}
	return errors.Join(g.set(m), g.file.Sync())
}

// begin records that the log is empty and begins behind the snapshot whose index is base.
func (g *Log) begin(base uint64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return errors.Join(g.set(mark{base: base}), g.file.Sync())
}

// deleteStep is the highest number of entries that one transaction of bbolt deletes. An append
// has to wait for the end of the transaction.
const deleteStep = 500

func (g *Log) shorten(first, last uint64) error {
	if g.IsMonotonic() {
		return g.logStore.DeleteRange(first, last)
	}
	for ; first <= last; first += deleteStep {
		if err := g.logStore.DeleteRange(first, min(first+deleteStep-1, last)); err != nil {
			return err
		}
	}
	return nil
}

// LastIndex implements raft.LogStore.
func (g *Log) LastIndex() (uint64, error) {
	if err := g.async.drain(); err != nil {
		return 0, err
	}
	return g.logStore.LastIndex()
}

// GetLog implements raft.LogStore. Of a long entry it returns only the head, without the data (longEntries).
func (g *Log) GetLog(index uint64, l *raft.Log) error {
	if index >= g.first.Load() && g.long.get(index, l) {
		return nil
	}
	cuts := g.long.cuts.Load()
	err := g.Read(index, l)
	if err == nil {
		brake.Bring(2 * len(l.Data)) // twice: the log store has read the bytes, and copied them into the decoded entry
		g.long.note(l, cuts)
	}
	return err
}

// Read reads a whole entry, also a long one. Deleted entries are raft.ErrLogNotFound, though raft-wal may still have them.
func (g *Log) Read(index uint64, l *raft.Log) error {
	if index < g.first.Load() {
		return raft.ErrLogNotFound
	}
	if g.recent.get(index, l) {
		return nil
	}
	err := readSound(g.logStore, index, l)
	if err != nil && !errors.Is(err, raft.ErrLogNotFound) && g.hooks.Logger != nil && !g.closed.Load() {
		// Without a call of Fatal, Raft would panic on the error, or try to read this entry again and again.
		advice := "repair the disk and start again"
		if ofData(err) {
			advice = "it is damaged: " + AdviceRejoin
		}
		g.hooks.Fatal(fmt.Errorf("entry %d of the log could not be read from disk: %w; %s", index, err, advice))
	}
	if err == nil {
		g.configs.note(l)
	}
	return err
}

// Close implements logStore. Goroutines that answer peers may still call Read; it returns an error then.
func (g *Log) Close() error {
	g.closed.Store(true)
	err := errors.Join(g.async.close(), g.logStore.Close())
	if g.file != nil {
		err = errors.Join(err, g.file.Close())
	}
	if g.settledFile != nil {
		err = errors.Join(err, g.settledFile.Close())
	}
	return err
}

// AwaitWritten waits until the entry at index is on the disk. After a failed write it fails for every index.
func (g *Log) AwaitWritten(index uint64) error { return g.async.wait(index) }

// WriteError returns the error because of which entries that Raft takes for written are lost; nil if there is none.
func (g *Log) WriteError() error { return g.async.failed() }

// WrittenUpTo returns index, or the index of the last entry on the disk if that is lower.
func (g *Log) WrittenUpTo(index uint64) uint64 { return g.async.upTo(index) }
