package peerport

import (
	"net"
	"slices"
)

// Peers wait in the kernel's queue behind strangers. So the node empties the queue before it does anything else for strangers. The queue
// is short, too: a peer in it is accepted before it gives up, and a peer that does not get in tries again (dialAgain).

const (
	// queueLength is the length of the kernel's queue, which even a tenth of a processor empties in a tenth of a second.
	queueLength = 512
	// takeBatch is the largest number of callers that the node takes out of the kernel's queue before it starts some (startBatch).
	takeBatch = 256
	// startBatch is how many callers are started before the node looks into the kernel's queue again.
	startBatch = 32
)

// waiting are the callers that have been accepted and not started.
type waiting struct {
	lines [2][]*arrival // oldest first; [1]: those from addresses at which peers have proved themselves
	known bool          // next has last looked into lines[1] first
}

func (w *waiting) add(a *arrival) {
	i := 0
	if a.of.known.has(a.from) {
		i = 1
	}
	w.lines[i] = append(w.lines[i], a)
}

// next removes and returns the caller that is started next. The lines take turns, so that neither keeps the other out.
func (w *waiting) next() (a *arrival) {
	w.known = !w.known
	i := 0
	if w.known && len(w.lines[1]) > 0 || len(w.lines[0]) == 0 {
		i = 1
	}
	if len(w.lines[i]) > 0 {
		a = w.lines[i][0]
		w.lines[i] = w.lines[i][1:]
	}
	return a
}

// forget forgets the callers that have been cut off, so that no more than maxStrangers remain.
func (w *waiting) forget() {
	for i := range w.lines {
		w.lines[i] = slices.DeleteFunc(w.lines[i], (*arrival).wasCutOff)
	}
}

// admitWaiting admits the callers that wait in the kernel's queue, and starts those that are not cut off.
// It returns when nobody waits any more.
func (p *Port) admitWaiting(take func(net.Listener, int, func(net.Conn)) (more bool)) {
	w := waiting{}
	for more, left := true, false; more || left; {
		more = take(p.ln, takeBatch, func(conn net.Conn) {
			if a := p.arrivals.register(conn); a != nil {
				w.add(a)
			}
		})
		w.forget()
		left = true
		for range startBatch {
			a := w.next()
			if a == nil {
				left = false
				break
			}
			p.start(a)
		}
	}
}

func (p *Port) start(a *arrival) {
	if a.start() {
		go p.sort(a)
	}
}
