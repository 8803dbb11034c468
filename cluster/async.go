package cluster

import (
	"lockstep/cluster/internal/call"
	"lockstep/cluster/internal/fair"
	"lockstep/store"
)

// Submission is a Submit without a goroutine that waits for it. A session uses it again and again, for
// one pipeline at a time; between SubmitAsync and Done it belongs to the node.
type Submission struct {
	Client  *Client // that submits the calls
	Calls   []Call
	Replies []store.Reply // the outcome, perhaps of the first calls only (SubmitPart); the node reuses its memory
	Done    func()        // called once for each SubmitAsync, from any goroutine; must not wait

	req    *request
	number uint64 // in the order of arrival
}

// SubmitAsync begins to run the calls, as SubmitPart does. Flush must follow; in
// between, more submissions can be collected.
func (n *Node) SubmitAsync(p *Submission) {
	if heavy, patience := n.gate.Heavy(p.Client, p.Calls); heavy {
		go func() {
			p.Replies = n.submitGivingWay(p.Client, p.Calls, p.Replies[:0], patience)
			p.Done()
		}()
		return
	}
	n.submitAsync(p)
}

func (n *Node) submitAsync(p *Submission) {
	p.number = n.queue.Number()
	seq := n.routes.get().seq
	if seq == nil || !n.queue.Empty() {
		go n.submitBlocking(p, nil)
		return
	}
	if p.req == nil {
		p.req = &request{finish: func(r *request) { n.finished(p, r) }}
	}
	p.req.calls, p.req.replies, p.req.err, p.req.overran = p.Calls, p.Replies[:0], nil, 0
	p.req.client = p.Client
	p.req.cost, p.req.tried, p.req.large = 0, false, false
	p.req.finished.Store(false)
	seq.enqueue(p.req)
}

// Flush has the node run what was submitted. An ephemeral node may run it on the caller's goroutine; then
// Flush takes as long as a script does.
func (n *Node) Flush() {
	if seq := n.routes.get().seq; seq != nil {
		seq.flush()
	}
}

func (n *Node) finished(p *Submission, r *request) {
	switch r.err {
	case nil:
		p.Replies = r.replies
		if n.gate.Remember(p.Client, r.cost) {
			go func() {
				n.gate.HoldReplies(p.Client, p.Replies)
				p.Done()
			}()
			return
		}
	case errNotExecuted:
		// There may be another leader by now, or soon. finished itself takes the place in the queue: the
		// goroutines of a refused batch start in any order.
		go n.submitBlocking(p, n.queue.Join(p.number))
		return
	case errLate:
		go func() {
			p.Replies = n.confirm(r.due, r.since, r.replies)
			p.Done()
		}()
		return
	default:
		// The batch may still hold the request, so it is not used again.
		p.req = nil
		if call.ReadOnly(p.Calls) {
			go n.submitBlocking(p, n.queue.Join(p.number))
			return
		}
		p.Replies = errorReplies(p.Replies[:0], len(p.Calls), ErrIndeterminate)
	}
	p.Done()
}

func (n *Node) submitBlocking(p *Submission, place *fair.Place) {
	p.Replies = n.submitWaiting(p.Client, p.number, place, p.Calls, p.Replies)
	n.gate.HoldReplies(p.Client, p.Replies)
	p.Done()
}
