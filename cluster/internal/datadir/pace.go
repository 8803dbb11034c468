package datadir

import (
	"io"
	"runtime"
	"time"
)

// Writing a snapshot of a million locks, or reading one from a peer, takes a
// second of CPU time and dozens of disk syncs. In one go, it would delay this
// node's clients and everything else on the machine. A snapshot is not urgent, so
// this package works on it at half speed: after each piece of work it rests for as
// long as the work took.

const (
	// workPiece is how much work is done between two rests. The timers of the
	// system do not go below a millisecond.
	workPiece = 4 * time.Millisecond
	// longestRest bounds a rest: if a piece took longer, the machine stood still
	// meanwhile.
	longestRest = 50 * time.Millisecond
)

// pace makes work rest between its pieces.
type pace struct {
	now  func() time.Duration
	stop <-chan struct{} // closing it ends the rests
	done time.Duration   // work since the last rest

	hurried func() bool // reports whether somebody waits for the end of the work; nil: nobody does
}

func newPace(now func() time.Duration, stop <-chan struct{}) *pace {
	return &pace{now: now, stop: stop}
}

// add counts the work since the time began. It rests if there was enough work and nobody waits for its end.
func (p *pace) add(began time.Duration) {
	p.done += p.now() - began
	if p.done < workPiece || p.hurried != nil && p.hurried() {
		runtime.Gosched() // other goroutines need not wait until the runtime interrupts this one
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

// pacedReader rests for as long as its caller worked on the data of the last read.
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

// pacedWriter rests for as long as it took to make and write the data of the last
// write.
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
