package audit

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lockstep-io/lockstep/server/history"
	"github.com/lockstep-io/lockstep/store"
)

// Writer writes the events of a history into a directory.
type Writer struct {
	dir  string
	most int64 // bytes of all files
	log  *slog.Logger
	lock *os.File

	out    *os.File
	number int
	size   int64 // bytes of complete lines in out
	buf    []byte

	position uint64 // the files have all events of the write sets up to this one …
	last     uint64 // … and the first of those of this write set …
	events   int    // … that many
	again    int    // how many events of the write set last have come again
	latest   int64  // the latest time of an event in the files, Unix time in ms

	failures int // to write
	stop     chan struct{}
	done     chan struct{}
}

const (
	// readEvery is how often the events are read from the history, and flushEvery is how often they are written and synced.
	readEvery  = 100 * time.Millisecond
	flushEvery = time.Second
	// flushBytes is how many bytes of events are written at once at most, and how many more may come by one block of the history.
	flushBytes = 256 << 10
	// parts is how many files the size of the directory is divided into: when it is full, one part is deleted.
	parts = 16
	// LeastSize is the smallest size of the directory.
	LeastSize = 1 << 20
	// warnEvery is how often the log says that events cannot be written.
	warnEvery = time.Minute
)

// Open prepares a directory, which is created if it does not exist. The files may have that many bytes together.
func Open(dir string, most int64, log *slog.Logger) (*Writer, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	w := &Writer{dir: dir, most: max(most, LeastSize), log: log, lock: lock, stop: make(chan struct{}), done: make(chan struct{})}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: another process writes to it: give each node a directory of its own", dir), lock.Close())
	}
	if err := w.resume(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", dir, err), lock.Close())
	}
	return w, nil
}

// resume finds out what the files have, and opens the last one.
func (w *Writer) resume() error {
	switch text, err := os.ReadFile(filepath.Join(w.dir, positionName)); {
	case err == nil && len(text) == 0: // a machine that lost its power; the files of events tell nearly as much
		w.log.Warn("the position of --audit-dir is empty", "dir", w.dir)
	case err == nil:
		if w.position, err = strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err != nil {
			return fmt.Errorf("%s: %w; delete it, and the history begins with a gap", positionName, err)
		}
	case !errors.Is(err, os.ErrNotExist):
		return err
	}
	files, err := list(w.dir)
	if err != nil || len(files) == 0 {
		return err
	}
	// The last file may have no event yet, so the one before it counts, too.
	for _, f := range files[max(len(files)-2, 0):] {
		if err := w.reopen(f); err != nil {
			return err
		}
	}
	return nil
}

// reopen counts the events of a file, cuts off a torn line, and goes on with the file.
func (w *Writer) reopen(f file) error {
	if w.out != nil {
		if err := w.out.Close(); err != nil {
			return err
		}
	}
	out, err := os.OpenFile(f.path, os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	w.out, w.number = out, f.number
	r := newReader(out, f.path)
	for {
		e, err := r.next()
		if err == io.EOF || err == errTorn {
			break
		}
		if err != nil {
			w.log.Error("a file of --audit-dir is damaged; it stays as it is, and the events go on in another one", "error", err)
			w.gap("the file before is damaged")
			return w.leave()
		}
		w.count(e)
	}
	w.size = r.read
	if err := out.Truncate(w.size); err != nil {
		return err
	}
	_, err = out.Seek(w.size, io.SeekStart)
	return err
}

// leave ends the last file, so that the next events go to a new one.
func (w *Writer) leave() error {
	out := w.out
	w.out = nil
	return out.Close()
}

// gap writes that events may be missing until the position.
func (w *Writer) gap(why string) {
	e := history.Event{LockEvent: store.LockEvent{How: store.LockGap, Reason: why}, Seq: w.position, At: w.latest}
	w.buf = append(append(e.AppendJSON(nil), '\n'), w.buf...)
}

// deleted reports whether somebody has deleted the last file, or the whole directory.
func (w *Writer) deleted() bool {
	here, err := os.Stat(w.out.Name())
	if err != nil {
		return errors.Is(err, os.ErrNotExist)
	}
	mine, err := w.out.Stat()
	return err == nil && !os.SameFile(here, mine)
}

// count notes that the files have an event.
func (w *Writer) count(e history.Event) {
	if e.Seq != w.last {
		w.last, w.events = e.Seq, 0
	}
	w.events++
	w.latest = max(w.latest, e.At)
	if e.Seq > 0 {
		w.position = max(w.position, e.Seq-1)
	}
}

// known reports whether the files have an event already.
func (w *Writer) known(e *history.Event) bool {
	switch {
	case e.How == store.LockGap:
		return e.Seq <= w.position && e.Reason != history.Switched
	case e.Seq <= w.position && e.At > w.latest:
		w.begins(e)
		return false
	case e.Seq <= w.position:
		return true
	case e.Seq != w.last || w.again == w.events:
		return false
	}
	w.again++
	return true
}

// anotherState is the reason of the gap that begins writes. The numbers of the write sets begin again behind it.
const anotherState = "the node has another state than before"

// begins notes that the state of the node is not the one of which the files tell, but that of a backup: its numbers begin below those in the files.
func (w *Writer) begins(e *history.Event) {
	gap := history.Event{LockEvent: store.LockEvent{How: store.LockGap, Reason: anotherState}, Seq: e.Seq - min(e.Seq, 1), At: e.At, Lease: e.Lease}
	w.buf = append(gap.AppendJSON(w.buf), '\n')
	w.position, w.last, w.events = gap.Seq, 0, 0
}

// Run writes the events of a history until Close.
func (w *Writer) Run(h *history.History) {
	defer close(w.done)
	tick := time.NewTicker(readEvery)
	defer tick.Stop()
	var at history.Cursor
	ending, reads := false, 0
	for {
		events, next, upTo, more := h.Next(at)
		for i := range events {
			if e := &events[i]; !w.known(e) {
				w.buf = append(e.AppendJSON(w.buf), '\n')
			}
		}
		at = next
		switch {
		case len(w.buf) >= flushBytes:
			w.flush(0, ending)
		case more == nil:
		case ending:
			w.flush(upTo, ending)
			return
		case reads >= int(flushEvery/readEvery):
			reads = 0
			w.flush(upTo, ending)
		}
		if more == nil {
			continue
		}
		select {
		case <-w.stop:
			ending = true // what has come until now is still written
		case <-tick.C:
			reads++
		}
	}
}

// flush writes the events to the disk, with the position if upTo is not 0. It tries again until it can, or the Writer ends.
func (w *Writer) flush(upTo uint64, ending bool) {
	for {
		err := w.write(upTo)
		if err == nil {
			return
		}
		if w.failures++; w.failures%int(warnEvery/flushEvery) == 1 {
			w.log.Error("events of locks cannot be written (--audit-dir); the node keeps the latest of them in memory, and tries again", "dir", w.dir, "error", err)
		}
		if ending {
			return
		}
		select {
		case <-w.stop:
			ending = true
		case <-time.After(flushEvery):
		}
	}
}

func (w *Writer) write(upTo uint64) error {
	if len(w.buf) > 0 {
		if err := w.append(); err != nil {
			return err
		}
	}
	if upTo <= w.position {
		return nil
	}
	return w.note(upTo)
}

// append writes buf to the last file, or to a new one, and syncs it.
func (w *Writer) append() error {
	if w.out != nil && w.deleted() {
		w.log.Error("the files of --audit-dir were deleted; the events go on in a new one", "dir", w.dir)
		w.gap("the files were deleted")
		if err := errors.Join(w.leave(), os.MkdirAll(w.dir, 0o700)); err != nil {
			return err
		}
	}
	if w.out == nil || w.size >= w.most/parts {
		if err := w.rotate(); err != nil {
			return err
		}
	}
	if _, err := w.out.WriteAt(w.buf, w.size); err != nil {
		return err // the next attempt writes the same bytes at the same place
	}
	if err := w.out.Sync(); err != nil {
		return err
	}
	w.size += int64(len(w.buf))
	if w.buf = w.buf[:0]; cap(w.buf) > 2*flushBytes {
		w.buf = nil
	}
	return nil
}

// rotate begins a new file, and deletes the oldest ones beyond the size.
func (w *Writer) rotate() error {
	out, err := os.OpenFile(filepath.Join(w.dir, fmt.Sprintf(namePattern, w.number+1)), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if w.out != nil {
		if err := w.out.Close(); err != nil {
			w.log.Warn("a file of events could not be closed", "error", err)
		}
	}
	w.out, w.number, w.size = out, w.number+1, 0
	files, err := list(w.dir)
	if err != nil {
		return err
	}
	total := w.most / parts // for the new file
	for _, f := range files {
		total += f.size
	}
	for _, f := range files {
		if total <= w.most || f.number == w.number {
			return nil
		}
		if err := os.Remove(f.path); err != nil {
			return err
		}
		total -= f.size
	}
	return nil
}

// note writes the position, in place of the former one at once.
func (w *Writer) note(position uint64) error {
	path := filepath.Join(w.dir, positionName)
	if err := os.WriteFile(path+".new", fmt.Appendf(nil, "%d\n", position), 0o600); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	w.position = position
	return nil
}

// Close writes what the history has, and ends the Writer. Run must have been called. A nil Writer has nothing to end.
func (w *Writer) Close() error {
	if w == nil {
		return nil
	}
	close(w.stop)
	<-w.done
	var err error
	if w.out != nil {
		err = w.out.Close()
	}
	return errors.Join(err, w.lock.Close())
}
