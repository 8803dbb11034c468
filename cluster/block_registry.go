package cluster

import (
	"encoding/binary"
	"sync"
	"time"

	"lockstep/cluster/internal/forward"
	"lockstep/store"
)

// blockRegistry looks after the blocking commands of this node's clients: their
// timeouts, and what the loss of a leader means for them. One goroutine does
// it for all of them.
type blockRegistry struct {
	n    *Node
	wake chan struct{} // has room for one

	// Lock order: the FSM's lock before mu, because notes are read while an entry is applied.
	mu        sync.Mutex
	closed    bool
	next      uint64
	all       map[uint64]*Blocked // in progress, by id
	timers    timers
	unsent    []*Blocked // to be sent to a leader; some may be done by now
	doubt     []*Blocked // sent, with an unknown outcome; some may be done by now
	notBefore time.Duration
	jumps     uint64 // number of jumps of the state that blind has noted

	// The route at the last step, and the claim that was sent by it.
	seq   *sequencer
	link  *forward.Link
	ask   *claimAsk
	alive time.Duration // when this node last told the leader that it lives
}

// claimAsk is a claim on its way.
type claimAsk struct {
	cohort   []*Blocked // commands that were in doubt before the claim was sent
	answered bool
	failed   bool
	position uint64 // sequence number of the leader's state at the answer
}

const (
	// registryPoll bounds how late a timeout is noticed when the clock does not
	// run evenly, as in tests that move it.
	registryPoll = 50 * time.Millisecond
	// settlePoll is how often the registry checks while a claim is on its way, or commands are unsent or in doubt.
	settlePoll = 2 * time.Millisecond
	// aliveInterval is how often a node that has blocked clients tells the
	// leader that it is there …
	aliveInterval = time.Second
	// … and aliveTimeout is how long the leader waits for that before it ends the connection.
	aliveTimeout = 4 * aliveInterval
)

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

// close ends the commands that are still in progress when the node closes, or when it stops and no majority answers (hope).
func (k *blockRegistry) close() {
	k.mu.Lock()
	k.closed = true
	var after []func()
	for _, b := range k.all {
		if b.state == blockTurn {
			continue // its goroutine ends it
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

// step does what is due. It returns the time after which it has to be called again.
func (k *blockRegistry) step(rt route) time.Duration {
	now := k.n.cfg.Time.Monotonic()
	position, jumps := k.n.fsm.Progress()
	var after []func()
	k.mu.Lock()
	if jumps != k.jumps {
		k.blind(jumps) // the new state can be seen before jumped is called
	}
	if rt.seq != k.seq || rt.link != k.link {
		if k.ask != nil {
			k.doubt = append(k.doubt, k.ask.cohort...)
		}
		k.seq, k.link, k.ask = rt.seq, rt.link, nil
		after = k.recall(rt)
	}
	after = append(after, k.expire(now)...)
	after = append(after, k.settle(position, now)...)
	after = append(after, k.giveUp(now)...)
	after = append(after, k.claim(rt, now)...)
	after = append(after, k.resend(rt, now)...)
	after = append(after, k.tellAlive(now)...)
	wait := k.idle(rt, now)
	k.mu.Unlock()
	for _, fn := range after {
		fn()
	}
	if rt.seq != nil && len(after) > 0 {
		rt.seq.flush()
	}
	return wait
}

// recall gives up the calls to an earlier leader as soon as there is another leader to ask: the earlier
// one may be silent for as long as its link is kept (follow.go).
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

// idle returns for how long the registry has nothing to do.
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

// expire ends the commands whose timeout is over.
func (k *blockRegistry) expire(now time.Duration) (after []func()) {
	for len(k.timers) > 0 && k.timers[0].deadline <= now {
		after = append(after, k.endLocked(k.timers[0], &quit{reply: store.WaitTimedOut, timeout: true, at: now}))
	}
	return after
}

// claim claims the link to the leader again, to learn how far the log has come. When a leader answers the
// claim, it has refused or served everything that this node sent by other links, and the entries of
// earlier leaders come before its own. So a command without a note in the log up to that position was not
// served, and will not be.
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

// claimRequest makes a request of a claim. answer gets the position of the state that the claim was
// evaluated on, or of a later one.
func (n *Node) claimRequest(c *claim, answer func(uint64, error)) *request {
	return &request{claim: c, finish: func(r *request) {
		if r.err != nil || len(r.replies) != 1 {
			answer(0, errNotExecuted)
			return
		}
		position, _ := n.fsm.Position()
		answer(position, nil)
	}}
}

// settle decides about the commands in doubt when the claim has been answered, and this node has applied
// the log up to the position in the answer.
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
		case b.blind:
			after = append(after, k.finish(b, store.Err(ErrIndeterminate), false))
		default:
			after = append(after, k.requeue(b))
		}
	}
	return after
}

// giveUp ends the commands that have waited for too long: those that no leader has looked at within
// FailoverWait, and those in doubt that were asked to end FailoverWait ago or earlier.
func (k *blockRegistry) giveUp(now time.Duration) (after []func()) {
	limit := k.n.cfg.FailoverWait
	check := func(list []*Blocked) []*Blocked {
		kept := list[:0]
		for _, b := range list {
			due := max(b.began, b.lost) + limit // as for other commands (carried.leaderLost)
			switch {
			case b.state == blockUnsent && !b.waits && now >= due:
				after = append(after, k.finish(b, store.Err(ErrClusterDown), false))
			case b.state == blockDoubt && (b.quit != nil && now-b.quit.at >= limit || !b.waits && now >= due):
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

// resend sends the unsent commands, some of them again, in the order in which they came.
func (k *blockRegistry) resend(rt route, now time.Duration) (after []func()) {
	if rt.seq == nil && rt.link == nil || len(k.unsent) == 0 || now < k.notBefore {
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

func (k *blockRegistry) tellAlive(now time.Duration) (after []func()) {
	l := k.link
	if l == nil || len(k.all) == 0 || now-k.alive < aliveInterval {
		return nil
	}
	k.alive = now
	// If the link is broken, its reader notices.
	return append(after, func() { _ = l.Out.Send(forward.Alive, 0, func(b []byte) []byte { return b }) })
}

// noted reads a note in the log, and ends the command that it is for.
func (k *blockRegistry) noted(note string) {
	id, size := binary.Uvarint([]byte(note))
	if size <= 0 {
		return
	}
	reply, _, err := store.ReadReply([]byte(note[size:]))
	if err != nil {
		k.n.cfg.Logger.Error("a note of a blocking command cannot be read", "error", err)
		return
	}
	k.mu.Lock()
	after := func() {}
	if b := k.all[id]; b != nil {
		after = k.finish(b, reply, false)
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

// blind marks the commands that have been sent: they may have been served without this node having seen
// the note. The caller holds mu.
func (k *blockRegistry) blind(jumps uint64) {
	k.jumps = jumps
	for _, b := range k.all {
		b.blind = b.blind || b.state != blockUnsent
	}
}

// noteSink takes the notes out of the published messages, reads those to this node, and passes the other messages on.
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
