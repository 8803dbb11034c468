package cluster

import (
	"sync/atomic"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/call"
	"github.com/lockstep-io/lockstep/cluster/internal/fair"
	"github.com/lockstep-io/lockstep/cluster/internal/forward"
	"github.com/lockstep-io/lockstep/raftfsm"
	"github.com/lockstep-io/lockstep/store"
)

// request is a submission on its way through the leader: the commands of one pipeline, or the claim of a link.
type request struct {
	calls      []Call
	replies    []store.Reply
	extent     int     // bytes that the replies take until they are encoded (fair.Extent)
	wrote      bool    // it has written something
	wroteBytes int     // how many bytes it has written
	large      bool    // it has been put aside (putAside), because its reply is large
	client     *Client // the client of this node that sent it; nil: none
	err        error   // why there are no replies, such as errUnknown; errLate: there are replies, but they are late

	from    forward.Ticket // number of a write that may be sent again
	token   uint64         // token of the link that it came by
	peer    *peerConn      // connection of the node that has sent it; nil: a client of this node has sent it
	number  uint64         // number of its call on the connection peer
	whole   bool           // it must not be answered in parts: its node, of version 0.1.0, would send all of it again
	crowded bool           // many replies to its origin are kept already (maxKept), so a long reply to this request is not kept

	blockedClient *blockedClient // set for a blocking command, which is the only call of its request
	claim         *claim         // set for the claim of a link, which has no commands
	kind          call.Kind      // what Kind returns for a blocking command
	held          bool           // the present batch must not answer it
	cost          time.Duration  // what it cost the leader, if it was heavy work (package fair); 0: it was light

	tried   bool          // one of its calls has been stopped for now: the request goes first in a later batch
	overran int           // number, from 1, of the call whose writes must be undone; 0: none is known
	overrun store.Error   // the error for that call
	spans   []span        // writes of the calls that have asked for a lease
	written store.Mark    // where the writes of the request end in those of the batch
	granted uint64        // the last token that had been given when its writes ended (store.Txn.LastToken)
	at      int64         // lease time of its evaluation
	arrived time.Duration // monotonic time at which it came to the leader; 0: not noted (Config.Slow)
	began   time.Duration // monotonic time at which its evaluation began
	used    time.Duration // how long its evaluation took, plus spread
	spread  time.Duration // estimated time to hand its messages to the subscribers (reached)
	anew    []grant       // earlier leases that begin anew now
	due     grants        // if err is errLate: the leases that have to begin anew
	since   time.Duration // if err is errLate: the monotonic time at which its batch began
	leases  []byte        // the encoded grants of heavy work, whose reply may be held

	// runs is called when a script of the request has run for runsAfter; it may be nil. It must not wait.
	runs func()
	// finish is called once: when the outcome is known, or when nobody waits for the outcome any more.
	finish   func(*request)
	finished atomic.Bool
}

// User says whose request it is; Kind, KeepsPlace and Calls say what it runs (fair.Work).
func (r *request) User() (name string, any bool) { return call.User(r.calls) }

func (r *request) Kind() call.Kind {
	if r.blockedClient != nil {
		return r.kind // a blocking command may have been cancelled, and then its arguments must not be touched
	}
	return call.KindOf(r.calls)
}

func (r *request) KeepsPlace() bool {
	return r.blockedClient == nil && r.claim == nil && call.KeepsPlace(r.calls)
}

// runsScript reports whether a call of the request, or a command of its transaction, runs a script.
func (r *request) runsScript() bool { return r.blockedClient == nil && call.RunsScript(r.calls) }

func (r *request) Calls() int {
	if len(r.calls) == 1 && r.calls[0].Txn != nil {
		return max(len(r.calls[0].Txn.Calls), 1)
	}
	return max(len(r.calls), 1)
}

// IsGone reports whether the client was cut off, or its blocking command has been cancelled. Then End ends the request without
// running it (fair.Work).
func (r *request) IsGone() bool {
	return r.blockedClient != nil && r.blockedClient.state.Load() == blockedCancelled || r.client.IsGone() || r.peer != nil && r.peer.cutOff.has(r.number)
}

func (r *request) End() {
	if w := r.blockedClient; w != nil && w.state.Load() == blockedCancelled {
		w.cancelled() // whoever has cancelled it may not have answered it yet
		return
	}
	r.refuse(errClientGone)
}

// complete ends the request. If several parties call it (the batch, its watchdog, a loss of leadership), the
// first call wins.
func (r *request) complete(err error) {
	if r.finished.CompareAndSwap(false, true) {
		r.err = err
		if err == nil {
			r.client.Holds(r.extent)
		}
		r.finish(r)
	}
}

// refuse answers every command of a request with an error. It must be called only if the request had no effect.
func (r *request) refuse(e store.Error) {
	if r.finished.CompareAndSwap(false, true) {
		r.replies = refusals(r.replies[:0], r.calls, e)
		if r.claim != nil {
			r.replies = append(r.replies, store.Err(e)) // a claim has no calls, and its node must learn why
		}
		r.finish(r)
	}
}

// refusals appends the replies to calls that are refused with the error e.
func refusals(dst []store.Reply, calls []Call, e store.Error) []store.Reply {
	for i := range calls {
		why := e
		if t := calls[i].Txn; t != nil && !t.Observe {
			why = store.ErrExecAbort(e)
		}
		dst = append(dst, store.Err(why))
	}
	return dst
}

// patient reports whether a request is never answered BUSY. A repeated write may have been executed, a blocked client may have come
// before the script, and the owner who confirms a lease already has it.
func (r *request) patient() bool {
	if r.blockedClient != nil {
		return r.from.Again || r.blockedClient.waited.Joined // its calls must not be touched: it may have been cancelled
	}
	return isPatient(r.from, r.calls)
}

// isPatient does what patient does, for a request that is no blocking command.
func isPatient(from forward.Ticket, calls []Call) bool {
	return from.Again || len(calls) == 1 && calls[0].Cmd == call.Confirm
}

func errorReplies(dst []store.Reply, n int, e store.Error) []store.Reply {
	for range n {
		dst = append(dst, store.Err(e))
	}
	return dst
}

// batch is a group of requests that are evaluated together. What they write becomes one entry of the log.
type batch struct {
	number   uint64
	term     uint64 // Raft term in which the batch was evaluated
	prev     uint64 // sequence number of the state that it was evaluated on
	requests []*request
	answers  []raftfsm.Answer // replies that the entry keeps, to numbered writes (once.go)
	recorded int              // bytes of those replies
	keeps    int              // how many bytes of the replies to one request the entry keeps at most
	replied  int              // about how many bytes the replies to all requests have
	answered atomic.Bool
	watchdog *time.Timer     // answers a proposed batch that has waited for too long
	served   bool            // the batch began by serving pending blocked clients
	replaced *store.Replaced // names that a request of the batch has given to another key; nil: none

	started   store.Time    // time at which its last evaluation began: lateness counts from then
	began     time.Duration // monotonic time before its first evaluation
	writes    []byte        // an encoded store.WriteSet
	accepted  uint64        // sequence number of its entry; 0: the log has not accepted the entry
	proposing bool          // the sequencer waits for it; guarded by pendingBatches.mu
}

// largeWrites returns the writes of more than HeavyBytes that users' requests have made to the batch's entry, whose size is the
// parameter entry.
func (b *batch) largeWrites(entry int) (large []fair.LargeWrite) {
	if entry <= HeavyBytes {
		return nil
	}
	for _, r := range b.requests {
		if user, any := r.User(); any && r.wroteBytes > HeavyBytes {
			large = append(large, fair.LargeWrite{User: user, Kind: r.Kind(), Bytes: r.wroteBytes, Used: r.used})
		}
	}
	return large
}

// reset empties a batch before it is evaluated again.
func (b *batch) reset() {
	b.requests, b.answers, b.recorded, b.replied, b.replaced = b.requests[:0], b.answers[:0], 0, 0, nil
}

// answer completes every request of the batch. If err is errLate, the batch's leases have to begin anew before their owners get the
// replies.
func (b *batch) answer(err error) {
	if b.watchdog != nil {
		b.watchdog.Stop()
	}
	b.end(err)
}

// end does the work of answer; the watchdog calls it directly. A second call does nothing, because the requests may be in
// use again by then.
func (b *batch) end(err error) {
	if !b.answered.CompareAndSwap(false, true) {
		return
	}
	for _, r := range b.requests {
		switch err {
		case nil:
			r.completeInTime(b)
		case errLate:
			r.completeLate(b)
		default:
			r.complete(err)
		}
	}
}

// completeInTime is complete(nil), but also encodes the grants of heavy work. If these are too large, the work counts as light.
func (r *request) completeInTime(b *batch) {
	if !r.finished.CompareAndSwap(false, true) {
		return
	}
	r.err, r.leases = nil, nil
	if r.cost > 0 {
		if g := b.granted(r, b.prev+1, b.writes); len(g.list) > 0 {
			r.leases = appendGrants(nil, g)
		}
		if len(r.leases) > maxRecorded {
			r.cost, r.leases = 0, nil
		}
	}
	r.client.Holds(r.extent)
	r.finish(r)
}

func (r *request) completeLate(b *batch) {
	due := b.granted(r, b.accepted, b.writes)
	switch {
	case len(due.list) == 0:
		r.complete(nil)
	case r.from.ID != 0:
		r.complete(errUnknown) // its origin asks the next leader
	case r.finished.CompareAndSwap(false, true):
		r.due, r.since, r.err = due, b.began, errLate
		r.client.Holds(r.extent)
		r.finish(r)
	}
}

// begin clears the results of an earlier evaluation. The parameter at is lease time, and the parameter began is monotonic time.
func (r *request) begin(at int64, began time.Duration) {
	r.replies = r.replies[:0]
	r.spans, r.anew, r.at = r.spans[:0], nil, at
	r.began, r.used, r.spread, r.wroteBytes = began, 0, 0, 0
}

// took adds to a request's cost the time that bytes of replies or writes take, undone writes included.
func (r *request) took(bytes int) {
	if bytes > HeavyBytes {
		r.cost += time.Duration(bytes) * fair.ByteTakes
	}
}

// fewMessages is the number of subscribers that a request may reach on one node without a charge.
const fewMessages = 1000

// reached adds the estimated time of a request's messages to its cost, if that is heavy work. Each member is assumed to have as many
// subscribers.
func (r *request) reached(subscribers int, members func() int) {
	if subscribers <= fewMessages {
		return
	}
	r.spread = time.Duration(subscribers*members()) * fair.MessageTakes
	if r.spread > fair.HeavyTime {
		r.cost += r.spread
	}
}
