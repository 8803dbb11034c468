package fair

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Inbox holds the requests that wait for the next batch of a leader. The goroutine that leads runs the batches; on an ephemeral node,
// mostly the submitters do. running is set while a goroutine runs batches. handed is set, too, if the next batches are for the goroutine
// that leads.
type Inbox[R comparable] struct {
	Wake chan struct{} // has room for one value, which wakes the goroutine that leads

	full     chan struct{} // has room for one value, which says that as many requests wait as the field want says
	patience *time.Timer   // bounds the wait in Await

	mu      sync.Mutex
	queue   []R
	spare   []R  // memory for the next queue
	want    int  // number of requests that Await waits for; 0: it does not wait
	busy    bool // the running script has run for longer than the busy threshold
	closed  bool
	running bool
	handed  bool
}

// NewInbox returns an empty Inbox, whose batches no goroutine runs yet.
func NewInbox[R comparable]() Inbox[R] {
	return Inbox[R]{Wake: make(chan struct{}, 1), full: make(chan struct{}, 1), patience: stoppedTimer()}
}

func stoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// Add queues a request, unless the Inbox is closed, or a long script runs and the request is not patient (busy).
func (i *Inbox[R]) Add(r R, patient bool) (closed, busy bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	busy = i.busy && !patient
	if !i.closed && !busy {
		i.queue = append(i.queue, r)
	}
	return i.closed, busy
}

// Remove takes a request out of the queue. It looks from the end, because most of those who give up have come lately.
func (i *Inbox[R]) Remove(r R) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for at, other := range slices.Backward(i.queue) {
		if other == r {
			i.queue = slices.Delete(i.queue, at, at+1)
			return
		}
	}
}

// Begin tells a submitter what to do, by the first result that is true:
//
//   - run: run the requests, and then call Release or HandOver.
//   - enough: call SignalFull.
//   - any: call Signal.
func (i *Inbox[R]) Begin(inline bool) (run, enough, any bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	any = len(i.queue) > 0
	if enough = i.want > 0 && len(i.queue) >= i.want; enough {
		i.want = 0
	}
	run = any && inline && !i.running
	i.running = i.running || run
	return run, enough, any
}

// Signal wakes the goroutine that leads.
func (i *Inbox[R]) Signal() {
	select {
	case i.Wake <- struct{}{}:
	default:
	}
}

// SignalFull makes Await return.
func (i *Inbox[R]) SignalFull() {
	select {
	case i.full <- struct{}{}:
	default:
	}
}

// Take takes all requests out of the queue, and returns them.
func (i *Inbox[R]) Take() []R {
	q, _ := i.TakeUnless(func([]R) bool { return false })
	return q
}

// TakeUnless is Take, but it takes nothing and returns false if the function leave returns true for the queued requests.
func (i *Inbox[R]) TakeUnless(leave func(q []R) bool) (q []R, taken bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if leave(i.queue) {
		return nil, false
	}
	q = i.queue
	clear(i.spare[:cap(i.spare)]) // it would keep requests with their arguments long after they were answered
	i.queue, i.spare = i.spare[:0], q
	i.wantNone()
	return q, true
}

// TakeMore takes all requests out of the queue, and returns q with them added.
func (i *Inbox[R]) TakeMore(q []R) []R {
	i.mu.Lock()
	defer i.mu.Unlock()
	q = append(q, i.queue...)
	clear(i.queue)
	i.queue = i.queue[:0]
	i.wantNone()
	return q
}

// wantNone notes that Await does not wait, and takes back a signal that Await has not read; mu is held.
func (i *Inbox[R]) wantNone() {
	i.want = 0
	select {
	case <-i.full:
	default:
	}
}

// Await returns when the queue has at least that many requests, when patience has passed, or when ctx ends.
func (i *Inbox[R]) Await(ctx context.Context, requests int, patience time.Duration) {
	i.mu.Lock()
	enough := len(i.queue) >= requests
	if !enough {
		i.want = requests
	}
	i.mu.Unlock()
	if enough {
		return
	}
	i.patience.Reset(patience)
	select {
	case <-i.full:
	case <-i.patience.C:
	case <-ctx.Done():
	}
	i.patience.Stop()
}

// PutBack puts requests back at the front of the queue.
func (i *Inbox[R]) PutBack(q []R) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.queue = append(q, i.queue...)
	i.spare = nil // it may be the memory of q
}

// Look calls f with the queued requests, and leaves them in the queue. mu is held while f runs.
func (i *Inbox[R]) Look(f func(q []R)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	f(i.queue)
}

func (i *Inbox[R]) Waiting() (n int) {
	i.Look(func(q []R) { n = len(q) })
	return n
}

// Hand makes the goroutine that leads run the first requests; submitters may run later ones. Hand must be called before other
// goroutines use the Inbox.
func (i *Inbox[R]) Hand() { i.running, i.handed = true, true }

// Shut takes all requests out of the queue. Then Add accepts none if forever is true, else only patient ones until Open.
func (i *Inbox[R]) Shut(forever bool) []R {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closed, i.busy = i.closed || forever, i.busy || !forever
	q := i.queue
	i.queue = nil
	return q
}

// Open reverses a Shut that was for a long script: Add again accepts requests that are not patient. Open reports whether there was such a
// Shut.
func (i *Inbox[R]) Open() (was bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	was = i.busy
	i.busy = false
	return was
}

func (i *Inbox[R]) IsBusy() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.busy
}

// Release notes that the caller no longer runs requests, and returns true. If requests are queued, it returns false, and the caller
// has to run them.
func (i *Inbox[R]) Release() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.running = len(i.queue) > 0
	return !i.running
}

// Acquire reserves the running of requests for its caller, the goroutine that leads. It returns false if a submitter runs requests
// and has not called HandOver.
func (i *Inbox[R]) Acquire() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.running && !i.handed {
		return false
	}
	i.running, i.handed = true, false
	return true
}

// HandOver ends the running of requests by a submitter, and makes the goroutine that leads run them.
func (i *Inbox[R]) HandOver() {
	i.mu.Lock()
	i.handed = true
	i.mu.Unlock()
	i.Signal()
}
