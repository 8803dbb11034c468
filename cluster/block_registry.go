package cluster

import (
	"cmp"
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/forward"
	"github.com/lockstep-io/lockstep/store"
)

// blockRegistry holds the blocking commands of this node's clients. The goroutine run ends them at their timeouts, and sends them
// again after a change of leader.
type blockRegistry struct {
	n    *Node
	wake chan struct{} // wakes run; has room for one signal

	// Lock order: the FSM's lock before mu, because notes are read while an entry is applied.
	mu        sync.Mutex
	closed    bool
	next      uint64
	all       map[uint64]*Blocked // in progress, by id
	left      map[uint64]leaving  // commands that may get a lock although their clients have left, by id
	timers    timers
	unsent    []*Blocked // to be sent to a leader; some may be done by now
	doubt     []*Blocked // sent, with an unknown outcome; some may be done by now
	notBefore time.Duration
	jumps     uint64 // number of snapshots that had replaced the state when blind last ran (FSM.Progress)

	// The route when step last ran, and the claim that was sent over this route.
	seq   *sequencer
	link  *forward.Link
	ask   *claimAsk
	alive time.Duration // when this node last told the leader that it lives
	sent  bool          // all commands that waited at an earlier leader were sent to the leader of this route

	// Commands that were sent over a link and then abandoned, and for which the leader has not answered the cancel yet.
	abandoned struct {
		link  *forward.Link // the latest link over which such commands were sent
		bytes int64         // the memory that the commands sent over it take on the leader, in bytes (BlockedSize)
	}
}

// maxAbandoned bounds the bytes of abandoned commands whose cancel the leader has not answered, lest these fill the memory.
const maxAbandoned = 1 << 20

// claimAsk is a claim that was sent to the leader and, once the leader has answered, the answer.
type claimAsk struct {
	cohort   []*Blocked // the commands that were in doubt when the claim was sent
	answered bool
	failed   bool
	position uint64 // sequence number of the leader's state when the leader answered
}

const (
	// registryPoll is the longest time between two calls of step while commands wait. It is short because tests let the clock
	// jump.
	registryPoll = 50 * time.Millisecond
	// settlePoll replaces registryPoll while step has work to do at a leader.
	settlePoll = 2 * time.Millisecond
	// aliveInterval is how often a node that has blocked clients tells the leader that the node lives.
	aliveInterval = time.Second
	// aliveTimeout: if a node with blocked clients sends nothing for this long, the leader ends the connection of that node.
	aliveTimeout = 4 * aliveInterval
)

// abandons counts the bytes of an abandoned command that was sent over the present link, and lets go of its arguments. The caller
// holds mu.
func (k *blockRegistry) abandons(b *Blocked) {
	if b.state != blockSent || b.link == nil || b.link != k.n.routes.get().link {
		return
	}
	a := &k.abandoned
	if a.link != b.link {
		a.link, a.bytes = b.link, 0
	}
	b.abandoned = BlockedSize(b.Call.Args)
	a.bytes += b.abandoned
	b.Caller, b.Call.Args = nil, nil
}

// answered notes that one sending of a command is over: the leader has answered it, or the link is lost. The caller holds mu.
func (k *blockRegistry) answered(b *Blocked, attempt int) {
	if attempt != b.attempt || b.link != k.abandoned.link {
		return
	}
	before := k.abandoned.bytes
	k.abandoned.bytes -= b.abandoned
	b.abandoned = 0
	if before > maxAbandoned && k.abandoned.bytes <= maxAbandoned {
		k.signal() // the unsent commands may be sent
	}
}

// crowded reports whether maxAbandoned forbids this node to send further blocking commands over its link.
func (k *blockRegistry) crowded(rt route) bool {
	return rt.link != nil && rt.link == k.abandoned.link && k.abandoned.bytes > maxAbandoned
}

func newBlockRegistry(n *Node) *blockRegistry {
	return &blockRegistry{n: n, wake: make(chan struct{}, 1), all: map[uint64]*Blocked{}}
}

func (k *blockRegistry) signal() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// run works until the node closes.
func (k *blockRegistry) run() {
	defer k.n.work.Done()
	defer k.close()
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	for {
		rt := k.n.routes.get()
		timer.Reset(k.step(rt))
		select {
		case <-k.n.ctx.Done():
			return
		case <-k.wake:
		case <-rt.changed:
		case <-timer.C:
		}
	}
}

// close ends all commands in progress: the node closes, or stops and finds no majority (Node.hope).
func (k *blockRegistry) close() {
	k.mu.Lock()
	k.closed = true
	var after []func()
	for _, b := range k.all {
		if b.state == blockTurn {
			continue // blockGivingWay ends it
		}
		e := ErrIndeterminate
		if b.state == blockUnsent {
			e = ErrClusterDown
		}
		after = append(after, k.finish(b, store.Err(e), false))
	}
	k.mu.Unlock()
	for _, fn := range after {
		fn()
	}
}

// step does the work that is due, and returns the longest time until it must be called again.
func (k *blockRegistry) step(rt route) time.Duration {
	now := k.n.cfg.Time.Monotonic()
	position, jumps := k.n.fsm.Progress()
	var after []func()
	k.mu.Lock()
	if jumps != k.jumps {
		k.blind(jumps) // Progress may have counted a snapshot for which jumped has not been called yet
	}
	if rt.seq != k.seq || rt.link != k.link {
		if k.ask != nil {
			k.doubt = append(k.doubt, k.ask.cohort...)
		}
		k.seq, k.link, k.ask, k.sent = rt.seq, rt.link, nil, false
		after = k.recall(rt)
	}
	after = append(after, k.expire(now)...)
	after = append(after, k.settle(position, now)...)
	after = append(after, k.giveUp(now)...)
	after = append(after, k.claim(rt, now)...)
	after = append(after, k.resend(rt, now)...)
	after = append(after, k.tellSent(rt)...)
	after = append(after, k.tellAlive(now)...)
	wait := k.idle(rt, now)
	k.mu.Unlock()
	for _, fn := range after {
		fn()
	}
	if rt.seq != nil && len(after) > 0 {
		rt.seq.flush(false)
	}
	return wait
}

// recall ends the calls to an earlier leader as unknown once there is another leader, because the earlier one may be silent for
// long.
func (k *blockRegistry) recall(rt route) (after []func()) {
	if rt.seq == nil && rt.link == nil {
		return nil
	}
	var list []*Blocked
	for _, b := range k.all {
		if b.state == blockSent && b.link != nil && b.link != rt.link && b.call != 0 {
			list = append(list, b)
		}
	}
	inOrder(list)
	for _, b := range list {
		l, call := b.link, b.call
		after = append(after, func() { l.Resolve(call, nil, errUnknown) })
	}
	return after
}

// idle returns after which time step has to be called again.
func (k *blockRegistry) idle(rt route, now time.Duration) time.Duration {
	wait := time.Hour
	if rt.link != nil && len(k.all) > 0 {
		wait = max(k.alive+aliveInterval-now, time.Millisecond)
	}
	if len(k.timers) > 0 {
		wait = min(wait, registryPoll, max(k.timers[0].deadline-now, 100*time.Microsecond))
	}
	switch routed := rt.seq != nil || rt.link != nil; {
	case routed && (k.ask != nil || len(k.unsent) > 0 || len(k.doubt) > 0):
		wait = min(wait, settlePoll)
	case len(k.unsent) > 0 || len(k.doubt) > 0:
		wait = min(wait, registryPoll)
	}
	return wait
}

// expire asks to end the commands whose timeout is over.
func (k *blockRegistry) expire(now time.Duration) (after []func()) {
	for len(k.timers) > 0 && k.timers[0].deadline <= now {
		after = append(after, k.endLocked(k.timers[0], &quit{reply: store.WaitTimedOut, timeout: true, at: now}))
	}
	return after
}

// claim asks the leader about the commands in doubt. The leader first settles the commands of this node's other links, so a
// command without a note up to the answered position never will be served.
func (k *blockRegistry) claim(rt route, now time.Duration) (after []func()) {
	if len(k.doubt) == 0 || k.ask != nil || now < k.notBefore || rt.seq == nil && rt.link == nil {
		return nil
	}
	ask := &claimAsk{cohort: k.doubt}
	k.doubt, k.ask = nil, ask
	answer := func(position, _ uint64, err error) {
		k.mu.Lock()
		ask.answered, ask.position, ask.failed = true, position, err != nil
		k.mu.Unlock()
		k.signal()
	}
	if rt.seq != nil {
		return append(after, func() {
			rt.seq.submit(k.n.claimRequest(&claim{origin: k.n.boot}, func(position uint64, err error) { answer(position, 0, err) }))
		})
	}
	return append(after, func() { k.n.sendClaim(rt.link, rt.link.Token, answer) })
}

// claimRequest returns a request by which the leader evaluates c. answer gets an error, or a position no earlier than that of the
// evaluation.
func (n *Node) claimRequest(c *claim, answer func(uint64, error)) *request {
	return &request{claim: c, finish: func(r *request) {
		switch {
		case r.err != nil || len(r.replies) != 1:
			answer(0, errNotExecuted)
		case r.replies[0].IsError():
			answer(0, store.Error(r.replies[0].Str)) // BUSY
		default:
			position, _ := n.fsm.Position()
			answer(position, nil)
		}
	}}
}

// settle decides about the commands in doubt, once this node has applied the log up to the position in the claim's answer.
func (k *blockRegistry) settle(position uint64, now time.Duration) (after []func()) {
	ask := k.ask
	if ask == nil || !ask.answered {
		return nil
	}
	if ask.failed {
		k.doubt = append(k.doubt, ask.cohort...)
		k.ask, k.notBefore = nil, now+retryPause
		return nil
	}
	if position < ask.position {
		return nil
	}
	k.ask = nil
	for _, b := range ask.cohort {
		switch {
		case b.state != blockDoubt:
		case b.noted != nil:
			after = append(after, k.confirm(b, *b.noted, now))
		case b.blind:
			after = append(after, k.finish(b, store.Err(ErrIndeterminate), false))
		default:
			after = append(after, k.requeue(b))
		}
	}
	return after
}

// giveUp ends commands that no leader has looked at for FailoverWait, and those in doubt that were asked to end that long ago.
func (k *blockRegistry) giveUp(now time.Duration) (after []func()) {
	limit := k.n.cfg.FailoverWait
	removed := k.seq == nil && k.link == nil && k.n.Removed()
	check := func(list []*Blocked) []*Blocked {
		kept := list[:0]
		for _, b := range list {
			due := max(b.began, b.lost) + limit // as for other commands (carried.leaderLost)
			switch {
			case b.state == blockUnsent && removed:
				after = append(after, k.finish(b, store.Err(ErrRemoved), false))
			case b.state == blockUnsent && !b.waits && now >= due:
				after = append(after, k.finish(b, store.Err(ErrClusterDown), false))
			case b.state == blockDoubt && (removed || b.quit != nil && now-b.quit.at >= limit || !b.waits && now >= due):
				after = append(after, k.finish(b, store.Err(ErrIndeterminate), false))
			case b.state != blockDone:
				kept = append(kept, b)
			}
		}
		clear(list[len(kept):])
		return kept
	}
	k.unsent, k.doubt = check(k.unsent), check(k.doubt)
	if k.ask != nil {
		k.ask.cohort = check(k.ask.cohort)
	}
	return after
}

// resend sends the unsent commands in the order in which they came, some for the first time and others again.
func (k *blockRegistry) resend(rt route, now time.Duration) (after []func()) {
	if rt.seq == nil && rt.link == nil || len(k.unsent) == 0 || now < k.notBefore || k.crowded(rt) {
		return nil
	}
	list := k.unsent
	k.unsent = nil
	inOrder(list)
	for _, b := range list {
		if b.state == blockUnsent {
			after = append(after, k.sending(b, rt, now))
		}
	}
	return after
}

// tellSent notes that all commands that waited at an earlier leader have been sent to the present one, and tells it so.
func (k *blockRegistry) tellSent(rt route) (after []func()) {
	if k.sent || rt.seq == nil && rt.link == nil || k.ask != nil || len(k.doubt) > 0 || len(k.unsent) > 0 {
		return nil
	}
	return append(after, func() {
		k.mu.Lock()
		k.sent = k.seq == rt.seq && k.link == rt.link
		k.mu.Unlock()
		if rt.link != nil {
			// An error needs no handling here: the reader of a broken link notices the break.
			_ = rt.link.Out.Send(forward.Alive, 0, func(b []byte) []byte { return append(b, 1) })
		}
	})
}

// hasSentAll reports whether all commands of this node that waited at an earlier leader have been queued at s.
func (k *blockRegistry) hasSentAll(s *sequencer) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.seq == s && k.sent || len(k.all) == 0
}

func (k *blockRegistry) tellAlive(now time.Duration) (after []func()) {
	l := k.link
	if l == nil || len(k.all) == 0 || now-k.alive < aliveInterval {
		return nil
	}
	k.alive = now
	// An error needs no handling here: the reader of a broken link notices the break.
	return append(after, func() { _ = l.Out.Send(forward.Alive, 0, func(b []byte) []byte { return b }) })
}

// noted decodes a note from the log. The command that the note names was served, so noted ends it with the reply in the note.
func (k *blockRegistry) noted(note string) {
	id, size := binary.Uvarint([]byte(note))
	if size <= 0 {
		return
	}
	reply, rest, err := store.ReadReply([]byte(note[size:]))
	given := grants{}
	if err == nil {
		given, err = readGrants(rest)
	}
	if err != nil {
		k.n.cfg.Logger.Error("a note of a blocking command cannot be read", "error", err)
		return
	}
	k.mu.Lock()
	after := func() {}
	if b := k.all[id]; b != nil {
		if len(given.list) == 0 {
			after = k.finish(b, reply, false)
		} else {
			b.noted = &granted{reply, given} // the leader answers when the lease has begun; settle, if the leader is lost
		}
	} else if x, left := k.left[id]; left {
		delete(k.left, id)
		after = func() { k.release(x, granted{reply, given}) }
	}
	k.mu.Unlock()
	after()
}

// jumped is called when a snapshot has replaced the state. The snapshot may have jumped over notes.
func (k *blockRegistry) jumped() {
	_, jumps := k.n.fsm.Progress()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.blind(jumps)
}

// blind marks the commands that were sent before a snapshot replaced the state: this node may never see their notes. The caller
// holds mu.
func (k *blockRegistry) blind(jumps uint64) {
	k.jumps = jumps
	for _, b := range k.all {
		b.blind = b.blind || b.state != blockUnsent
	}
}

// noteSink takes the notes out of the published messages, reads the notes that are for this node, and passes the other messages on
// to Config.Sink.
type noteSink struct{ n *Node }

var _ store.Sink = noteSink{}

// Publish implements store.Sink.
func (s noteSink) Publish(kind store.PublishKind, channel, message string) {
	switch {
	case kind != store.Note:
		if s.n.cfg.Sink != nil {
			s.n.cfg.Sink.Publish(kind, channel, message)
		}
	case channel == noteName(s.n.boot):
		s.n.blockRegistry.noted(message)
	}
}

func inOrder(list []*Blocked) {
	slices.SortFunc(list, func(a, b *Blocked) int { return cmp.Or(cmp.Compare(a.began, b.began), cmp.Compare(a.id, b.id)) })
}
