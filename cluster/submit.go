package cluster

import (
	"context"
	"sync"
	"time"

	"lockstep/store"
)

// route says where submissions go at present.
type route struct {
	seq     *sequencer    // this node leads
	link    *link         // or this one does
	changed chan struct{} // closed when the route changes
}

// router holds the present route.
type router struct {
	mu  sync.Mutex
	cur route
}

func newRouter() *router { return &router{cur: route{changed: make(chan struct{})}} }

func (r *router) get() route {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cur
}

// set changes the route, unless ctx has ended: a route to a leader that has
// been replaced meanwhile must not hide the one to its successor.
func (r *router) set(ctx context.Context, seq *sequencer, l *link) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	close(r.cur.changed)
	r.cur = route{seq: seq, link: l, changed: make(chan struct{})}
}

// drop ends a route if it is still the present one.
func (r *router) drop(seq *sequencer, l *link) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cur.seq == seq && r.cur.link == l {
		close(r.cur.changed)
		r.cur = route{changed: make(chan struct{})}
	}
}

// waiter is one Submit in progress.
type waiter struct {
	req  request
	done chan struct{}
}

var waiters = sync.Pool{New: func() any {
	w := &waiter{done: make(chan struct{}, 1)}
	w.req.finish = func(*request) { w.done <- struct{}{} }
	return w
}}

// Submit runs the calls as a unit, in order, on the leader wherever it is, and
// returns when the outcome is known. dst is reused for the replies. A command
// that surely had no effect is tried again until FailoverWait has passed.
func (n *Node) Submit(calls []Call, dst []store.Reply) []store.Reply {
	rt := n.routes.get()
	if rt.seq != nil {
		// The usual case, without a timer.
		replies, err := n.submitHere(rt.seq, calls, dst, ticket{})
		if err == nil {
			return replies
		}
		if err != errNotExecuted && !readOnly(calls) {
			return errorReplies(dst[:0], len(calls), ErrIndeterminate)
		}
	}
	return n.submitWaiting(calls, dst)
}

func (n *Node) submitHere(seq *sequencer, calls []Call, dst []store.Reply, from ticket) ([]store.Reply, error) {
	w := waiters.Get().(*waiter)
	w.req.calls, w.req.replies, w.req.err, w.req.from = calls, dst[:0], nil, from
	w.req.finished.Store(false)
	seq.submit(&w.req)
	<-w.done
	replies, err := w.req.replies, w.req.err
	if err == errUnknown {
		// The batch may still hold the request: leave it to the collector.
		return dst, err
	}
	w.req.calls, w.req.replies = nil, nil
	waiters.Put(w)
	return replies, err
}

// retryPause keeps a submission that is refused at once from spinning.
const retryPause = 5 * time.Millisecond

// submitWaiting is Submit through an election. A write is sent again to each
// new leader, which knows whether it has been executed.
func (n *Node) submitWaiting(calls []Call, dst []store.Reply) []store.Reply {
	ctx, cancel := context.WithTimeout(n.ctx, n.cfg.FailoverWait)
	defer cancel()
	var from ticket
	if !readOnly(calls) {
		from = ticket{origin: n.boot, id: n.tickets.begin()}
		defer n.tickets.end(from.id)
	}
	for {
		rt := n.routes.get()
		var replies []store.Reply
		err := errNotExecuted
		from.low = n.tickets.lowest()
		switch {
		case rt.seq != nil:
			replies, err = n.submitHere(rt.seq, calls, dst, from)
		case rt.link != nil:
			replies, err = n.submitThere(ctx, rt, calls, dst, from)
		}
		if err == nil {
			return replies
		}
		from.again = from.again || err != errNotExecuted
		pause := time.NewTimer(retryPause)
		select {
		case <-ctx.Done():
			pause.Stop()
			if from.again && from.id != 0 {
				return errorReplies(dst[:0], len(calls), ErrIndeterminate)
			}
			return errorReplies(dst[:0], len(calls), ErrClusterDown)
		case <-rt.changed:
			pause.Stop()
		case <-pause.C:
		}
	}
}

// submitThere forwards the calls to the leader. While it leads and the link
// stands it may take its time (a script, a slow disk); once it is replaced its
// successor is to be asked.
func (n *Node) submitThere(ctx context.Context, rt route, calls []Call, dst []store.Reply, from ticket) ([]store.Reply, error) {
	type result struct {
		body []byte
		err  error
	}
	results := make(chan result, 1)
	giveUp := rt.link.call(frameSubmit,
		func(buf []byte) []byte { return appendSubmit(buf, from, rt.link.token, calls) },
		func(body []byte, err error) { results <- result{body, err} })
	changed := rt.changed
	var deadline <-chan struct{}
	if from.again {
		deadline = ctx.Done()
	}
	for {
		select {
		case <-changed:
			// The old leader may still say what became of it, until there is
			// another one to ask.
			now := n.routes.get()
			changed, deadline = now.changed, ctx.Done()
			if now.seq != nil || now.link != nil {
				giveUp()
			}
		case <-deadline:
			giveUp()
			deadline = nil
		case r := <-results:
			if r.err != nil {
				return dst, r.err
			}
			replies, err := readResult(r.body, dst[:0])
			switch {
			case err == nil && len(replies) == len(calls), err == errNotExecuted, err == errUnknown:
				return replies, err
			case err == errStale:
				// The leader has lost and won an election on this link.
				rt.link.fail()
				return dst, errNotExecuted
			}
			rt.link.fail() // a peer that says what cannot be is not to be asked again
			return dst, errUnknown
		}
	}
}
