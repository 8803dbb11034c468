package cluster

import (
	"sync"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/call"
	"github.com/lockstep-io/lockstep/cluster/internal/fair"
	"github.com/lockstep-io/lockstep/store"
)

// Submission is a pipeline of commands on its way through the cluster. Between SubmitAsync and Done it belongs to the node.
type Submission struct {
	Client  *Client // the client that submits the calls; nil: the node itself
	Calls   []Call
	Replies []store.Reply // the outcome, perhaps of the first calls only (SubmitPart); the node reuses its memory
	Done    func()        // called once for each SubmitAsync, on any goroutine, even the caller's; it must not wait

	node   *Node // that it was submitted to
	req    *request
	number uint64        // its number in the order of arrival
	passed bool          // it has waited for its turn as heavy work (fair.Gate.Pass), so its replies are not held
	done   chan struct{} // only in a waiter: end sends to this channel, and does not call Done
}

// end tells the submitter that the outcome is in Replies.
func (p *Submission) end() {
	if p.done != nil {
		p.done <- struct{}{}
		return
	}
	p.Done()
}

// Forget lets go of the memory of the calls and their replies. It must be called only after Done.
func (p *Submission) Forget() {
	p.Calls, p.Replies = nil, nil
	if r := p.req; r != nil {
		r.client, r.calls, r.replies = nil, nil, nil
	}
}

// Submit runs the calls in order on the leader, and returns when the outcome is known. It uses the memory of dst for the replies.
func (n *Node) Submit(calls []Call, dst []store.Reply) []store.Reply {
	dst = n.SubmitPart(nil, calls, dst)
	for len(dst) < len(calls) {
		dst = append(dst, n.SubmitPart(nil, calls[len(dst):], nil)...)
	}
	return dst
}

// SubmitPart is Submit, but it may leave out the last calls: if the first ones take long (maxPartTime) or have large replies or writes
// (maxPartBytes), or if one request cannot hold all. It returns at least one reply. The caller submits the other calls later. A nil
// client stands for the node itself.
func (n *Node) SubmitPart(client *Client, calls []Call, dst []store.Reply) []store.Reply {
	fit := call.Fitting(calls)
	if fit == 0 {
		return n.refuseLong(calls[:1], dst)
	}
	calls = calls[:fit]
	if heavy, patience := n.gate.Heavy(client, calls); heavy {
		return n.submitGivingWay(client, calls, dst, patience)
	}
	return n.submitAndWait(client, calls, dst, false)
}

// SubmitAsync is SubmitPart, but does not wait: p.Replies has the outcome when p.Done is called, perhaps at once. A Flush must follow.
func (n *Node) SubmitAsync(p *Submission) {
	fit := call.Fitting(p.Calls)
	if fit == 0 {
		p.Replies = n.refuseLong(p.Calls[:1], p.Replies)
		p.Done()
		return
	}
	p.Calls = p.Calls[:fit]
	if heavy, patience := n.gate.Heavy(p.Client, p.Calls); heavy {
		go func() {
			p.Replies = n.submitGivingWay(p.Client, p.Calls, p.Replies, patience)
			p.Done()
		}()
		return
	}
	if !n.begin(p) {
		go n.carry(p, nil)
	}
}

// refuseLong answers calls that are too long for one request.
func (n *Node) refuseLong(calls []Call, dst []store.Reply) []store.Reply {
	dst = dst[:0]
	for i := range calls {
		dst = append(dst, call.TooLong(&calls[i], n.MaxEntry()))
	}
	return dst
}

// Flush makes the node run what was submitted. An ephemeral node may do that on the caller's goroutine, except for scripts.
func (n *Node) Flush() { n.flush(false) }

// FlushWatched is Flush, but may also run scripts on the caller's goroutine. Another goroutine must take over the caller's work
// meanwhile.
func (n *Node) FlushWatched() { n.flush(true) }

func (n *Node) flush(watched bool) {
	if seq := n.routes.get().seq; seq != nil {
		seq.flush(watched)
	}
}

// submitGivingWay submits heavy work when its turn has come (fair.Gate.Pass).
func (n *Node) submitGivingWay(client *Client, calls []Call, dst []store.Reply, patience time.Duration) []store.Reply {
	ran := n.gate.Pass(client, calls, patience, func() int {
		dst = n.submitAndWait(client, calls, dst, true)
		return fair.Extent(dst)
	})
	if !ran {
		return errorReplies(dst[:0], len(calls), errClientGone)
	}
	return dst
}

// waiter is a submission for which a goroutine waits. All nodes of the process use the same pool of waiters.
type waiter struct {
	Submission
	first request
}

var waiters = sync.Pool{New: func() any {
	w := &waiter{}
	w.done, w.req = make(chan struct{}, 1), &w.first
	w.first.finish = w.finished
	return w
}}

func (n *Node) submitAndWait(client *Client, calls []Call, dst []store.Reply, passed bool) []store.Reply {
	w := waiters.Get().(*waiter)
	w.Client, w.Calls, w.Replies, w.passed = client, calls, dst, passed
	if n.begin(&w.Submission) {
		n.Flush()
	} else {
		n.carry(&w.Submission, nil)
	}
	<-w.done
	dst = w.Replies
	w.Client, w.node = nil, nil
	w.Forget()
	waiters.Put(w)
	return dst
}

// begin gives the submission to the sequencer of this node, if it can. After true, the caller has to call Flush, and otherwise carry.
func (n *Node) begin(p *Submission) (begun bool) {
	p.node, p.number = n, n.queue.Number()
	seq := n.routes.get().seq
	if seq == nil || !n.queue.Empty() {
		return false
	}
	if p.req == nil {
		p.req = &request{finish: p.finished}
	}
	p.req.calls, p.req.replies, p.req.err, p.req.overran = p.Calls, p.Replies[:0], nil, 0
	p.req.client = p.Client
	p.req.cost, p.req.leases, p.req.tried, p.req.large = 0, nil, false, false
	p.req.finished.Store(false)
	seq.enqueue(p.req)
	return true
}

// finished handles the outcome of the submission at the sequencer of the node.
func (p *Submission) finished(r *request) {
	n := p.node
	switch r.err {
	case nil:
		p.Replies = r.replies
		if n.gate.Remember(p.Client, r.cost) && !p.passed {
			leases := r.leases
			go func() {
				p.Replies = n.hold(p.Client, p.Replies, leases)
				p.end()
			}()
			return
		}
	case errNotExecuted:
		// The place in the queue is taken here, because the goroutines for the requests of a refused batch start in any order.
		go n.carry(p, n.queue.Join(p.number))
		return
	case errLate:
		go func() {
			p.Replies = n.confirm(r.due, r.since, r.replies, lostRESP)
			p.end()
		}()
		return
	default:
		// The batch may still refer to the request, so the next submission must not use the same request.
		p.req = nil
		if call.ReadOnly(p.Calls) {
			go n.carry(p, n.queue.Join(p.number))
			return
		}
		p.Replies = errorReplies(p.Replies[:0], len(p.Calls), ErrIndeterminate)
	}
	p.end()
}

// carry takes the submission to the leader, through an election if need be.
func (n *Node) carry(p *Submission, place *fair.Place) {
	c := n.newCarried(n.cfg.FailoverWait, p.Client, p.number, place, p.Calls, p.Replies)
	p.Replies = c.run()
	if !p.passed {
		p.Replies = n.hold(p.Client, p.Replies, c.leases)
	}
	p.end()
}
