package datadir

import (
	"io"
	"runtime"
	"time"
)

// Writing a snapshot of a million locks, or reading one from a peer, takes a
// second of CPU time and dozens of disk syncs. Without a pause, this work would delay
// the node's clients and everything else on the machine. A snapshot is not urgent, so
// this package works on it at half speed: after each piece of work it rests for as
// long as that piece took.

const (
	// workPiece is the least work between two rests. A rest shorter than that would last
	// longer than it should, because timers are only accurate to about a millisecond.
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

// add counts the time from began, an earlier result of p.now, until now as work. It rests if the work since the last rest took
// workPiece or longer, unless somebody waits for the end of the work (hurried).
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
