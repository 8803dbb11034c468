package cluster

import (
	"context"
	"sync"
	"time"
)

// inbox holds the requests that wait for the next batch of a leader.
//
// On an ephemeral node any submitter may run batches, one at a time: running says that one does, and handed that it wants
// the goroutine of sequencer.lead to take over.
type inbox struct {
	wake     chan struct{} // has room for one: there is work
	full     chan struct{} // has room for one: want has been reached
	patience *time.Timer   // of await

	mu      sync.Mutex
	queue   []*request
	spare   []*request // memory for the next queue
	want    int        // number of requests that await waits for
	busy    bool       // a script has run for longer than the busy threshold
	closed  bool
	running bool
	handed  bool
}

func newInbox() inbox {
	return inbox{wake: make(chan struct{}, 1), full: make(chan struct{}, 1), patience: newStoppedTimer()}
}

func newStoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// add queues a request. It does not, and says why, if the inbox is closed, or if a long script runs.
func (i *inbox) add(r *request) (closed, busy bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.closed && !i.busy {
		i.queue = append(i.queue, r)
	}
	return i.closed, i.busy
}

// begin reports what to do about queued requests: run them, if nobody does; or wake who waits for enough of them, or for
// any. Only submitters of an ephemeral node run requests.
func (i *inbox) begin(ephemeral bool) (run, enough, any bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	any = len(i.queue) > 0
	if enough = i.want > 0 && len(i.queue) >= i.want; enough {
		i.want = 0
	}
	run = any && ephemeral && !i.running
	i.running = i.running || run
	return run, enough, any
}

// signal wakes the goroutine of sequencer.lead.
func (i *inbox) signal() {
	select {
	case i.wake <- struct{}{}:
	default:
	}
}

// signalFull ends await.
func (i *inbox) signalFull() {
	select {
	case i.full <- struct{}{}:
	default:
	}
}

// take returns the waiting requests.
func (i *inbox) take() []*request {
	i.mu.Lock()
	defer i.mu.Unlock()
	q := i.queue
	i.queue, i.spare = i.spare[:0], q
	i.wantNone()
	return q
}

// takeMore returns q with the waiting requests added.
func (i *inbox) takeMore(q []*request) []*request {
	i.mu.Lock()
	defer i.mu.Unlock()
	q = append(q, i.queue...)
	i.queue = i.queue[:0]
	i.wantNone()
	return q
}

// wantNone ends the wait for full; mu is held.
func (i *inbox) wantNone() {
	i.want = 0
	select {
	case <-i.full:
	default:
	}
}

// await returns when so many requests are queued, when patience has passed, or when ctx ends.
func (i *inbox) await(ctx context.Context, requests int, patience time.Duration) {
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

// putBack puts requests back at the front of the queue.
func (i *inbox) putBack(q []*request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.queue = append(q, i.queue...)
	i.spare = nil // q may use its memory
}

// look calls f with the waiting requests, which stay.
func (i *inbox) look(f func(q []*request)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	f(i.queue)
}

func (i *inbox) waiting() (n int) {
	i.look(func(q []*request) { n = len(q) })
	return n
}

// shut returns the waiting requests, and has add refuse all others: until open, because a script runs for long, or, if
// forever is set, because the leader's term ends.
func (i *inbox) shut(forever bool) []*request {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closed, i.busy = i.closed || forever, i.busy || !forever
	q := i.queue
	i.queue = nil
	return q
}

// open has add take requests again, and reports whether a long script had shut the inbox.
func (i *inbox) open() (was bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	was = i.busy
	i.busy = false
	return was
}

func (i *inbox) isBusy() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.busy
}

// release notes that nobody runs requests, unless some wait, and reports whether it did.
func (i *inbox) release() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.running = len(i.queue) > 0
	return !i.running
}

// acquire lets the caller run requests, also instead of a submitter who has handed them over. It returns false if a
// submitter runs them.
func (i *inbox) acquire() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.running && !i.handed {
		return false
	}
	i.running, i.handed = true, false
	return true
}

// handOver has the goroutine of sequencer.lead run the requests.
func (i *inbox) handOver() {
	i.mu.Lock()
	i.handed = true
	i.mu.Unlock()
	i.signal()
}
