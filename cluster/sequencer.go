package cluster

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/clock"
	"github.com/lockstep-io/lockstep/cluster/internal/fair"
	"github.com/lockstep-io/lockstep/raftfsm"
	"github.com/lockstep-io/lockstep/store"
)

// The order of requests on the leader.
//
// A sequencer lives for one term of leadership. It evaluates the waiting requests on a transaction over the committed state, proposes
// their writes as one entry, and answers when that entry has been applied here. Only one entry is in flight, so batches grow with the
// load. A batch without writes costs one leadership check (consensus.Verify).
//
// Requests of one user are evaluated in the order of their arrival: a release whose reply is late must not come after the owner's next
// lock command. Only long reads (longreads.go), and heavy and coarse work (package fair), may go behind later requests.

const (
	// maxBatchBytes is the size of the writes at which a batch is closed: larger entries delay Raft's own traffic.
	maxBatchBytes = 256 << 10
	// maxEntryBytes bounds the writes of an entry. raft-wal would store an entry of more than 64 MiB and then fail to read it.
	maxEntryBytes = 63 << 20
	// maxBeforeFirst: if an entry has no more bytes than this, there is room in it for any one request.
	maxBeforeFirst = maxEntryBytes - store.MaxEntry - 1<<20
	// maxPartBytes is how many bytes of writes or replies a request of several commands may have
	// before its remaining commands are put off: see SubmitPart.
	maxPartBytes = 1 << 20
	// maxReplyBytes is the size of the replies at which a batch is closed, because they are encoded all at once.
	maxReplyBytes = 4 << 20
	// maxHeldBytes is how many bytes of data a batch may copy, in order to change them, before the batch is closed.
	maxHeldBytes = 8 << 20
	// maxWholeBytes: a request from a node of version 0.1.0 is answered in parts only if its replies have more bytes than this.
	maxWholeBytes = 16 << 20
	// expireLimit is how many expired keys one entry deletes at most.
	expireLimit = 500
	// stampInterval is how often a leader logs the time while a deadline is pending: a restart of the whole cluster can lengthen
	// leases by this.
	stampInterval = time.Second
)

// sequencer orders and evaluates requests while this node leads.
type sequencer struct {
	node *Node
	log  *slog.Logger

	term uint64 // Raft term in which the sequencer began
	room int    // how many bytes of writes an entry may have (roomForEntry)

	in             fair.Inbox[*request]    // requests that come
	gather         fair.Gatherer[*request] // decides how long a batch waits for more requests
	users          fair.Turns[*request]    // requests that go behind others because their users have used much time
	long           longReads               // long reads, which also go behind other requests
	polls          *polls                  // owners that ask for locks again and again
	cut            []*request              // requests that evaluateAgain has cut off from the present batch
	work           workTime                // measures evaluations
	spread         int64                   // how long, in ms, the present batch takes in requests
	script         longScript              // the script that runs
	evaluation                             // of the present batch
	blockedClients *blockedClients         // blocked clients that wait for an element
	serveTurns     serveTurns              // decides when pending blocked clients are served

	stamped    time.Duration  // monotonic time of the last entry
	late       clock.Lateness // how late replies were
	overdue    *overdue       // the batch that waits until its leases have been lengthened
	correcting bool           // the present batch only lengthens leases
	shift      shift          // the change to earlier leases in the next entry

	roomless time.Duration // monotonic time of the last log line about an entry without room; 0: never
	ownFound time.Duration // monotonic time of the last log line of foundOwn

	early       early
	corrections corrections
}

// evaluation is what the evaluation of one batch uses. The next one uses its memory again.
type evaluation struct {
	txn     *store.Txn
	ahead   store.Ahead
	ctx     store.Ctx        // of the present command
	turn    turn             // the command or script that runs now
	watches func()           // the method watch, bound once
	slow    []suspect        // what suspects has returned last
	company bool             // the batch has evaluated other requests, which wait for the present one
	done    *raftfsm.Answers // replies to executed requests; valid only within FSM.ViewAnswers
}

func newSequencer(n *Node) *sequencer {
	s := &sequencer{node: n, log: n.cfg.Logger, in: fair.NewInbox[*request](), work: workTime{time: n.cfg.Time}, blockedClients: newBlockedClients(), polls: newPolls(n.cfg.Time.Monotonic)}
	// On an ephemeral node the method lead runs the first batch; only then may submitters run batches, too.
	if n.cfg.Ephemeral {
		s.in.Hand()
	}
	s.script.node, s.script.in = n, &s.in
	s.gather = fair.NewGatherer(&s.in, n.cfg.Time)
	s.watches = s.watch
	s.blockedClients.wake = s.in.Signal
	return s
}

// submit queues a request, and has it run. If it cannot queue the request, it completes the request with an error, as enqueue does.
func (s *sequencer) submit(r *request) {
	if s.enqueue(r) {
		s.flush(false)
	}
}

// enqueue queues a request, after which the caller has to call flush. If it cannot, enqueue completes the request with an error and
// returns false.
func (s *sequencer) enqueue(r *request) bool {
	s.arrives(r)
	switch closed, busy := s.in.Add(r, r.patient()); {
	case closed:
		r.complete(errNotExecuted)
		return false
	case busy:
		r.refuse(s.node.BusyError())
		return false
	}
	if w := r.blockedClient; w != nil && w.state.Load() == blockedCancelled {
		s.in.Remove(r) // it may have been cancelled before it was queued
	}
	return true
}

// dequeue takes a request that has been cancelled out of the inbox of the leader, if this node leads.
func (n *Node) dequeue(r *request) {
	if seq := n.routes.get().seq; seq != nil {
		seq.in.Remove(r)
	}
}

// flush makes sure that a goroutine runs the queued requests. watched is true if the caller may run scripts (Node.FlushWatched).
func (s *sequencer) flush(watched bool) {
	switch run, enough, any := s.in.Begin(s.node.cfg.Ephemeral); {
	case run:
		// An ephemeral node waits for no disk or peer, so passing the requests to another goroutine would cost
		// more than running them here.
		s.runInline(watched)
	case enough:
		s.in.SignalFull()
	case any:
		s.in.Signal()
	}
}

// inlineRounds is how many times a submitter takes queued requests, most of them from others, and runs them, before another
// goroutine takes over.
const inlineRounds = 4

// runInline runs the queued requests on a submitter's goroutine, and no other goroutine runs requests meanwhile. It does not wait for
// room for replies, which the same goroutine may have to make. Unless watched is true, runInline runs only one batch, and nothing that
// may take long.
func (s *sequencer) runInline(watched bool) {
	rounds := inlineRounds
	if !watched {
		rounds = 1
	}
	for range rounds {
		rest, runs := s.in.TakeUnless(func(q []*request) bool { return !watched && s.mayTakeLong(q) })
		if !runs {
			break
		}
		first := true
		for ; (first || watched && (len(rest) > 0 || s.serves())) && !s.node.gate.InHand.IsBeyond(); first = false {
			rest, _ = s.runBatch(s.node.ctx, s.inTurn(rest), false)
			rest = s.leftOver(rest)
		}
		if len(rest) > 0 || first {
			s.in.PutBack(rest)
			break
		}
		if s.release() {
			return
		}
	}
	s.in.HandOver()
}

// mayTakeLong reports whether a batch of the queued requests q may take long.
func (s *sequencer) mayTakeLong(q []*request) bool {
	return s.users.Waiting() > 0 || len(s.long.waiting) > 0 || s.blockedClients.pending() || slices.ContainsFunc(q, (*request).runsScript)
}

// release lets other goroutines run requests and returns true. It returns false if requests or pending blocked clients
// wait: then the caller has to run them.
func (s *sequencer) release() bool {
	return len(s.long.waiting) == 0 && s.users.Waiting() == 0 && !s.blockedClients.pending() && s.in.Release()
}

// close completes the waiting requests with errNotExecuted. From then on enqueue completes every request with that error.
func (s *sequencer) close() {
	for _, r := range s.in.Shut(true) {
		r.complete(errNotExecuted)
	}
	// A submitter may still be running a batch.
	for s.node.cfg.Ephemeral && !s.in.Acquire() {
		time.Sleep(retryPause)
	}
	s.giveBack(s.users.Drain())
	s.giveBack(s.long.waiting)
	s.long.waiting = nil
	for _, r := range s.early.take() {
		r.complete(errNotExecuted)
	}
	s.blockedClients.drop(everyBlockedClient)
}

// lead runs the sequencer until leadership is lost. Before the call, every entry of earlier leaders must have been
// applied.
func (s *sequencer) lead(ctx context.Context) {
	defer s.close()
	seq, _ := s.node.fsm.Position()
	began := s.node.cfg.Time.Monotonic()
	s.blockedClients.began = began
	s.early.over, s.early.until = s.node.cfg.Ephemeral, began+queuesIn
	s.late.Reset(seq + 1)
	// The first entry of a new leader tells its followers which earlier proposals are void, and carries the
	// lease clock into its term.
	if !s.run(ctx, nil, true) {
		return
	}
	if s.node.cfg.Ephemeral {
		s.assist(ctx)
		return
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		q := s.gatherRequests()
		if len(q) == 0 && !s.due() {
			timer.Reset(s.idle())
			select {
			case <-ctx.Done():
				return
			case <-s.in.Wake:
				continue
			case <-timer.C:
			}
			if !s.run(ctx, nil, s.stampDue()) {
				return
			}
			continue
		}
		if !s.run(ctx, q, s.stampDue()) {
			return
		}
	}
}

// gatherRequests returns the requests of the next batch.
func (s *sequencer) gatherRequests() []*request {
	if ready := s.node.cfg.ready; ready != nil {
		ready(s)
	}
	return s.gather.Gather()
}

// assistInterval is how often an ephemeral node looks for expired keys while no requests come.
const assistInterval = 50 * time.Millisecond

// assist does the work of lead on an ephemeral node, where submitters run most batches.
func (s *sequencer) assist(ctx context.Context) {
	tick := time.NewTicker(assistInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.in.Wake:
		case <-tick.C:
		}
		if !s.in.Acquire() {
			continue
		}
		for {
			s.run(ctx, s.in.Take(), false)
			if s.release() {
				break
			}
			if !s.due() {
				select {
				case <-s.in.Wake:
				case <-time.After(longPause):
				}
			}
		}
	}
}

// due reports whether requests that go behind others may run now, or pending blocked clients may be served.
func (s *sequencer) due() bool {
	now := s.node.cfg.Time.Monotonic()
	return s.serves() || s.blockedClients.left.Load() || s.users.Due(now) || len(s.long.waiting) > 0 && s.longDue(now)
}

// idle returns how long the sequencer may wait if no requests come.
func (s *sequencer) idle() time.Duration {
	wait := time.Hour
	if len(s.long.waiting) > 0 || s.users.Waiting() > 0 || s.blockedClients.pending() || len(s.early.held) > 0 {
		return longPause
	}
	s.node.fsm.View(func(st *store.Store, _ uint64) {
		next := st.NextDeadline()
		if next == 0 {
			return
		}
		// A key lives through the millisecond of its deadline. The deadline may be further away than a Duration
		// can hold.
		left := min(next-s.node.clock.Now().Lease, stampInterval.Milliseconds()) + 1
		due := time.Duration(left) * time.Millisecond
		stamp := s.stamped + stampInterval - s.node.cfg.Time.Monotonic()
		wait = max(min(due, stamp), s.expiryPause())
	})
	return wait
}

// stampDue reports whether the next entry is due even without writes, to log the time.
func (s *sequencer) stampDue() bool {
	if s.node.cfg.Time.Monotonic()-s.stamped < stampInterval {
		return false
	}
	due := false
	s.node.fsm.View(func(st *store.Store, _ uint64) { due = st.NextDeadline() != 0 })
	return due
}

// run evaluates, proposes and answers requests. If stamp is true, the first batch becomes an entry even without writes. run returns
// false without leadership.
func (s *sequencer) run(ctx context.Context, q []*request, stamp bool) bool {
	// Run once even without a request: keys may have expired.
	for first, leads := true, true; first || len(q) > 0 || s.serves(); first = false {
		if !first || s.blockedClients.pending() {
			// A batch may end although hundreds of requests are left. New requests do not wait for all of these.
			q = s.in.TakeMore(q)
		}
		if !first {
			stamp = !s.node.cfg.Ephemeral && s.stampDue()
		}
		if len(q) > 0 {
			s.awaitRoom(ctx)
		}
		if q, leads = s.runBatch(ctx, s.inTurn(q), stamp); !leads {
			return false
		}
		q = s.leftOver(q)
	}
	return true
}

// awaitRoom waits while replies that are not encoded yet are far too large. Most of these answer long reads, so the wait lengthens
// their interval.
func (s *sequencer) awaitRoom(ctx context.Context) {
	if !s.node.gate.InHand.IsBeyond() {
		return
	}
	began := s.node.cfg.Time.Monotonic()
	s.node.gate.InHand.AwaitRoom(ctx)
	now := s.node.cfg.Time.Monotonic()
	s.long.interval.Waited(now-began, now)
}

// runBatch does the work of run for one batch. It returns the requests that are left over, and none if leadership is lost.
func (s *sequencer) runBatch(ctx context.Context, q []*request, stamp bool) (rest []*request, leads bool) {
	if ctx.Err() != nil {
		s.giveBack(q)
		return nil, false
	}
	started := s.node.clock.Now()
	began := s.node.cfg.Time.Monotonic()
	b, entry, rest := s.evaluate(ctx, q, started, stamp)
	b.began = began
	large, slow, evaluated := b.largeWrites(len(entry)), s.suspects(b), s.node.cfg.Time.Monotonic()
	if entry == nil {
		leads = s.answerReads(b)
	} else {
		leads = s.propose(b, entry, b.started)
	}
	s.tellSlow(slow, evaluated)
	if leads {
		s.blockedClients.settle()
		leads = s.makeUp(ctx)
	}
	if !leads {
		s.giveBack(rest)
		return nil, false
	}
	now := s.node.cfg.Time.Monotonic()
	s.node.measures.batched(len(b.requests), now-evaluated, entry != nil)
	if entry != nil {
		s.users.NoteCommit(large, len(entry), now-evaluated, now)
	}
	s.users.Ended(now)
	if b.served {
		s.serveTurns.served(now-began, now)
	}
	if len(q) > 0 {
		s.serveTurns.came = began
	}
	s.gather.Note(len(b.requests), began)
	return rest, true
}

// answerReads answers a batch that wrote nothing. This node must still lead after the evaluation: then no other leader had
// acknowledged a write before it.
func (s *sequencer) answerReads(b *batch) bool {
	if len(b.requests) == 0 && !s.blockedClients.unsure() {
		return true
	}
	if !s.stillLeads() {
		b.answer(errNotExecuted) // nothing was written, so the requests had no effect
		return false
	}
	b.answer(nil)
	return true
}

// stillLeads reports whether this node still led, in the term of the sequencer, at some moment after the call began.
func (s *sequencer) stillLeads() bool {
	// A leader that was deposed and elected again may not have applied the writes in between, so the term must be the same.
	return s.node.cons.Verify() == nil && s.node.term() == s.term
}

// propose puts the batch into the log and answers its requests. It returns false when leadership is lost.
func (s *sequencer) propose(b *batch, entry []byte, started store.Time) bool {
	if s.node.cfg.Ephemeral {
		// The local log applies the entry at once, so its fate is never unknown.
		out, err := s.node.cons.Propose(entry)
		s.stamped = s.node.cfg.Time.Monotonic()
		if err == nil && out.Accepted {
			s.late.Record(out.Sequence, s.node.clock.Now().Lease-started.Lease) // nothing makes up for it: no other leader follows
		}
		b.answer(err)
		return err == nil
	}
	s.node.pending.begin(b, s.node.cfg.FailoverWait)
	out, err := s.node.cons.Propose(entry)
	s.stamped = s.node.cfg.Time.Monotonic()
	switch {
	case err == nil && out.Accepted:
		s.node.pending.remove(b)
		b.accepted, s.shift = out.Sequence, shift{}
		// A batch that took long is not answered yet (applied), and another leader may have begun, whose clock does not know of the
		// delay.
		leads := b.ofTerm(out) && (b.answered.Load() || s.stillLeads())
		switch {
		case !leads:
			b.answer(errLate)
		case !s.postpone(b, started):
			b.answer(nil)
		}
		return leads
	case err == nil:
		// An earlier proposal has changed the state on which the batch was evaluated.
		s.log.Info("batch evaluated again: the state had moved on", "batch", b.number)
		// That proposal may have made any key ready, so the nodes have to send the commands of their blocked clients again.
		s.blockedClients.drop(everyBlockedClient)
		s.node.pending.settle(b)
		return true
	case errors.Is(err, errNotExecuted):
		s.node.pending.settle(b)
		return false
	default:
		// The fate is unknown: the next entry that is applied here settles it (pending.go), or the watchdog
		// gives up.
		s.log.Warn("leadership lost with a batch in flight", "batch", b.number, "error", err)
		s.node.pending.leave(b)
		return false
	}
}

// giveBack completes unevaluated requests with errNotExecuted, so that their senders try the next leader.
func (s *sequencer) giveBack(q []*request) {
	for _, r := range q {
		r.complete(errNotExecuted)
	}
}

// applied updates the node after each entry applied here, in log order.
func (n *Node) applied(out raftfsm.Outcome) {
	if out.Accepted {
		n.gate.Applied()
		n.clock.Applied(out.Lease)
	}
	since := n.cfg.Time.Monotonic()
	if !n.handing.Load() {
		since -= promptly
	}
	n.pending.applied(n.boot, out, since)
}
