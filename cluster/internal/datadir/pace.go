package datadir

import (
	"io"
	"runtime"
	"time"
)

// Work on a snapshot is not urgent. So that clients wait less, this package rests after each piece for as long as the piece took.

const (
	// workPiece is the least work between two rests. Shorter rests would last too long, because timers are inexact.
	workPiece = 4 * time.Millisecond
	// longestRest bounds a rest. If a piece of work took longer than that, the machine
	// stood still during the piece.
	longestRest = 50 * time.Millisecond
)

// pace makes a goroutine that calls its method add rest after each piece of work.
type pace struct {
	now  func() time.Duration
	stop <-chan struct{} // closing it ends the rests
	done time.Duration   // work since the last rest

	hurried func() bool // reports whether somebody waits for the end of the work, so that it must not rest; nil: nobody does
}

func newPace(now func() time.Duration, stop <-chan struct{}) *pace {
	return &pace{now: now, stop: stop}
}

// add counts the time since began as work. After workPiece of work, add rests, unless somebody waits for the end (hurried).
func (p *pace) add(began time.Duration) {
	p.done += p.now() - began
	if p.done < workPiece || p.hurried != nil && p.hurried() {
		runtime.Gosched() // so that other goroutines do not wait until the runtime interrupts this one
		return
	}
	rest := time.NewTimer(min(p.done, longestRest))
	defer rest.Stop()
	p.done = 0
	select {
	case <-rest.C:
	case <-p.stop:
	}
}

// pacedReader rests before a read for as long as its caller has worked since the last read.
type pacedReader struct {
	in    io.Reader
	pace  *pace
	began time.Duration // when the last read ended; 0: there was none
}

func (r *pacedReader) Read(b []byte) (int, error) {
	if r.began != 0 {
		r.pace.add(r.began)
	}
	n, err := r.in.Read(b)
	r.began = r.pace.now()
	return n, err
}

// pacedWriter rests after a write for as long as it took to make and to write the
// data.
type pacedWriter struct {
	out   io.Writer
	pace  *pace
	began time.Duration // when the caller began to make the data
}

func (w *pacedWriter) Write(b []byte) (int, error) {
	n, err := w.out.Write(b)
	w.pace.add(w.began)
	w.began = w.pace.now()
	return n, err
}
