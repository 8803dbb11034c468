package fair

import (
	"context"
	"sync"
	"time"
)

// Inbox holds the requests that wait for the next batch of a leader.
//
// On a node without a log any submitter may run batches, one submitter at a time. The field running is set while a goroutine
// runs batches, and handed if that goroutine wants the one that leads to take over.
type Inbox[R any] struct {
	Wake chan struct{} // has room for one: there is work

	full     chan struct{} // has room for one: want has been reached
	patience *time.Timer   // of Await

	mu      sync.Mutex
	queue   []R
	spare   []R  // memory for the next queue
	want    int  // number of requests that Await waits for
	busy    bool // a script has run for longer than the busy threshold
	closed  bool
	running bool
	handed  bool
}

// NewInbox returns an Inbox that nobody runs.
func NewInbox[R any]() Inbox[R] {
	return Inbox[R]{Wake: make(chan struct{}, 1), full: make(chan struct{}, 1), patience: stoppedTimer()}
}

func stoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// Add queues a request. It refuses the request, and says why, if the inbox is closed, or if a long script runs and the request is
// not patient.
func (i *Inbox[R]) Add(r R, patient bool) (closed, busy bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	busy = i.busy && !patient
	if !i.closed && !busy {
		i.queue = append(i.queue, r)
	}
	return i.closed, busy
}

// Begin tells a submitter what to do about queued requests: run them (only with inline, and if nobody does), or end Await
// (enough), or wake the goroutine that leads (any).
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

// SignalFull ends Await.
func (i *Inbox[R]) SignalFull() {
	select {
	case i.full <- struct{}{}:
	default:
	}
}

// Take returns the waiting requests.
func (i *Inbox[R]) Take() []R {
	i.mu.Lock()
	defer i.mu.Unlock()
	q := i.queue
	clear(i.spare[:cap(i.spare)]) // it would keep requests with their arguments long after they were answered
	i.queue, i.spare = i.spare[:0], q
	i.wantNone()
	return q
}

// TakeMore returns q with the waiting requests added.
func (i *Inbox[R]) TakeMore(q []R) []R {
	i.mu.Lock()
	defer i.mu.Unlock()
	q = append(q, i.queue...)
	clear(i.queue)
	i.queue = i.queue[:0]
	i.wantNone()
	return q
}

// wantNone ends the wait for full; mu is held.
func (i *Inbox[R]) wantNone() {
	i.want = 0
	select {
	case <-i.full:
	default:
	}
}

// Await returns when that many requests are queued, when patience has passed, or when ctx ends.
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
	i.spare = nil // q may use its memory
}

// Look calls f with the waiting requests, which stay.
func (i *Inbox[R]) Look(f func(q []R)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	f(i.queue)
}

func (i *Inbox[R]) Waiting() (n int) {
	i.Look(func(q []R) { n = len(q) })
	return n
}

// Hand makes the goroutine that leads run the first requests: submitters may run later ones.
func (i *Inbox[R]) Hand() { i.running, i.handed = true, true }

// Shut returns the waiting requests. With forever, Add accepts no more requests, because the leader's term ends. Without it, Add
// accepts only patient requests until Open, because a script runs for long.
func (i *Inbox[R]) Shut(forever bool) []R {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closed, i.busy = i.closed || forever, i.busy || !forever
	q := i.queue
	i.queue = nil
	return q
}

// Open reverses a Shut for a long script: Add also accepts requests that are not patient. It reports whether there was such a Shut.
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

// Release notes that the caller runs requests no more, and returns true. If requests wait, it returns false, and the caller
// has to run them.
func (i *Inbox[R]) Release() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.running = len(i.queue) > 0
	return !i.running
}

// Acquire lets the caller run requests, also instead of a submitter who has handed them over. It returns false if a
// submitter runs them.
func (i *Inbox[R]) Acquire() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.running && !i.handed {
		return false
	}
	i.running, i.handed = true, false
	return true
}

// HandOver has the goroutine that leads run the requests.
func (i *Inbox[R]) HandOver() {
	i.mu.Lock()
	i.handed = true
	i.mu.Unlock()
	i.Signal()
}
