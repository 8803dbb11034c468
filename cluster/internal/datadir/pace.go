package datadir

import (
	"io"
	"runtime"
	"time"
)

// Writing a snapshot of a million locks, or reading one from a peer, is a second
// of work for a core and dozens of waits for the disk. Done in one go it makes
// everybody wait who has use for either: this node's clients, and what else runs
// on the machine. Nobody is in a hurry for it, so it is done at half speed: as
// long as a piece of work took, so long is the rest after it.

const (
	// workPiece is how much work is done between two rests. The timers of the
	// system do not go below a millisecond.
	workPiece = 4 * time.Millisecond
	// longestRest: what took longer was not work, but waiting for a machine
	// that stood still.
	longestRest = 50 * time.Millisecond
)

// pace has work that is done in pieces rest between them.
type pace struct {
	now  func() time.Duration
	stop <-chan struct{} // when it is closed there are no more rests
	done time.Duration   // work since the last rest
}

func newPace(now func() time.Duration, stop <-chan struct{}) *pace {
	return &pace{now: now, stop: stop}
}

// add counts work that was begun at a time, and rests if it is enough.
func (p *pace) add(began time.Duration) {
	p.done += p.now() - began
	if p.done < workPiece {
		runtime.Gosched() // whoever is ready need not wait until the runtime interrupts this
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

// pacedReader rests for as long as was worked on what it gave out.
type pacedReader struct {
	in    io.Reader
	pace  *pace
	began time.Duration // 0: nothing has been read yet
}

func (r *pacedReader) Read(b []byte) (int, error) {
	if r.began != 0 {
		r.pace.add(r.began)
	}
	n, err := r.in.Read(b)
	r.began = r.pace.now()
	return n, err
}

// pacedWriter rests for as long as it took to make what is written, and to write
// it.
type pacedWriter struct {
	out   io.Writer
	pace  *pace
	began time.Duration
}

func (w *pacedWriter) Write(b []byte) (int, error) {
	n, err := w.out.Write(b)
	w.pace.add(w.began)
	w.began = w.pace.now()
	return n, err
}
