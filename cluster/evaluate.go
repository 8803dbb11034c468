package cluster

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/lockstep-io/lockstep/cluster/brake"
	"github.com/lockstep-io/lockstep/cluster/internal/call"
	"github.com/lockstep-io/lockstep/cluster/internal/fair"
	"github.com/lockstep-io/lockstep/raftfsm"
	"github.com/lockstep-io/lockstep/store"
)

// evaluate runs requests until the batch is full, also those for which it waits (fair.Gatherer). The entry is nil if there is
// nothing to propose.
func (s *sequencer) evaluate(ctx context.Context, q []*request, now store.Time, stamp bool) (*batch, []byte, []*request) {
	n := s.node
	b := &batch{number: n.batches.Add(1), term: s.term}
	var rest []*request
	if !s.correcting { // such a batch answers no request
		q = s.early.look(q, b.number, n.cfg.Time.Monotonic(), func() bool { return n.sentAll(s) })
	}
	s.settleFunctions()
	n.fsm.ViewAnswers(func(st *store.Store, seq uint64, done *raftfsm.Answers) {
		s.done, b.prev = done, seq
		q, rest = s.evaluateFrom(ctx, s.begin(st), q, 0, b, now)
	})
	// The FSM is not locked while the batch waits for requests.
	for len(rest) == 0 && !s.serveTurns.alone {
		from := len(q)
		if q = s.gather.More(ctx, q); len(q) == from {
			break
		}
		n.fsm.ViewAnswers(func(st *store.Store, seq uint64, _ *raftfsm.Answers) {
			if seq != b.prev || !s.txn.On(st) {
				rest = q[from:] // the entry of this batch will be refused, and its requests are sent again
				return
			}
			q, rest = s.evaluateFrom(ctx, s.txn, q, from, b, now)
		})
	}
	s.gather.Gathered()
	s.ctx = store.Ctx{} // do not keep the last client's arguments
	txn := s.txn
	if txn.Writes().Len() == 0 && !stamp {
		return b, nil, rest
	}
	// The next leader does not know how late this leader's replies were. So the stamp is set back by the worst lateness, up to
	// latenessKept.
	e := raftfsm.Entry{Prev: b.prev, Lease: max(b.started.Lease-int64(min(s.late.Worst, latenessKept)), 1), Wall: b.started.Wall,
		Proposer: n.boot, Batch: b.number,
		Requests: raftfsm.AppendAnswers(nil, b.answers), Writes: txn.Writes().Bytes(), Version: txn.Writes().Version()}
	entry := e.Append(make([]byte, 0, len(e.Writes)+len(e.Requests)+64))
	b.writes = entry[len(entry)-len(e.Writes):]
	txn.Forget() // now, not after Apply: else its copies and those of Apply would be in memory at the same time
	return b, entry, rest
}

// evaluateFrom runs the requests q[from:]. If one of them spoils the batch, it runs q again without that request or call.
func (s *sequencer) evaluateFrom(ctx context.Context, txn *store.Txn, q []*request, from int, b *batch, now store.Time) (all, rest []*request) {
	for again := from == 0; ; now = s.node.clock.Now() {
		if again {
			from = 0
			s.restart(txn, b, now)
		}
		q, rest, again = s.evaluateOn(ctx, txn, q, from, b)
		if !again {
			if len(q) > from {
				s.work.ran(q[len(q)-1], s.node.cfg.Time.Monotonic())
				s.noteUse(q[from:]) // evaluateOn has shortened q if a request was stopped for now
			}
			bytes, _ := s.expiryRoom()
			txn.ExpireSeen(bytes) // an entry has room for that beside the largest write
			s.takeLeft(txn)
			b.correctRecords(txn)
			return q, rest
		}
	}
}

// restart begins the batch anew, with the writes for which no client has asked, and with the blocked clients that are due.
func (s *sequencer) restart(txn *store.Txn, b *batch, now store.Time) {
	b.reset()
	s.undoFunctions()
	b.started = now
	s.room = s.node.roomForEntry()
	b.keeps = min(maxRecorded, s.room/2)
	txn.Restart(now, b.prev+1)
	if !txn.TokensCounted() && (b.prev == 0 || !s.node.peers.Older()) { // a cluster that begins with this version has no older nodes
		txn.TokensAbove(now.Wall)
	}
	s.blockedClients.rollback()
	txn.NoteFree(s.blockedClients.forLocks())
	s.gather.Told = 0
	s.moveDeadlines(txn)
	if bytes, longest := s.expiryRoom(); txn.Writes().Size() < maxBatchBytes {
		txn.ExpireDue(expireLimit, bytes, longest)
	}
	if !s.correcting && s.blockedClients.forLocks() {
		s.serveReady(txn)
		s.addAnswered(b)
	}
	s.serveTurns.alone = false
	if b.served = !s.correcting && s.serves(); !b.served && !s.blockedClients.pending() {
		s.serveTurns.since = 0
	}
	if b.served && txn.Writes().Size() > maxBeforeFirst {
		b.served, s.serveTurns.alone = false, true // this batch runs no request, and the next one serves the blocked clients first
	}
	if b.served {
		s.serve(txn)
		s.addAnswered(b)
	}
}

// addAnswered adds the requests of the blocked clients that have just been served to the batch.
func (s *sequencer) addAnswered(b *batch) {
	ws := s.blockedClients
	for _, a := range ws.answered {
		a.anew = nil // the request may have got these in the batch in which it began to wait
		a.extent = fair.Extent(a.replies)
		b.replied += a.extent
	}
	b.requests = append(b.requests, ws.answered...)
	clear(ws.answered)
	ws.answered = ws.answered[:0]
}

// receivers returns how many subscribers of this node a message reaches. The gatherer is told, because each may soon send a
// request.
func (s *sequencer) receivers(kind store.PublishKind, channel string) int {
	n := 0
	if count := s.node.cfg.Receivers; count != nil {
		n = count(kind, channel)
	}
	s.gather.Told += n
	return n
}

// begin returns a transaction on st. As long as the store is not replaced, it is the same transaction.
func (s *sequencer) begin(st *store.Store) *store.Txn {
	if s.txn == nil || !s.txn.On(st) {
		s.txn = st.Begin(store.Time{}, 0, store.Env{Grace: s.late.Of, Receivers: s.receivers, ACL: s.node.cfg.ACL, Limits: s.node.cfg.Limits,
			Older: s.node.peers.Older, SameOwnerNX: s.node.cfg.SameOwnerNX, Queued: s.queued, GiveUp: s.giveUpTickets, Waiting: s.waiting, Blocked: s.blocked, EachWaiter: s.eachWaiter,
			Held: s.node.held.Of, Client: s.node.clientOf, AskedInVain: s.polls.asked, EachPoller: s.polls.each, Subscribers: s.node.cfg.Subscribers, Node: s.node.cfg.ID, FoundOwn: s.foundOwn, Missed: s.node.measures.Locks.Missed, Corrected: s.corrections.origin, DiskFull: s.node.diskFull()})
	}
	return s.txn
}

// foundOwnEvery is the least time between two log lines of foundOwn.
const foundOwnEvery = 10 * time.Minute

// foundOwn warns that a SET with NX has found the very value that it was to set: its client may not know that it has the lock.
func (s *sequencer) foundOwn() {
	now := s.node.cfg.Time.Monotonic()
	if s.ownFound != 0 && now-s.ownFound < foundOwnEvery {
		return
	}
	s.ownFound = max(now, 1)
	s.log.Warn("a SET with NX found the very value that it was to set, and got nil as from Redis: a client of Redlock takes the nodes of this cluster for servers of their own, " +
		"or a reply was lost; give Redlock one address of this cluster, or see --same-owner-nx")
}

// evaluateOn runs the requests q[from:] and adds them to b. If again is true, one has spoiled the batch, and all must run anew.
func (s *sequencer) evaluateOn(ctx context.Context, txn *store.Txn, q []*request, from int, b *batch) (all, rest []*request, again bool) {
	ahead := from // number of requests whose keys have been read ahead
	told := from  // number of requests whose cost has been noted
	begun := from > 0
	for i := from; i < len(q); i++ {
		if s.mustEnd(ctx, txn, b, i == 0) {
			return q[:i], q[i:], false
		}
		if i == ahead {
			ahead += s.readAhead(txn, q[i:])
		}
		r := q[i]
		now, began := s.node.clock.Read()
		txn.SetNow(now)
		if i > told {
			s.work.ran(q[i-1], began)
			told = i
		}
		if r.tooEarly(txn, b) || begun && (r.tried || txn.Now().Lease-b.started.Lease > s.spread) {
			return q[:i], q[i:], false
		}
		begun = true
		if r.blockedClient == nil {
			s.freeExpired(txn, r)
			s.addAnswered(b)
			if s.serveTurns.alone || s.namesHanded(r) {
				return q[:i], q[i:], false
			}
		}
		r.begin(txn.Now().Lease, began)
		s.work.begins(began)
		before := progress{txn.Writes().Len(), txn.Writes().Size(), s.gather.Told}
		txn.TakeUndone() // left by a request that was refused or stopped for now
		s.company = len(b.requests) > 0
		refused, err := s.evaluateOne(txn, r, q[i+1:])
		if refused {
			q = q[:i+1]
		}
		if err != nil {
			s.noteVain(r)
		} else if size := txn.Writes().Size(); size > maxEntryBytes || size-before.bytes > s.room || len(b.requests) > 0 && size+b.recorded > s.room {
			err = errEntryFull
		}
		if err != nil {
			return s.spoiled(ctx, txn, q, i, b, err)
		}
		r.extent, r.wrote, r.written = fair.Extent(r.replies), txn.Writes().Len() > before.writes, txn.Writes().Mark()
		r.granted = txn.LastToken()
		if s.putAside(r) {
			s.work.ran(r, s.node.cfg.Time.Monotonic())
			q = without(q, i)
			i, ahead = i-1, ahead-1
			s.addAnswered(b) // it may have ended tickets
			continue
		}
		if !r.held {
			s.add(txn, b, r, before)
		}
		s.addAnswered(b)
	}
	return q, nil, false
}

// mustEnd reports whether the batch must end before the next request. Expired keys may fill a batch before its first request.
func (s *sequencer) mustEnd(ctx context.Context, txn *store.Txn, b *batch, first bool) bool {
	if s.serveTurns.alone || ctx.Err() != nil {
		return true
	}
	if first {
		return txn.Writes().Size() > maxBeforeFirst
	}
	return txn.Writes().Size()+b.recorded > min(maxBatchBytes, s.room/2) || b.replied > maxReplyBytes || txn.Held() > maxHeldBytes
}

// progress is how far a batch has come: its writes, their bytes, and the subscribers that its messages reach.
type progress struct {
	writes, bytes, told int
}

// add adds an evaluated request to the batch, and counts what the request costs. The argument before is the progress of the batch
// before that request.
func (s *sequencer) add(txn *store.Txn, b *batch, r *request, before progress) {
	b.requests = append(b.requests, r)
	b.replied += r.extent
	r.wroteBytes = txn.Writes().Size() - before.bytes
	if takes := r.extent + entryCopies*r.wroteBytes; takes > maxPartBytes {
		brake.Bring(takes)
	}
	r.took(r.extent + r.wroteBytes + txn.TakeUndone())
	r.reached(s.gather.Told-before.told, s.node.members)
	if r.from.ID != 0 && r.wrote {
		b.record(r, txn.Writes().Bytes())
	}
}

// spoiled handles the error err of the request q[i], which has spoiled the batch. Its results are those of evaluateOn.
func (s *sequencer) spoiled(ctx context.Context, txn *store.Txn, q []*request, i int, b *batch, err error) (all, rest []*request, again bool) {
	r := q[i]
	switch {
	case err == errForNow:
		// The requests before r are the next batch, and r begins the batch after that.
		s.restart(txn, b, txn.Now())
		return nil, q, false
	case err == errEntryFull && len(b.requests) > 0:
		// r may fit into an entry of its own. So the requests before it go first, in this batch.
		return s.evaluateAgain(ctx, txn, q, i, b)
	case err == errEntryFull:
		r.refuse(s.tooLong(txn))
		return without(q, i), nil, true
	case err != errOverrun:
		s.log.Error("a command failed inside the server; it had no effect", "error", err)
		r.refuse(ErrInternal)
		return without(q, i), nil, true
	}
	r.took(maxEntryBytes)
	switch {
	case r.whole:
		r.refuse(r.overrun)
		return without(q, i), nil, true
	case s.work.of(r, s.node.cfg.Time.Monotonic()) >= fair.HeavyPiece:
		return s.evaluateAgain(ctx, txn, q, i+1, b) // the requests behind it are left over: others may have come that go before them
	}
	return q, nil, true // r.overran says which of its calls to refuse
}

// evaluateAgain runs the first n requests of q on a fresh transaction, and leaves over the others. Its results are those
// of evaluateOn.
func (s *sequencer) evaluateAgain(ctx context.Context, txn *store.Txn, q []*request, n int, b *batch) (all, rest []*request, again bool) {
	s.restart(txn, b, s.node.clock.Now())
	left, outer := q[n:], s.cut // outer: what an evaluateAgain around this one has cut off
	s.cut = slices.Concat(left, outer)
	all, rest, again = s.evaluateOn(ctx, txn, q[:n:n], 0, b)
	if s.cut == nil { // these requests have been refused
		left, outer = nil, nil
	}
	s.cut = outer
	if again {
		return append(all, left...), nil, true
	}
	return all, append(rest, left...), false
}

// entryCopies is how many copies of a write are in memory while the write is on its way to the log, the disk and the peers.
const entryCopies = 4

// maxReadAhead bounds the requests whose keys are read ahead: otherwise each batch would look again at all requests left over.
const maxReadAhead = 64

// readAhead returns how many requests it has looked at.
func (s *sequencer) readAhead(txn *store.Txn, q []*request) int {
	if len(q) == 1 && len(q[0].calls) == 1 {
		return 1
	}
	n := min(len(q), maxReadAhead)
	for i, r := range q[:n] {
		if !s.ahead.Room() {
			n = i
			break
		}
		if r.blockedClient != nil || r.claim != nil {
			continue // a blocking command may be cancelled at any moment, and must not be touched then
		}
		for i := range r.calls {
			if c := &r.calls[i]; c.Txn == nil {
				s.ahead.Add(c.Cmd, c.Args, c.DB)
			}
		}
	}
	txn.ReadAhead(&s.ahead)
	return n
}

// without returns q without its request at i.
func without(q []*request, i int) []*request {
	return append(q[:i:i], q[i+1:]...)
}

// evaluateOne runs commands of one request, and the others later if need be. A panic in a handler must not cost the cluster a
// node.
func (s *sequencer) evaluateOne(txn *store.Txn, r *request, behind []*request) (refused bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v\n%s", p, debug.Stack())
		}
	}()
	if r.blockedClient != nil || r.claim != nil {
		s.evaluateSpecial(txn, r)
		return false, nil
	}
	if r.from.ID != 0 && s.decided(txn, r) {
		return false, nil
	}
	if r.calls[0].Cmd == call.Confirm {
		r.confirm(txn)
		return false, nil
	}
	written, replied := txn.Writes().Size(), 0
	for i := range r.calls {
		begin := txn.Writes().Mark()
		reply, overrun := s.evaluateCall(txn, r, i, behind, &refused)
		if s.ctx.StoppedForNow {
			r.tried = true
			return refused, errForNow
		}
		if overrun == "" && txn.Writes().Size()-written > s.room {
			overrun = s.tooLong(txn)
		}
		if overrun != "" {
			r.overran, r.overrun = i+1, overrun
			return refused, errOverrun
		}
		r.replies = append(r.replies, reply)
		if txn.TakeLeases() {
			r.spans = append(r.spans, span{i, begin, txn.Writes().Mark()})
		}
		// Blocked clients are served after the whole command, script or transaction.
		if s.blockedClients.any() {
			s.serveReady(txn)
		}
		if i+1 == len(r.calls) {
			break
		}
		replied += fair.Extent(r.replies[i:])
		if r.whole && replied <= maxWholeBytes {
			for s.blockedClients.pending() {
				s.serve(txn)
			}
			continue
		}
		if s.serveTurns.alone || r.overran == i+1 || replied > maxPartBytes || txn.Writes().Size()-written > maxPartBytes || s.tookLong(r, i) {
			break
		}
	}
	return refused, nil
}

// evaluateCall runs call i of a request. overrun is an error if the call's writes have to be undone.
func (s *sequencer) evaluateCall(txn *store.Txn, r *request, i int, behind []*request, refused *bool) (reply store.Reply, overrun store.Error) {
	c, ctx := &r.calls[i], &s.ctx
	*ctx = store.Ctx{Txn: txn, Cmd: c.Cmd, Args: c.Args, DB: c.DB, RESP: c.RESP}
	s.turn = turn{user: c.User}
	defer func() { s.turnEnds(behind, *refused) }()
	txn.SetOrigin(c.Origin)
	txn.SetClient(c.Client)
	txn.BeginCall()
	if name, any := c.UnknownName(); any {
		return refuseUnknown(c, name), ""
	}
	if r.peer != nil && r.peer.older && c.OfAnotherNode() {
		return store.Err(errNewerLeader), ""
	}
	switch {
	case r.overran == i+1 && c.Txn != nil:
		return store.Err(store.ErrExecAbort(r.overrun)), ""
	case r.overran == i+1:
		return store.Err(r.overrun), ""
	case c.Txn != nil:
		if refusal, ok := s.mayTransact(txn, c); !ok {
			return txn.AttachDenials(refusal), ""
		}
		reply, overrun = s.runTransaction(txn, c.Txn, r, behind, refused)
		return txn.AttachDenials(reply), overrun
	}
	if refusal, ok := ctx.Authorize(c.User, c.Users); !ok {
		return txn.AttachDenials(refusal), ""
	}
	if refusal, denied := ctx.NoRoom(); denied {
		return refusal, ""
	}
	if c.Cmd.RunsLua() {
		reply = txn.AttachDenials(s.runScript(ctx, r, behind, refused))
	} else {
		reply = s.runCommand(ctx, ErrCommandTime)
		if ctx.Stopped != "" && ctx.Wrote() {
			return reply, ctx.Stopped // the caller undoes its writes, as those of a command that has written too much
		}
	}
	overrun = settle(ctx, &reply)
	return reply, overrun
}

var (
	execArgs  = [][]byte{[]byte("exec")}
	watchName = []byte("watch")
)

// refuseUnknown answers a call whose command only later versions know.
func refuseUnknown(c *Call, name []byte) store.Reply {
	err := errUnknownHere(name)
	if c.Txn != nil {
		err = store.ErrExecAbort(err)
	}
	return store.Err(err)
}

// mayTransact checks the right to use EXEC or WATCH at all. The client's node may not know yet that this right was taken away.
func (s *sequencer) mayTransact(txn *store.Txn, c *Call) (refusal store.Reply, ok bool) {
	args := execArgs
	if c.Txn.Observe {
		args = [][]byte{watchName}
		for _, w := range c.Txn.Watched {
			args = append(args, w.Key)
		}
	}
	cmd, known := s.node.cfg.Table.Resolve(args)
	if !known {
		return store.Reply{}, true
	}
	ctx := store.Ctx{Txn: txn, Cmd: cmd, Args: args, DB: c.DB}
	if refusal, ok = ctx.Authorize(c.User, c.Users); !ok && !c.Txn.Observe {
		refusal = store.Err(store.ErrExecAbort(store.Error(refusal.Str)))
	}
	return refusal, ok
}

// settle replaces a command's reply that is too large by an error. If writes must be undone, settle returns the error for that.
func settle(ctx *store.Ctx, reply *store.Reply) (overrun store.Error) {
	overrun = ctx.Overrun()
	switch {
	case overrun != "" || !ctx.Outsized(reply):
		return overrun
	case ctx.Wrote():
		return ctx.ErrReply()
	}
	*reply = store.Err(ctx.ErrReply())
	return ""
}
