package cluster

import (
	"sync/atomic"

	"lockstep/store"
)

// request is a submission on its way through the leader: the commands of one
// pipeline, evaluated together and answered together.
type request struct {
	calls   []Call
	replies []store.Reply
	err     error // errNotExecuted or errUnknown instead of replies

	sleeper *sleeper // set for a blocking command, which is alone
	claim   *claim   // set for a request that is no command
	held    bool     // it is not to be answered by the present batch

	// finish is called once, when the outcome is known or given up.
	finish   func(*request)
	finished atomic.Bool
}

// complete ends the request. Of several callers (the batch, its watchdog, a
// loss of leadership) the first one wins.
func (r *request) complete(err error) {
	if r.finished.CompareAndSwap(false, true) {
		r.err = err
		r.finish(r)
	}
}

// refuse answers every command of a request that had no effect.
func (r *request) refuse(e store.Error) {
	if r.finished.CompareAndSwap(false, true) {
		r.replies = errorReplies(r.replies[:0], len(r.calls), e)
		r.finish(r)
	}
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
		if !calls[i].Cmd.Is(store.ReadOnly) {
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
	finished atomic.Bool
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
