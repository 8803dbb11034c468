package cluster

import (
	"container/heap"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/call"
	"github.com/lockstep-io/lockstep/cluster/internal/forward"
	"github.com/lockstep-io/lockstep/store"
)

// Blocking commands, on the node that the client is connected to.
//
// This node sends a blocking command to the leader, where it waits in queues (blocked_clients.go). Until the reply, the
// blockRegistry of this node keeps the command as a Blocked:
//
//   - The timeout runs by this node's clock, so a change of leader does not begin it anew.
//   - When the timeout is over, the client leaves or another client unblocks it, this node asks the leader to cancel the command.
//     The leader answers that the command is cancelled, or sends its reply.
//   - When the leader or the link is lost, the command queues again as soon as this node knows that it was not executed: by the
//     leader's word, or by the log (settle in block_registry.go).
//
//	       ┌── not executed ──┐
//	       ▼                  │
//	    unsent ── send ──▶ sent ── reply, or cancelled ──▶ done
//	       ▲                  │
//	  not in the log      link lost
//	       └───── doubt ◀─────┘ ───── note in the log ───▶ done
//
// A leader that steps down sends its blocked clients back as not executed. The next leader keeps their order (early.go), and accepts
// these commands even where it refuses new ones. The order is not exact for clients whose node needs longer than 200 ms to send them, and
// for those that no leader has given a place yet.
//
// If the leader died or the link broke, the log tells what became of the command. The entry that serves it has a note for its
// origin, the node of its client, with the command's number and reply: a publish of kind store.Note, which changes no state.
//
// The origin sends a claim to the present leader, which answers with a position of the log. Any note of an earlier leader or link
// is before that position. If the origin has applied the log that far and has seen no note, the command was not served, and the
// origin sends it again. The leader refuses commands that arrive late on an older link: it accepts only the token of the link
// that the origin has claimed last. A command stays undecided if a snapshot jumps over notes, or if no leader answers the claim
// in time. Then the client gets INDETERMINATE.
//
// A command with large arguments waits for its turn at the gate of this node (fair.Gate), until a leader has looked for an
// element.
//
// An element can still be lost, as in Redis: when the leader has popped it, its client may leave, or the client's node may die.

// Blocked is a blocking command in progress.
type Blocked struct {
	Call   Call
	Client *Client // the client that has sent the command; nil: the node itself, whose commands wait for no turn
	// Done is called with the reply, once, from any goroutine; it must not
	// block. Abandon prevents the call, unless the command has ended before.
	Done func(store.Reply)
	// Caller returns the present values of Call.User and Call.Users at each sending. It must not block. nil: they stay the same.
	Caller func() (user string, users uint64)
	// Waits, if not nil, is called once, before or after Done, when the command has got a place in a queue. It must not block.
	Waits func()

	// blockRegistry.mu guards the fields below.
	id       uint64
	state    blockState
	attempt  int           // how often it has been sent
	began    time.Duration // monotonic time at which it was first sent, or began to wait for a leader
	lost     time.Duration // when a sending first failed, usually because the leader was lost; 0: none has failed
	deadline time.Duration
	index    int           // its index in blockRegistry.timers; -1: it is not there
	waits    bool          // a leader has found no element for it
	place    uint64        // the place in the queue that a leader has given it; 0: none
	blind    bool          // since it was sent, a snapshot has replaced the state, so this node may have missed its note
	kind     call.Kind     // see request.Kind
	keys     *keyIndex     // index of its keys; nil: they are few, or this node did not lead when the command came
	looked   chan struct{} // closed when its turn at the gate is over; nil: it has no turn now
	quit     *quit         // how it ends if it is not served; nil: nobody has asked to end it
	noted    *granted      // what its note says, if it has taken a lease; nil: no note has come

	blockedClient *blockedClient // if this node leads: what waits for the command in the queues of this node
	link          *forward.Link  // if another node leads: the link by which the command was sent to it
	call          uint64         // the number of the call on link that carries the command; 0: sendThere has not made the call yet
	abandoned     int64          // bytes that blockRegistry.abandoned counts for it
	lockKind      string         // of the lock for which it counts as waiting (enter); "": it does not count
}

type blockState uint8

const (
	blockNew blockState = iota // Block has not registered the command yet, but CLIENT UNBLOCK may find it already
	blockUnsent
	blockSent
	blockDoubt
	blockDone
	blockLate // it has taken a lease, which must begin anew before the reply (confirm)
	blockTurn // its arguments are large, and it waits for its turn at the gate; when the turn has come, blockGivingWay sends it or ends it
)

// quit is a request to end a Blocked that is not served.
type quit struct {
	reply   store.Reply
	timeout bool       // the timeout is the reason to end the command; then a leader has to evaluate the command once before it ends
	ended   func(bool) // called once: with true if this quit has ended the command, else with false; nil: nobody wants to know
	at      time.Duration
}

// Block begins to run a blocking command. The caller must call Flush afterwards.
func (n *Node) Block(b *Blocked) {
	k := n.blockRegistry
	if call.Fitting([]Call{b.Call}) == 0 {
		k.mu.Lock()
		b.index = -1
		after := k.finish(b, call.TooLong(&b.Call, n.MaxEntry()), false) // this marks b as done, so Unblock cannot end it again
		k.mu.Unlock()
		after()
		return
	}
	rt := n.routes.get()
	heavy, patience := n.givesWay(b)
	if b.kind = call.KindOf([]Call{b.Call}); !heavy {
		n.index(b)
	}
	k.mu.Lock()
	b.index = -1
	if b.quit != nil { // it was ended before it began
		after := k.finish(b, b.quit.reply, true)
		k.mu.Unlock()
		after()
		return
	}
	if k.closed {
		after := k.finish(b, store.Err(ErrClusterDown), false)
		k.mu.Unlock()
		after()
		return
	}
	k.enter(b)
	if len(k.all) == 1 {
		defer k.signal() // run has to tell the leader from now on that this node lives
	}
	if heavy {
		b.state = blockTurn
		k.mu.Unlock()
		go n.blockGivingWay(b, patience)
		return
	}
	send := k.begin(b, rt)
	k.mu.Unlock()
	send()
}

// begin starts the timeout of a new command. The caller holds mu, and calls the returned function, which sends the command,
// without mu.
func (k *blockRegistry) begin(b *Blocked, rt route) (after func()) {
	now := k.n.cfg.Time.Monotonic()
	b.state, b.began = blockUnsent, now
	if ms, ok := store.WaitTimeout(b.Call.Cmd, b.Call.Args); ok && ms > 0 && ms < maxTimeout {
		b.deadline = now + time.Duration(ms)*time.Millisecond
		heap.Push(&k.timers, b)
		if b.index == 0 {
			k.signal()
		}
	}
	if rt.seq == nil && rt.link == nil || k.crowded(rt) {
		k.unsent = append(k.unsent, b)
		return k.signal
	}
	return k.sending(b, rt, now)
}

// givesWay reports whether a blocking command must wait for its turn, because its arguments are large, and how long at most.
func (n *Node) givesWay(b *Blocked) (heavy bool, patience time.Duration) {
	if calls := []Call{b.Call}; call.AnyLarge(calls) {
		return n.gate.Heavy(b.Client, calls)
	}
	return false, 0
}

// index indexes a command's keys, if this node leads. It runs before the sending, after which the arguments may become the
// client's again.
func (n *Node) index(b *Blocked) {
	if n.routes.get().seq != nil {
		b.keys = indexOf(&b.Call)
	}
}

// blockGivingWay sends a command with large arguments in its turn. Before that, only this goroutine, which reads the arguments,
// and Abandon may end the command.
func (n *Node) blockGivingWay(b *Blocked, patience time.Duration) {
	k := n.blockRegistry
	ran := n.gate.Pass(b.Client, []Call{b.Call}, patience, func() (replied int) {
		looked := make(chan struct{})
		n.index(b)
		k.turn(b, looked)
		n.Flush()
		<-looked
		return 0
	})
	if ran {
		return
	}
	// The client of this command was cut off. The session may have abandoned the command already, or may wait for its end.
	k.mu.Lock()
	after := func() {}
	if b.state != blockDone {
		after = k.finish(b, store.Reply{Kind: store.None}, false)
	}
	k.mu.Unlock()
	after()
}

// turn begins a command whose turn has come. passOn closes the channel looked when the turn is over.
func (k *blockRegistry) turn(b *Blocked, looked chan struct{}) {
	rt := k.n.routes.get()
	k.mu.Lock()
	after := func() {}
	switch b.looked = looked; {
	case b.state != blockTurn:
		b.passOn() // its client has gone
	case k.closed:
		after = k.finish(b, store.Err(ErrClusterDown), false)
	case b.quit != nil:
		after = k.finish(b, b.quit.reply, true)
	default:
		after = k.begin(b, rt)
		if b.state == blockUnsent {
			b.passOn() // there is no leader, or none that answers
		}
	}
	k.mu.Unlock()
	after()
}

// passOn ends the turn of a command with large arguments. The caller holds mu.
func (b *Blocked) passOn() {
	if b.looked != nil {
		close(b.looked)
		b.looked = nil
	}
}

// A command whose timeout is maxTimeout ms or more waits without a limit.
const maxTimeout = int64(100 * 365 * 24 * time.Hour / time.Millisecond)

// Unblock ends b with reply, unless b is served or asked to end before. It calls ended once: true if it has ended b.
func (n *Node) Unblock(b *Blocked, reply store.Reply, ended func(bool)) {
	n.blockRegistry.end(b, &quit{reply: reply, ended: ended})
}

// Abandon ends a Blocked whose client has gone. An element that the leader is serving to it at this moment is lost, as in Redis.
func (n *Node) Abandon(b *Blocked) {
	k := n.blockRegistry
	k.mu.Lock()
	if b.state == blockDone { // the session has not taken the reply
		leave := k.leaves(b)
		k.mu.Unlock()
		leave()
		return
	}
	cancel := k.cancelling(b, quitNow)
	leave := k.leaves(b)
	k.abandons(b)
	b.Done = func(store.Reply) {}
	after := k.finish(b, store.Reply{}, false)
	k.mu.Unlock()
	b.Client.Gone() // so that blockGivingWay no longer waits: clients may come and go faster than turns come
	cancel()
	after()
	leave()
}

// end makes q the quit of b, unless b is done or has a quit already.
func (k *blockRegistry) end(b *Blocked, q *quit) {
	q.at = k.n.cfg.Time.Monotonic()
	k.mu.Lock()
	if b.state == blockDone || b.quit != nil {
		k.mu.Unlock()
		if q.ended != nil {
			q.ended(false)
		}
		return
	}
	after := k.endLocked(b, q)
	k.mu.Unlock()
	after()
}

// endLocked makes q the quit of b, and ends b if its state allows that. The caller holds mu, and calls the returned function
// without mu.
func (k *blockRegistry) endLocked(b *Blocked, q *quit) (after func()) {
	b.quit = q
	if b.state == blockNew {
		return func() {} // Block ends it
	}
	if b.index >= 0 {
		heap.Remove(&k.timers, b.index)
	}
	switch {
	case b.state == blockSent:
		return k.cancelling(b, quitSoon)
	case b.state == blockUnsent && (b.waits || !q.timeout):
		return k.finish(b, q.reply, true)
	}
	return func() {}
}

// cancelling returns a function that asks the leader to cancel b.
func (k *blockRegistry) cancelling(b *Blocked, how int32) func() {
	w, l, number := b.blockedClient, b.link, b.call
	switch {
	case b.state != blockSent:
	case w != nil:
		return func() { w.cancel(how) }
	case number != 0:
		return func() { l.Cancel(number, how) }
	}
	return func() {} // sendThere cancels when it has made the call
}

// finish ends b. The returned function calls b.Done, and passes quitted to the quit of b.
func (k *blockRegistry) finish(b *Blocked, reply store.Reply, quitted bool) (after func()) {
	b.state = blockDone
	b.passOn()
	k.exit(b, reply)
	if b.index >= 0 {
		heap.Remove(&k.timers, b.index)
	}
	done, q := b.Done, b.quit
	return func() {
		done(reply)
		if q != nil && q.ended != nil {
			q.ended(quitted)
		}
	}
}

// sending marks b as sent, and returns a function that sends it. now is the monotonic time.
func (k *blockRegistry) sending(b *Blocked, rt route, now time.Duration) func() {
	b.state, b.blind = blockSent, false
	b.attempt++
	b.blockedClient, b.link, b.call = nil, nil, 0
	attempt, id := b.attempt, b.id
	waited := forward.Waited{Age: now - b.began, Joined: b.waits, Place: b.place}
	c := b.Call
	if b.Caller != nil {
		c.User, c.Users = b.Caller() // users may have been deleted since the command came, and the next leader may not know of that
	}
	if rt.seq == nil {
		b.link = rt.link
		return func() { k.sendThere(b, &c, rt.link, attempt, waited) }
	}
	w := &blockedClient{origin: k.n.boot, id: id, waited: waited, since: b.began, dequeue: k.n.dequeue, keys: b.keys}
	w.joined = func() { k.waiting(b, attempt, w.order.place) }
	w.req = &request{calls: []Call{c}, blockedClient: w, kind: b.kind, finish: func(r *request) {
		var reply store.Reply
		switch r.err {
		case nil:
			reply = r.replies[0]
			if k.n.cfg.Ephemeral && len(w.given.list) > 0 { // there is no note
				k.mu.Lock()
				b.noted = &granted{reply, w.given}
				k.mu.Unlock()
				k.letGo(b, *b.noted)
			}
		case errLate:
			k.late(b, granted{r.replies[0], r.due}, r.since)
			return
		}
		k.result(b, attempt, reply, r.err)
	}}
	b.blockedClient = w
	if b.quit != nil {
		w.quit.Store(quitSoon)
	}
	return func() { rt.seq.enqueue(w.req) }
}

func (k *blockRegistry) sendThere(b *Blocked, c *Call, l *forward.Link, attempt int, waited forward.Waited) {
	number := l.Start(forward.Block,
		func(buf []byte) []byte {
			return forward.AppendBlock(buf, k.n.boot, b.id, l.Token, c, waited, l.Peer.Speaks.Minor)
		},
		&forward.Forwarded{
			Done: func(body []byte, err error) {
				var reply store.Reply
				if err == nil {
					reply, err = forward.ReadOneReply(body)
				}
				k.result(b, attempt, reply, err)
			},
			Waits: func(place uint64) { k.waiting(b, attempt, place) },
		})
	if number == 0 {
		return // Start has called Done
	}
	how := int32(0)
	k.mu.Lock()
	if b.attempt == attempt {
		b.call = number
		switch {
		case b.state == blockDone:
			how = quitNow
		case b.quit != nil:
			how = quitSoon
		}
	}
	k.mu.Unlock()
	if how != 0 {
		l.Cancel(number, how)
	}
}

// waiting is called when a leader has found no element for b, and has given b a place in the queue.
func (k *blockRegistry) waiting(b *Blocked, attempt int, place uint64) {
	k.mu.Lock()
	first := b.attempt == attempt && !b.waits && b.Waits != nil
	if b.attempt == attempt {
		b.waits, b.place = true, place
		b.passOn()
	}
	k.mu.Unlock()
	if first {
		b.Waits()
	}
}

// result handles the outcome of one sending. Even the reply to an earlier sending ends the command, because the command was
// executed.
func (k *blockRegistry) result(b *Blocked, attempt int, reply store.Reply, err error) {
	k.mu.Lock()
	after := func() {}
	if err != nil && b.lost == 0 {
		b.lost = k.n.cfg.Time.Monotonic()
	}
	k.answered(b, attempt)
	switch {
	case b.state == blockDone:
		if err == forward.ErrCancelled || err == errNotExecuted || err == forward.ErrStale || err == nil && reply.Kind != store.Array {
			delete(k.left, b.id) // it has got no lock
		}
	case err == nil:
		after = k.finish(b, reply, false)
	case attempt != b.attempt || b.state != blockSent:
	case err == forward.ErrTooLong:
		after = k.finish(b, call.TooLong(&b.Call, k.n.MaxEntry()), false)
	case err == forward.ErrCancelled && b.quit != nil:
		after = k.finish(b, b.quit.reply, true)
	case err == forward.ErrCancelled || err == errNotExecuted || err == forward.ErrStale:
		after = k.requeue(b)
		if err == forward.ErrStale {
			// The leader was deposed and elected again while this link stood. In its new term it does not know the token of the
			// link.
			l, requeued := b.link, after
			after = func() { requeued(); l.Fail() }
		}
		k.notBefore = k.n.cfg.Time.Monotonic() + retryPause
		k.signal()
	default:
		b.state = blockDoubt
		b.passOn()
		k.doubt = append(k.doubt, b)
		k.signal()
	}
	k.mu.Unlock()
	after()
}

// requeue queues b, which was certainly not executed, to be sent again. If b has a quit that may end it now, requeue ends b instead.
func (k *blockRegistry) requeue(b *Blocked) (after func()) {
	b.state = blockUnsent
	b.passOn()
	if b.quit != nil && (b.waits || !b.quit.timeout) {
		return k.finish(b, b.quit.reply, true)
	}
	k.unsent = append(k.unsent, b)
	return func() {}
}

// timers is a heap of Blocked by deadline.
type timers []*Blocked

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].deadline < t[j].deadline }
func (t timers) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].index, t[j].index = i, j
}

func (t *timers) Push(x any) {
	b := x.(*Blocked)
	b.index = len(*t)
	*t = append(*t, b)
}

func (t *timers) Pop() any {
	old := *t
	b := old[len(old)-1]
	old[len(old)-1] = nil
	*t = old[:len(old)-1]
	b.index = -1
	return b
}
