package cluster

import (
	"context"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/call"
	"github.com/lockstep-io/lockstep/cluster/internal/fair"
	"github.com/lockstep-io/lockstep/cluster/internal/forward"
	"github.com/lockstep-io/lockstep/store"
)

// How a submission finds the leader and waits through an election.
//
// A node tries a submission again until the submission has been without a leader for Config.FailoverWait. The time at a leader does
// not count. When that leader is lost, the wait begins anew at its last sign of life, but only once for a submission.
//
// Every proposed batch has a watchdog of Config.FailoverWait, so a stalled disk does not hold its clients for ever. Only the first of
// several parties can complete a request (request.complete).

// route says where submissions go at present.
type route struct {
	seq     *sequencer    // set if this node leads
	link    *forward.Link // set if another node leads: the link to it
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

// set changes the route, unless ctx has ended because another node leads: a late route must not replace that node's.
func (r *router) set(ctx context.Context, seq *sequencer, l *forward.Link) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	close(r.cur.changed)
	r.cur = route{seq: seq, link: l, changed: make(chan struct{})}
}

// drop ends a route if it is still the present one.
func (r *router) drop(seq *sequencer, l *forward.Link) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cur.seq == seq && r.cur.link == l {
		close(r.cur.changed)
		r.cur = route{changed: make(chan struct{})}
	}
}

// retryPause is the pause before something is tried again that failed at once, such as a submission.
const retryPause = 5 * time.Millisecond

// carried is a submission that waits for a leader, or that this node forwards to the leader.
type carried struct {
	n      *Node
	ctx    context.Context // ends when the submission has been without a leader for too long
	cancel context.CancelFunc
	client *Client       // the client that sent it
	wait   time.Duration // how long it may be without a leader
	due    time.Duration // monotonic time at which ctx ends, if no leader is lost
	lost   bool          // a leader to which it was sent has been lost
	later  bool          // it was put off (putOff), because there was no room for its reply
	asks   bool          // it may ask the leader again, while other put-off submissions wait (Node.asking)
	runs   atomic.Bool   // the leader has said that a script of the submission runs for long
	calls  []Call
	dst    []store.Reply
	leases []byte // the encoded grants of heavy work that has been done
	from   forward.Ticket
	number uint64      // number of its arrival
	place  *fair.Place // its place in the queue; nil: none
}

// newCarried returns a submission that has not been sent yet, and waits for a leader for about wait. place is its place in the queue.
func (n *Node) newCarried(wait time.Duration, client *Client, number uint64, place *fair.Place, calls []Call, dst []store.Reply) *carried {
	// Later submissions wait for some nanoseconds more, so that submissions of the same instant give up in order of arrival.
	wait += time.Duration(number % 1024)
	return &carried{n: n, client: client, calls: calls, dst: dst, number: number, place: place, wait: wait, due: n.cfg.Time.Monotonic() + wait}
}

// run sends the submission to the leader. It repeats a write at each new leader, which knows earlier outcomes.
func (c *carried) run() []store.Reply {
	n := c.n
	if n.cfg.Slow != nil {
		defer c.tellSlow(n.cfg.Time.Monotonic())
	}
	c.ctx, c.cancel = context.WithTimeout(n.waits, c.wait)
	defer func() { c.cancel() }()
	if !call.ReadOnly(c.calls) {
		c.from = forward.Ticket{Origin: n.boot, ID: n.tickets.Begin()}
		defer n.tickets.End(c.from.ID)
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
			if replies, refused := c.busyReplies(); refused {
				return replies
			}
			c.queue()
		case !c.turn():
			first, changed = c.place.First, nil
		case rt.link != nil && !c.hasRoom():
			pause = time.After(retryPause)
		default:
			replies, err := c.try(rt)
			if err == nil {
				return replies
			}
			pause = time.After(retryPause)
			if err == forward.ErrReplyLater {
				c.putOff()
				break
			}
			if err == forward.ErrTooLong && !c.from.Again {
				return n.refuseLong(c.calls, c.dst)
			}
			c.from.Again = c.from.Again || err != errNotExecuted
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
		if c.ctx.Err() != nil { // even if another case of the select was ready at the same time
			return c.refused(c.whyNot())
		}
	}
}

// suspect reports whether this request must not reach the next leader: its script ran for long and may have taken the lost leader's
// memory.
func (c *carried) suspect(err error) bool { return err != errNotExecuted && c.runs.Load() }

// leaderLost notes that a leader that had the request has been lost. Once, the full wait begins anew at that leader's last sign of
// life.
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

// putOffMost bounds how long a request waits until the leader and this node have room for the reply.
const putOffMost = 10 * time.Second

// putOff delays a request because there is no room for its reply. Only one such request at a time asks the leader again, which would
// otherwise evaluate all of them in vain.
func (c *carried) putOff() {
	if c.later {
		c.sent() // at a change of leader, the request may have joined the queue again
		return
	}
	c.cancel()
	c.ctx, c.cancel = context.WithTimeout(c.n.waits, putOffMost)
	c.later = true
	c.sent()
	c.asks = c.n.asking.Acquire(c.ctx, 1) == nil
}

// hasRoom reports whether a request may be sent to the leader now. While this node has large replies in hand, a long read first waits
// for its turn, so that long reads go one by one. Above fair.RepliesInHand none goes.
func (c *carried) hasRoom() bool {
	h := &c.n.gate.InHand
	if h.Bytes() == 0 || !call.AreLongReads(c.calls) {
		return true
	}
	c.putOff()
	return !h.IsFull()
}

// asked lets the next put-off request ask the leader.
func (c *carried) asked() {
	if c.asks {
		c.n.asking.Release(1)
	}
}

// silence returns how long ago this node last heard from a leader; 0 if it has heard from none since it started.
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

// refused returns the replies to a submission that is given up: why if the submission certainly had no effect, and otherwise
// ErrIndeterminate.
func (c *carried) refused(why store.Error) []store.Reply {
	if c.from.Again && c.from.ID != 0 {
		why = ErrIndeterminate
	}
	return errorReplies(c.dst[:0], len(c.calls), why)
}

// queue puts the submission in the queue, at the place of its arrival.
func (c *carried) queue() {
	if c.place == nil {
		c.place = c.n.queue.Join(c.number)
	}
}

// sent gives up the place in the queue: the submission is on its way, so the next one may follow.
func (c *carried) sent() {
	if c.place != nil {
		c.n.queue.Leave(c.place)
		c.place = nil
	}
}

// turn reports whether no earlier submission waits in the queue. If others wait, this submission joins the queue.
func (c *carried) turn() bool {
	if c.place == nil && c.n.queue.Empty() {
		return true
	}
	c.queue()
	return c.n.queue.IsFirst(c.place)
}

func (c *carried) try(rt route) ([]store.Reply, error) {
	c.from.Low = c.n.tickets.Lowest()
	if rt.seq != nil {
		return c.here(rt.seq)
	}
	return c.there(rt)
}

// here runs the calls on the sequencer of this node.
func (c *carried) here(seq *sequencer) ([]store.Reply, error) {
	done := make(chan struct{}, 1)
	r := &request{client: c.client, calls: c.calls, replies: c.dst[:0], from: c.from, finish: func(*request) { done <- struct{}{} }}
	queued := seq.enqueue(r)
	c.sent()
	if queued {
		seq.flush(false)
	}
	<-done
	switch r.err {
	case errLate:
		return c.n.confirm(r.due, r.since, r.replies, lostRESP), nil
	case errUnknown:
		return c.dst, r.err // the batch may still use the replies
	}
	if r.err == nil { // else the next leader runs the calls, and says what they cost
		c.n.gate.Remember(c.client, r.cost)
	}
	c.leases = r.leases
	return r.replies, r.err
}

// there forwards the calls to the leader, and waits while that node leads. Then it gives up when another node leads, or ctx ends.
func (c *carried) there(rt route) ([]store.Reply, error) {
	results := make(chan forwardResult, 1)
	c.runs.Store(false)
	gone, end := c.client.AwaitGone()
	defer end()
	call := rt.link.Start(forward.Submit,
		func(buf []byte) []byte {
			return forward.AppendSubmit(buf, c.from, rt.link.Token, c.calls, rt.link.Peer.Speaks.Minor)
		},
		&forward.Forwarded{
			Client: c.client,
			Done:   func(body []byte, err error) { results <- forwardResult{body, err} },
			Waits:  func(uint64) { c.runs.Store(true) },
		})
	giveUp := func() { rt.link.Resolve(call, nil, errUnknown) }
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
			// The old leader may still answer, until there is another leader to ask. Later submissions wait in the
			// queue until then.
			c.queue()
			now := c.n.routes.get()
			changed, deadline = now.changed, c.ctx.Done()
			if now.seq != nil || now.link != nil {
				giveUp()
			}
		case <-deadline:
			giveUp()
			deadline = nil
		case <-gone:
			rt.link.Cancel(call, 0) // if the request still waits for its turn, the leader does not run it (fair.EndIfGone)
			gone = nil
		case r := <-results:
			return c.received(rt.link, r)
		}
	}
}

// forwardResult is the result of a forwarded call.
type forwardResult struct {
	body []byte
	err  error
}

// smallBody is the length in bytes up to which a result is decoded at once. At worst each byte is an element, which takes
// store.ReplySize.
const smallBody = fair.SmallReply / store.ReplySize

// read decodes the body of a result. Replies that may be large stay packed until they are encoded for the client.
func (c *carried) read(body []byte) (replies []store.Reply, rest []byte, err error) {
	if c.client == nil || len(body) <= smallBody {
		return forward.ReadReplies(body, c.dst[:0], store.ReadReply)
	}
	call := 0
	return forward.ReadReplies(body, c.dst[:0], func(b []byte) (store.Reply, []byte, error) {
		levels := 0
		if call < len(c.calls) && c.calls[call].Txn != nil {
			levels = 1 // the session takes the replies to the commands of a transaction apart
		}
		call++
		return store.ReadPacked(b, levels)
	})
}

// received decodes a result.
func (c *carried) received(l *forward.Link, r forwardResult) ([]store.Reply, error) {
	if r.err != nil {
		c.leaderLost() // perhaps only the link was lost; that is treated in the same way
		return c.dst, r.err
	}
	replies, rest, err := c.read(r.body)
	if len(rest) > 0 && rest[0] == forward.SaysHeavy {
		c.heavy(l, rest[1:])
	}
	c.client.Holds(fair.Extent(replies))
	switch {
	case err == nil && len(replies) > 0 && len(replies) <= len(c.calls), err == errNotExecuted, err == errUnknown, err == forward.ErrReplyLater:
		return replies, err
	case err == forward.ErrStale:
		// The leader was deposed and elected again while this link stood: its new term does not know the claim of the link.
		l.Fail()
		return c.dst, errNotExecuted
	}
	l.Fail() // the peer breaks the protocol: end the link
	return c.dst, errUnknown
}

// heavy notes the cost and the grants of heavy work. The leader sends them behind the replies (the parameter said).
func (c *carried) heavy(l *forward.Link, said []byte) {
	cost, size := binary.Uvarint(said) // the cost is 0 from a leader of an earlier version
	c.n.gate.Remember(c.client, max(time.Duration(min(cost, uint64(fair.YieldMost))), fair.HeavyTime))
	c.leases = said[max(size, 0):]
	if l.Peer.Speaks.Minor < forward.MinorLeases && !call.ReadOnly(c.calls) {
		c.client.OwesNothing() // the request may have got leases that this leader does not report, so its reply must not be held
	}
}

// whyNot returns the error for a submission that is given up because its time to wait (ctx) has ended.
func (c *carried) whyNot() store.Error {
	if rt := c.n.routes.get(); c.later && (rt.seq != nil || rt.link != nil) {
		return ErrReplyLater
	}
	return c.n.downError()
}

// downError returns the error for clients while there is no leader.
func (n *Node) downError() store.Error {
	if n.cons.Trouble() != "" {
		return ErrDiskFull
	}
	return ErrClusterDown
}
