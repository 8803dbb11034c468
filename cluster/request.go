package cluster

import (
	"sync/atomic"
	"time"

	"lockstep/raftfsm"
	"lockstep/store"
)

// request is a submission on its way through the leader: the commands of one
// pipeline, evaluated together and answered together.
type request struct {
	calls   []Call
	replies []store.Reply
	extent  int     // what they take
	wrote   bool    // it wrote something
	large   bool    // its reply is, and it has been put aside for that
	client  *Client // of this node, whose it is; nil: nobody's
	err     error   // errNotExecuted or errUnknown instead of replies

	from    ticket // of a write that may be sent again
	token   uint64 // of the link that it came by
	crowded bool   // much is kept for others: a long reply to it is not

	sleeper *sleeper      // set for a blocking command, which is alone
	claim   *claim        // set for a request that is no command
	held    bool          // it is not to be answered by the present batch
	cost    time.Duration // what its evaluation took, or stands for, if it was heavy work (yield.go)

	tried   bool          // a script of it has been stopped for now: it begins a batch
	overran int           // the call that writes too much, counted from 1; 0: none is known to …
	overrun store.Error   // … and what it is told
	spans   []span        // of the calls that have asked for a lease
	at      int64         // lease time of its evaluation
	began   int64         // wall time of that, in µs …
	used    time.Duration // … and how long it took
	anew    []grant       // what was granted before and begins now
	due     grants        // with errLate: they have to begin anew …
	since   time.Duration // … and its batch was begun at this monotonic time

	// runs is told that a script of the request has run for long; nil: nobody wants to know.
	// It must not wait.
	runs func()
	// finish is called once, when the outcome is known or given up.
	finish   func(*request)
	finished atomic.Bool
}

// complete ends the request. Of several callers (the batch, its watchdog, a
// loss of leadership) the first one wins.
func (r *request) complete(err error) {
	if r.finished.CompareAndSwap(false, true) {
		r.err = err
		if err == nil {
			r.client.holds(r.extent)
		}
		r.finish(r)
	}
}

// refuse answers every command of a request that had no effect.
func (r *request) refuse(e store.Error) {
	if r.finished.CompareAndSwap(false, true) {
		r.replies = errorReplies(r.replies[:0], len(r.calls), e)
		for i := range r.calls {
			if t := r.calls[i].Txn; t != nil && !t.Observe {
				r.replies[i] = store.Err(store.ErrExecAbort(e))
			}
		}
		r.finish(r)
	}
}

// refuseBusy is refuse for a request that has not been looked at. One that is
// sent again may have been executed the first time, so it has to wait.
func (r *request) refuseBusy(e store.Error) {
	if r.from.again {
		r.complete(errNotExecuted)
		return
	}
	r.refuse(e)
}

func errorReplies(dst []store.Reply, n int, e store.Error) []store.Reply {
	for range n {
		dst = append(dst, store.Err(e))
	}
	return dst
}

// readOnly reports whether running the calls twice would do no harm.
func readOnly(calls []Call) bool {
	for i := range calls {
		c := &calls[i]
		if c.Txn != nil && !readOnly(c.Txn.Calls) || c.Txn == nil && !c.Cmd.Is(store.ReadOnly) {
			return false
		}
	}
	return true
}

// batch is a group of requests that were evaluated together and stand in the
// log as one entry.
type batch struct {
	number   uint64
	prev     uint64 // sequence number it was evaluated on
	requests []*request
	answers  []raftfsm.Answer // to requests of other nodes that wrote something
	recorded int              // bytes of their replies
	replied  int              // about how many bytes the replies to all requests are
	finished atomic.Bool

	from      int64         // lease time at which its evaluation began …
	began     time.Duration // … and monotonic time
	writes    []byte        // an encoded store.WriteSet
	accepted  uint64        // its place in the history, for the sequencer
	proposing bool          // the sequencer waits for it; on pendingBatches.mu
	committed uint64        // its place in the history if it was accepted late; likewise
}

// reset empties a batch that is evaluated again.
func (b *batch) reset() {
	b.requests, b.answers, b.recorded, b.replied = b.requests[:0], b.answers[:0], 0, 0
}

// finish completes every request of the batch. Only the first call counts: the
// requests may be in use again by the time of a second one.
func (b *batch) finish(err error) {
	if !b.finished.CompareAndSwap(false, true) {
		return
	}
	for _, r := range b.requests {
		r.complete(err)
	}
}

// finishLate completes the requests of a batch that has been accepted as write
// set seq, maybe long ago and under another leader: the leases in it have to begin
// anew before their owners are told.
func (b *batch) finishLate(seq uint64) {
	if !b.finished.CompareAndSwap(false, true) {
		return
	}
	for _, r := range b.requests {
		r.completeLate(seq, b)
	}
}

func (r *request) completeLate(seq uint64, b *batch) {
	due := r.granted(seq, b.writes)
	switch {
	case len(due.list) == 0:
		r.complete(nil)
	case r.from.id != 0:
		r.complete(errUnknown) // its origin asks the next leader
	case r.finished.CompareAndSwap(false, true):
		r.due, r.since, r.err = due, b.began, errLate
		r.client.holds(r.extent)
		r.finish(r)
	}
}
