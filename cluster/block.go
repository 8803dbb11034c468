package cluster

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"lockstep/cluster/internal/call"
	"lockstep/cluster/internal/forward"
	"lockstep/store"
)

// Blocking commands, on the node that the client is connected to.
//
// This node sends a blocking command to the leader, where the command waits in queues (blocked_clients.go). The leader
// only serves it. The blockRegistry of this node holds the command (Blocked) until the reply, and decides everything else:
//
//   - The timeout runs here, by this node's clock, so a change of leader does
//     not begin it anew. When it is over, this node asks the leader to cancel. The
//     leader answers that it has cancelled, or with the served reply: never both.
//   - When the client leaves, or another client unblocks it, this node also asks the
//     leader to cancel.
//   - When the leader or the link to it is lost, the command queues again. Before that,
//     either the leader says that it has not executed the command, or the log decides
//     (settle in block_registry.go).
//
//	       ┌── not executed ──┐
//	       ▼                  │
//	    unsent ── send ──▶ sent ── reply, or cancelled ──▶ done
//	       ▲                  │
//	  not in the log      link lost
//	       └───── doubt ◀─────┘ ───── note in the log ───▶ done
//
// A leader that steps down sends its blocked clients back as not executed. They queue again at the next leader.
// Their node says that they wait already, and for how long. So the next leader refuses none of them for a
// reason that stops a new command (a key of another type, no memory, a long script), and puts them in the
// order in which they came to their nodes. The clocks of the nodes are not compared: each node says how much
// time has passed since the command came. Two things are not exact. Two clients of different nodes that came almost at
// once may change places, because the commands of one node may take longer to the leader than those of the
// other. And an element that comes before all nodes have sent their commands again goes to a client whose
// command has arrived. Nodes of earlier versions do not say how long their clients have waited, so these
// clients queue as if they had just come.
//
// If the leader died or the link broke, the log settles what became of the command. The writes of a blocking
// command carry a note to its origin (the node of its client), with the number of the command and its reply. The
// note is a publish of kind store.Note, which changes no state. The origin sends a claim to the present leader and
// gets a position of the log. Everything that earlier leaders have served, or that this leader has served by an
// older link, lies before that position. If the origin has applied the log that far and has seen no note, the
// command was not served, and it is sent again. Each command carries the token of the claim, so the leader
// refuses commands that are still on their way on an older connection. A command stays undecided if a snapshot
// jumps over notes, or if no leader answers the claim in time. Then the client gets INDETERMINATE.
//
// A command of very many keys is heavy work, so it gives way as other commands with large arguments do (package fair), and its
// turn lasts until a leader has looked for an element. If it has to be sent again, it waits for no other turn: the leader itself
// lets other requests go before it (fair.Turns).
//
// An element can still be lost: if the client leaves in the very batch in which the element is popped for it,
// or if its node dies with the reply. Redis loses that element, too. The leader does not push it back: by then
// other clients may have seen the list without it, or have deleted the key. The loss is possible during one commit
// and, if the client's node is a follower, until the cancel has reached the leader.
//
// A leader ends the connection of a node that has blocked clients and was silent for aliveTimeout,
// because a connection may break without either side noticing (checkAlive). CLIENT PAUSE and CLIENT
// UNBLOCK act on the node that they are sent to, because client ids belong to one node.

// Blocked is a blocking command in progress.
type Blocked struct {
	Call   Call
	Client *Client // whose command it is; nil: the node's own, which does not give way
	// Done is called with the reply, once, from any goroutine; it must not
	// wait. Abandon prevents the call, unless the command has ended before.
	Done func(store.Reply)

	// blockRegistry.mu guards the fields below.
	id       uint64
	state    blockState
	attempt  int           // counts the sendings
	began    time.Duration // monotonic time at which it was first sent, or began to wait for a leader
	lost     time.Duration // when a sending first failed, as a rule because the leader was lost; 0: none has failed
	deadline time.Duration
	index    int           // in blockRegistry.timers; -1: not there
	waits    bool          // a leader has found no element for it
	blind    bool          // a snapshot has jumped over entries since it was sent
	kind     string        // see request.Kind
	keys     *keyIndex     // index of its keys, if they are many and this node led before it was sent; else nil
	looked   chan struct{} // closed when its turn in the gate is over; nil: it has no turn
	quit     *quit         // how it ends if it is not served; nil: nobody has asked to end it

	blockedClient *blockedClient // set if it was sent to this node itself, which leads …
	link          *forward.Link  // … or the link by which it was sent …
	call          uint64         // … and the number of that call; 0: the call is about to be made
}

type blockState uint8

const (
	blockUnsent blockState = iota
	blockSent
	blockDoubt
	blockDone
	blockTurn // waits for its turn, because its arguments are large; the goroutine of blockGivingWay begins it or ends it
)

// quit is a request to end a Blocked that is not served.
type quit struct {
	reply   store.Reply
	timeout bool       // the reason is the timeout: a leader has to evaluate the command once before it ends
	ended   func(bool) // is told whether this quit has ended the command; may be nil
	at      time.Duration
}

// Block begins to run a blocking command. Flush must follow.
func (n *Node) Block(b *Blocked) {
	k := n.blockRegistry
	b.index = -1
	if call.Fitting([]Call{b.Call}) == 0 {
		k.mu.Lock()
		after := k.finish(b, call.TooLong(&b.Call, n.MaxEntry()), false) // so that Unblock does not end it again
		k.mu.Unlock()
		after()
		return
	}
	rt := n.routes.get()
	heavy, patience := n.givesWay(b)
	if b.kind = call.Kind([]Call{b.Call}); !heavy {
		n.index(b)
	}
	k.mu.Lock()
	if k.closed {
		after := k.finish(b, store.Err(ErrClusterDown), false)
		k.mu.Unlock()
		after()
		return
	}
	k.next++
	b.id = k.next
	k.all[b.id] = b
	if len(k.all) == 1 {
		defer k.signal() // the leader has to be told that this node lives
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

// begin sends a command for the first time, or has it wait for a leader. Its timeout begins now: as in Redis, the time that the
// command has waited for its turn does not count. begin returns what to do when mu is free.
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
	if rt.seq == nil && rt.link == nil {
		k.unsent = append(k.unsent, b)
		return k.signal
	}
	return k.sending(b, rt, now)
}

// givesWay reports whether a blocking command is heavy work, and for how long it waits for its turn at most.
func (n *Node) givesWay(b *Blocked) (heavy bool, patience time.Duration) {
	if calls := []Call{b.Call}; call.AnyLarge(calls) {
		return n.gate.Heavy(b.Client, calls)
	}
	return false, 0
}

// index makes the index of a command's keys before the command is sent, if this node leads; for another node, that node makes the
// index (serveBlock). Once sent, the command may be cancelled at any moment, and then its arguments belong to the client again.
func (n *Node) index(b *Blocked) {
	if n.routes.get().seq != nil {
		b.keys = indexOf(&b.Call)
	}
}

// blockGivingWay begins a blocking command with large arguments when its turn has come. Until then only this goroutine, which uses
// the arguments, may end the command: the arguments of an ended command belong to the client again. If the client has gone, Abandon
// may end the command, too.
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
	if !ran {
		n.Abandon(b) // its session abandons it, too
	}
}

// turn begins a command whose turn has come. looked is closed when the turn is over.
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
			b.passOn() // there is no leader
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

// maxTimeout is in ms; a longer timeout never ends.
const maxTimeout = int64(100 * 365 * 24 * time.Hour / time.Millisecond)

// Unblock ends a Blocked with a reply, unless it is served before. ended is told, perhaps before Unblock
// returns, whether this call has ended it.
func (n *Node) Unblock(b *Blocked, reply store.Reply, ended func(bool)) {
	n.blockRegistry.end(b, &quit{reply: reply, ended: ended})
}

// Abandon ends a Blocked whose client has gone. An element that is being served to it at this moment is
// lost, as is what Redis writes to a connection that has ended.
func (n *Node) Abandon(b *Blocked) {
	k := n.blockRegistry
	k.mu.Lock()
	if b.state == blockDone {
		k.mu.Unlock()
		return
	}
	cancel := k.cancelling(b, quitNow)
	b.Done = func(store.Reply) {}
	after := k.finish(b, store.Reply{}, false)
	k.mu.Unlock()
	cancel()
	after()
}

// end asks to end b by q, unless b is done or has a quit already.
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

// endLocked does the work of end; the caller holds mu. It returns what to do when mu is free.
func (k *blockRegistry) endLocked(b *Blocked, q *quit) (after func()) {
	b.quit = q
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

// finish ends b and returns a function that delivers the reply and answers b's quit. quitted says that b
// ends by its quit.
func (k *blockRegistry) finish(b *Blocked, reply store.Reply, quitted bool) (after func()) {
	b.state = blockDone
	b.passOn()
	delete(k.all, b.id)
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
	waited := forward.Waited{Age: now - b.began, Joined: b.waits}
	if rt.seq == nil {
		b.link = rt.link
		return func() { k.sendThere(b, rt.link, attempt, waited) }
	}
	w := &blockedClient{origin: k.n.boot, id: id, waited: waited, since: b.began, joined: func() { k.waiting(b, attempt) }, keys: b.keys}
	w.req = &request{calls: []Call{b.Call}, blockedClient: w, kind: b.kind, finish: func(r *request) {
		var reply store.Reply
		if r.err == nil {
			reply = r.replies[0]
		}
		k.result(b, attempt, reply, r.err)
	}}
	b.blockedClient = w
	if b.quit != nil {
		w.quit.Store(quitSoon)
	}
	return func() { rt.seq.enqueue(w.req) }
}

func (k *blockRegistry) sendThere(b *Blocked, l *forward.Link, attempt int, waited forward.Waited) {
	number := l.Start(forward.Block,
		func(buf []byte) []byte {
			return forward.AppendBlock(buf, k.n.boot, b.id, l.Token, &b.Call, waited, l.Peer.Speaks.Minor)
		},
		&forward.Forwarded{
			Done: func(body []byte, err error) {
				var reply store.Reply
				if err == nil {
					reply, err = forward.ReadOneReply(body)
				}
				k.result(b, attempt, reply, err)
			},
			Waits: func() { k.waiting(b, attempt) },
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

// waiting is called when a leader has found no element for b.
func (k *blockRegistry) waiting(b *Blocked, attempt int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if b.attempt == attempt {
		b.waits = true
		b.passOn()
	}
}

// result handles the outcome of one sending. A reply counts even if it answers an earlier sending: the
// command has been executed.
func (k *blockRegistry) result(b *Blocked, attempt int, reply store.Reply, err error) {
	k.mu.Lock()
	after := func() {}
	if err != nil && b.lost == 0 {
		b.lost = k.n.cfg.Time.Monotonic()
	}
	switch {
	case b.state == blockDone:
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
			// The leader was deposed and elected again while this link stood: its new term does not know the claim of the link.
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

func inOrder(list []*Blocked) {
	slices.SortFunc(list, func(a, b *Blocked) int { return cmp.Or(cmp.Compare(a.began, b.began), cmp.Compare(a.id, b.id)) })
}
