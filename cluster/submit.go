package cluster

import (
	"context"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"lockstep/store"
)

// How a submission finds the leader and waits through an election.
//
// A submission is tried again until it has been without a leader for Config.FailoverWait. The time for
// which a leader had it, behind a script or a slow disk, does not count: when that leader is lost, the
// wait begins at the moment when it was last heard of. This happens once. If the next leader has the
// submission when the wait is over, that leader answers it: each of its batches ends.
//
// Every batch has a watchdog of Config.FailoverWait, so a stalled disk does not hold the clients of
// that batch for ever. What comes behind the batch waits for the disk, or for the next leader. Several
// parties may complete one request; the first one counts (request.complete).

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

// Submit runs the calls in order, on the leader wherever it is, and returns when the
// outcome is known. dst is reused for the replies. A command that surely had no effect
// is tried again until FailoverWait has passed.
func (n *Node) Submit(calls []Call, dst []store.Reply) []store.Reply {
	dst = n.SubmitPart(nil, calls, dst)
	for len(dst) < len(calls) {
		dst = append(dst, n.SubmitPart(nil, calls[len(dst):], nil)...)
	}
	return dst
}

// SubmitPart is Submit that may run only the first of the calls: where their replies
// or writes are large (maxPartBytes), the others are not run. It returns one reply at
// least, and as many as calls have been run. The caller submits the others when it has
// room for their replies. It waits before, if the client does heavy work (yield.go); nil
// stands for the node itself.
func (n *Node) SubmitPart(client *Client, calls []Call, dst []store.Reply) []store.Reply {
	if heavy, patience := n.isHeavy(client, calls); heavy {
		return n.submitGivingWay(client, calls, dst, patience)
	}
	dst = n.submitPart(client, calls, dst)
	n.holdReplies(client, dst)
	return dst
}

func (n *Node) submitPart(client *Client, calls []Call, dst []store.Reply) []store.Reply {
	number := n.line.number()
	if seq := n.routes.get().seq; seq != nil && n.line.empty() {
		// The usual case, without a timer.
		replies, err := n.submitHere(seq, client, calls, dst, ticket{}, nil)
		if err == nil {
			return replies
		}
		if err != errNotExecuted && !readOnly(calls) {
			return errorReplies(dst[:0], len(calls), ErrIndeterminate)
		}
	}
	return n.submitWaiting(client, number, nil, calls, dst)
}

// submitHere has this node's sequencer run the calls. sent, if not nil, is
// called when they are queued there.
func (n *Node) submitHere(seq *sequencer, client *Client, calls []Call, dst []store.Reply, from ticket, sent func()) ([]store.Reply, error) {
	w := waiters.Get().(*waiter)
	w.req.calls, w.req.replies, w.req.err, w.req.from = calls, dst[:0], nil, from
	w.req.client = client
	w.req.overran, w.req.cost, w.req.tried, w.req.large = 0, 0, false, false
	w.req.finished.Store(false)
	queued := seq.enqueue(&w.req)
	if sent != nil {
		sent()
	}
	if queued {
		seq.flush()
	}
	<-w.done
	replies, err := w.req.replies, w.req.err
	if err == errLate {
		replies, err = n.confirm(w.req.due, w.req.since, replies), nil
	}
	if err == errUnknown {
		// The batch may still hold the request: leave it to the collector.
		return dst, err
	}
	n.remember(client, w.req.cost)
	w.req.calls, w.req.replies, w.req.client = nil, nil, nil
	waiters.Put(w)
	return replies, err
}

// retryPause keeps a submission that is refused at once from spinning.
const retryPause = 5 * time.Millisecond

// carried is a submission that another node has to run, or that waits until
// somebody can.
type carried struct {
	n      *Node
	ctx    context.Context // ends when it has been without a leader for long enough
	cancel context.CancelFunc
	client *Client       // whose it is
	wait   time.Duration // how long it may be without one
	due    time.Duration // when ctx ends, if no leader is lost
	lost   bool          // a leader that had it has been lost
	later  bool          // a leader had no room for its reply …
	asks   bool          // … and it asks for some, while others wait for it
	runs   atomic.Bool   // the leader has said that a script of it runs for long
	calls  []Call
	dst    []store.Reply
	from   ticket
	number uint64    // of its arrival
	place  *standing // in the line; nil: it is not there
}

// submitWaiting is Submit through an election. A write is sent again to each
// new leader, which knows whether it has been executed. place is nil if it has
// none in the line yet.
func (n *Node) submitWaiting(client *Client, number uint64, place *standing, calls []Call, dst []store.Reply) []store.Reply {
	return n.submitWithin(n.cfg.FailoverWait, client, number, place, calls, dst)
}

func (n *Node) submitWithin(wait time.Duration, client *Client, number uint64, place *standing, calls []Call, dst []store.Reply) []store.Reply {
	// Of those who came at one instant, who came first gives up first.
	wait += time.Duration(number % 1024)
	c := &carried{n: n, client: client, calls: calls, dst: dst, number: number, place: place, wait: wait, due: n.cfg.Time.Monotonic() + wait}
	c.ctx, c.cancel = context.WithTimeout(n.waits, wait)
	defer func() { c.cancel() }()
	if !readOnly(calls) {
		c.from = ticket{origin: n.boot, id: n.tickets.begin()}
		defer n.tickets.end(c.from.id)
	}
	defer c.sent()
	defer c.asked()
	for {
		rt := n.routes.get()
		var first <-chan struct{}
		var pause <-chan time.Time
		changed := rt.changed
		switch {
		case rt.seq == nil && rt.link == nil:
			if n.Removed() {
				return c.refused(ErrRemoved)
			}
			c.queue()
		case !c.turn():
			first, changed = c.place.first, nil
		case rt.link != nil && !c.hasRoom():
			pause = time.After(retryPause)
		default:
			replies, err := c.try(rt)
			if err == nil {
				return replies
			}
			pause = time.After(retryPause)
			if err == errReplyLater {
				c.putOff()
				break
			}
			c.from.again = c.from.again || err != errNotExecuted
			if c.suspect(err) {
				return errorReplies(c.dst[:0], len(c.calls), ErrIndeterminate)
			}
			if now := n.routes.get(); now.seq != rt.seq || now.link != rt.link {
				c.leaderLost()
			}
			c.queue()
		}
		select {
		case <-c.ctx.Done():
		case <-changed:
		case <-first:
		case <-pause:
		}
		if c.ctx.Err() != nil { // whatever else is ready
			return c.refused(c.whyNot())
		}
	}
}

// suspect reports whether a request that the leader was lost with may be the cause, and must
// not reach the next leader: a script that ran for long then may have taken its memory. The
// others of its batch, which waited or had been run, have not. What ends a process at once
// does not show in time, and looks like what was there when a leader is killed.
func (c *carried) suspect(err error) bool { return err != errNotExecuted && c.runs.Load() }

// leaderLost is called when a leader that had the request has been lost. The
// time that it was there for, behind a script or a slow disk, does not count: it
// may be without a leader for as long from when that one was last heard of.
// This is granted once, so that no request goes from leader to leader for ever.
func (c *carried) leaderLost() {
	if c.lost {
		return
	}
	c.lost = true
	left := c.wait - c.n.silence()
	if c.n.cfg.Time.Monotonic()+left > c.due {
		c.cancel()
		c.ctx, c.cancel = context.WithTimeout(c.n.waits, left)
	}
}

// putOffMost bounds how long a request waits until its leader has room for the reply.
const putOffMost = 10 * time.Second

// putOff is called when there is no room for the reply now, at the leader or here. Nobody behind it has to
// wait for that: it leaves the line; and so that the leader does not evaluate in vain for each, one asks for all who wait so.
func (c *carried) putOff() {
	if c.later {
		return
	}
	c.cancel()
	c.ctx, c.cancel = context.WithTimeout(c.n.waits, putOffMost)
	c.later = true
	c.sent()
	c.asks = c.n.asking.Acquire(c.ctx, 1) == nil
}

// hasRoom reports whether a request may be sent to the leader, for all that is in hand here: as long as there are large
// replies, long reads go one after the other.
func (c *carried) hasRoom() bool {
	h := &c.n.inHand
	if h.bytes.Load() == 0 || !areLongReads(c.calls) {
		return true
	}
	c.putOff()
	return !h.isFull()
}

// asked lets the next one ask.
func (c *carried) asked() {
	if c.asks {
		c.n.asking.Release(1)
	}
}

// silence is how long ago a leader was heard of; 0 if this node led.
func (n *Node) silence() time.Duration {
	if n.cons == nil {
		return 0
	}
	heard, known := n.cons.LastContact()
	if !known {
		return 0
	}
	return n.cfg.Time.Monotonic() - heard
}

// refused gives up: with why if it had no effect for certain.
func (c *carried) refused(why store.Error) []store.Reply {
	if c.from.again && c.from.id != 0 {
		why = ErrIndeterminate
	}
	return errorReplies(c.dst[:0], len(c.calls), why)
}

// queue takes its place in the line.
func (c *carried) queue() {
	if c.place == nil {
		c.place = c.n.line.join(c.number)
	}
}

// sent gives its place up: it is on its way, so the next may follow.
func (c *carried) sent() {
	if c.place != nil {
		c.n.line.leave(c.place)
		c.place = nil
	}
}

// turn reports whether everybody who came before has been sent.
func (c *carried) turn() bool {
	if c.place == nil && c.n.line.empty() {
		return true
	}
	c.queue()
	return c.n.line.isFirst(c.place)
}

func (c *carried) try(rt route) ([]store.Reply, error) {
	c.from.low = c.n.tickets.lowest()
	if rt.seq != nil {
		return c.n.submitHere(rt.seq, c.client, c.calls, c.dst, c.from, c.sent)
	}
	return c.there(rt)
}

// there forwards the calls to the leader. While it leads and the link stands it
// may take its time (a script, a slow disk), though the request have been sent
// before; once it is replaced its successor is to be asked.
func (c *carried) there(rt route) ([]store.Reply, error) {
	results := make(chan forwardResult, 1)
	c.runs.Store(false)
	giveUp := rt.link.callWaiting(frameSubmit,
		func(buf []byte) []byte {
			return appendSubmit(buf, c.from, rt.link.token, c.calls, rt.link.peer.speaks.minor)
		},
		&forwarded{
			client: c.client,
			done:   func(body []byte, err error) { results <- forwardResult{body, err} },
			waits:  func() { c.runs.Store(true) },
		})
	c.sent()
	changed := rt.changed
	var deadline <-chan struct{}
	for {
		select {
		case <-changed:
			select {
			case r := <-results:
				return c.received(rt.link, r)
			default:
			}
			c.leaderLost()
			// The old leader may still say what became of it, until there is
			// another one to ask; those who came later wait for that.
			c.queue()
			now := c.n.routes.get()
			changed, deadline = now.changed, c.ctx.Done()
			if now.seq != nil || now.link != nil {
				giveUp()
			}
		case <-deadline:
			giveUp()
			deadline = nil
		case r := <-results:
			return c.received(rt.link, r)
		}
	}
}

// forwardResult is what became of a forwarded call.
type forwardResult struct {
	body []byte
	err  error
}

// read decodes the body of a result. A client's large replies stay packed until they are encoded for it.
func (c *carried) read(body []byte) (replies []store.Reply, rest []byte, err error) {
	if c.client == nil || len(body) <= smallReply {
		return readReplies(body, c.dst[:0], store.ReadReply)
	}
	call := 0
	return readReplies(body, c.dst[:0], func(b []byte) (store.Reply, []byte, error) {
		levels := 0
		if call < len(c.calls) && c.calls[call].Txn != nil {
			levels = 1 // the session answers each command of a transaction
		}
		call++
		return store.ReadPacked(b, levels)
	})
}

// received decodes a result.
func (c *carried) received(l *link, r forwardResult) ([]store.Reply, error) {
	if r.err != nil {
		c.leaderLost() // or the link, which comes to the same
		return c.dst, r.err
	}
	replies, rest, err := c.read(r.body)
	if len(rest) > 0 && rest[0] == saysHeavy {
		cost, _ := binary.Uvarint(rest[1:]) // 0 from an earlier version
		c.n.remember(c.client, max(time.Duration(min(cost, uint64(yieldMost))), heavyTime))
	}
	c.client.holds(extent(replies))
	switch {
	case err == nil && len(replies) > 0 && len(replies) <= len(c.calls), err == errNotExecuted, err == errUnknown, err == errReplyLater:
		return replies, err
	case err == errStale:
		// The leader has lost and won an election on this link.
		l.fail()
		return c.dst, errNotExecuted
	}
	l.fail() // a peer that says what cannot be is not to be asked again
	return c.dst, errUnknown
}

// whyNot is what a client is told that has waited for long enough.
func (c *carried) whyNot() store.Error {
	if rt := c.n.routes.get(); c.later && (rt.seq != nil || rt.link != nil) {
		return ErrReplyLater
	}
	return c.n.downError()
}

// downError is what clients are told while there is no leader.
func (n *Node) downError() store.Error {
	if n.Trouble() != "" {
		return ErrDiskFull
	}
	return ErrClusterDown
}
