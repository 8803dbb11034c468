package cluster

import (
	"encoding/binary"
	"runtime/debug"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/fair"
	"github.com/lockstep-io/lockstep/cluster/internal/forward"
	"github.com/lockstep-io/lockstep/store"
)

// evaluateSpecial runs a claim or a blocking command.
func (s *sequencer) evaluateSpecial(txn *store.Txn, r *request) {
	if r.claim != nil {
		s.evaluateClaim(r.claim)
		r.replies = append(r.replies, store.OK)
		return
	}
	r.held = !s.evaluateBlocking(txn, r)
	if s.blockedClients.any() {
		s.serveReady(txn) // the command may have pushed an element, as BLMOVE does
	}
}

// evaluateBlocking runs a blocking command for the first time on this leader, and reports whether there is a reply for this batch.
func (s *sequencer) evaluateBlocking(txn *store.Txn, r *request) bool {
	w, ws := r.blockedClient, s.blockedClients
	if s.early.holds(w) {
		return false
	}
	ws.sweep()
	if !w.state.CompareAndSwap(blockedAsked, blockedTaken) {
		return false // cancelled on its way
	}
	// If the batch is evaluated again, rollback marks this command as not evaluated.
	ws.joined = append(ws.joined, w)
	switch {
	case w.token != 0 && ws.tokens[w.origin] != w.token:
		// The command came by a link that its origin no longer uses, or in an earlier term of leadership.
		w.state.Store(blockedCancelled)
		r.complete(forward.ErrStale)
		return false
	case w.quit.Load() >= quitNow:
		w.state.Store(blockedCancelled)
		w.cancelled()
		return false
	}
	s.freeExpired(txn, r)
	if !ws.any() {
		txn.TakeReady() // drop what txn has noted for blocked clients, of which there are none
		txn.TakeDeletedUsers()
	}
	reply, wait := s.tryServe(txn, w, nil)
	if w.waited.Joined && reply.Kind == store.Failure && reply.Str == string(store.ErrUsersChanged) {
		// The client has waited at an earlier leader, and its node does not know the present users yet. The node sends the
		// command again.
		w.state.Store(blockedCancelled)
		r.complete(errNotExecuted)
		return false
	}
	if wait == nil {
		r.replies = append(r.replies, reply)
		return true
	}
	if wait.Owner != "" && len(ws.owners[wait.Owner]) >= mostWaits {
		r.replies = append(r.replies, store.Err(errManyWaits))
		return true
	}
	if why := s.deadlock(txn, r.calls[0].User, wait); why != "" {
		r.replies = append(r.replies, store.Err(why))
		return true
	}
	ws.join(w, wait, s.node.cfg.Time.Monotonic())
	if w.waited.Joined && len(w.places) > 0 && w.places[0].queue.key.free {
		ws.ready.put(ws, w.places[0].queue.key) // it may stand before those that have kept it out
	}
	txn.NoteFree(ws.forLocks())
	w.release()
	return false
}

// tryServe runs the command of a blocked client. ready is the key that has an element, or nil the first time. wait is not nil if no
// element was found.
func (s *sequencer) tryServe(txn *store.Txn, w *blockedClient, ready []byte) (reply store.Reply, wait *store.Wait) {
	w.req.spans = w.req.spans[:0] // of an earlier evaluation
	c := &w.req.calls[0]
	ctx := store.Ctx{Txn: txn, Cmd: c.Cmd, Args: c.Args, DB: c.DB, RESP: c.RESP, Ready: ready, Waits: w.waited.Joined}
	users := c.Users
	if ready != nil && users > 0 {
		users = max(users, txn.UsersForgotten()) // sendAway has refused clients whose users were deleted since they began to wait
	}
	// The rights of the user may have changed since the client began to wait.
	if refusal, ok := ctx.Authorize(c.User, users); !ok {
		return txn.AttachDenials(refusal), nil
	}
	if ready == nil && !w.waited.Joined {
		if refusal, denied := ctx.NoRoom(); denied {
			return refusal, nil
		}
	}
	present, company := s.turn, s.company         // of the command that made the key ready; they are set again at the end
	s.turn, s.company = turn{user: c.User}, false // if company is false, mustStop does not stop the command for now
	defer func() {
		s.turnEnds(nil, false)
		s.turn, s.company = present, company
	}()
	before, begin, sp := txn.Writes().Len(), txn.Writes().Mark(), txn.Savepoint()
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("a blocked command failed inside the server; it had no effect", "error", p, "stack", string(debug.Stack()))
			txn.Rollback(sp)
			reply, wait = store.Err(ErrInternal), nil
		}
	}()
	txn.SetOrigin(c.Origin)
	txn.SetClient(c.Client)
	txn.BeginCall()
	reply = s.runCommand(&ctx, ErrCommandTime)
	overrun := settle(&ctx, &reply)
	leases := txn.TakeLeases()
	if overrun == "" && ctx.Stopped == "" && ctx.Wait == nil && txn.Writes().Len() > before {
		var given grants
		if leases {
			given = w.leased(txn, begin)
		}
		if !s.node.cfg.Ephemeral {
			// If the leader or the link is lost now, the origin can learn the reply only from the log.
			note := store.AppendReply(binary.AppendUvarint(nil, w.id), reply)
			if len(given.list) > 0 {
				note = appendGrants(note, given)
			}
			if txn.HasRoom(len(note)) {
				txn.Note(noteName(w.origin), string(note))
			} else {
				overrun = txn.ErrTooBig()
			}
		}
	}
	if overrun != "" || ctx.Stopped != "" {
		txn.Rollback(sp)
		if overrun != "" {
			reply = store.Err(overrun)
		}
		return reply, nil
	}
	txn.Release(sp)
	return reply, ctx.Wait
}

// leased records the leases that the command has just taken by its writes since begin, and returns them.
func (w *blockedClient) leased(txn *store.Txn, begin store.Mark) grants {
	r, end := w.req, txn.Writes().Mark()
	r.spans, r.written = append(r.spans, span{0, begin, end}), end
	r.at, r.granted = txn.Now().Lease, txn.LastToken()
	g := grants{seq: txn.Sequence(), token: r.granted, at: r.at}
	for _, k := range store.LeasedBetween(txn.Writes().Bytes(), begin, end, end) {
		g.list = append(g.list, grant{0, k})
	}
	w.given = g
	return g
}

// noteName returns the name by which notes in the log address a node.
func noteName(boot uint64) string { return string(binary.BigEndian.AppendUint64(nil, boot)) }

// sendAway refuses the blocked clients of users that the last command has deleted. Until their nodes apply the deletion, these clients
// would take elements.
func (s *sequencer) sendAway(users []string) {
	if len(users) == 0 {
		return
	}
	ws, gone := s.blockedClients, make(map[string]bool, len(users))
	for _, name := range users {
		gone[store.CallName(name)] = true
	}
	for _, w := range ws.inOrder(func(w *blockedClient) bool { return gone[w.req.calls[0].User] }) {
		if ws.take(w) {
			w.req.spans = nil // of an earlier evaluation
			refusal := store.ErrNoPermCommand(w.req.calls[0].Cmd.FullName())
			ws.answer(w, store.Err(refusal))
			ws.follow(w)
		}
	}
}

// No other command comes between a command that makes keys ready and the serving of their blocked clients, which may take several
// batches. After servePatience, other commands run after each batch that serves, for as long as that batch took.
const (
	serveBytes    = maxPartBytes
	serveTime     = maxPartTime * time.Millisecond
	serveKeys     = 5000 // number of keys that one entry looks at: after SWAPDB most may have no elements
	servePatience = 100 * time.Millisecond
	// serveFor: pending blocked clients let other commands go first only if one has come within this time.
	serveFor = 100 * time.Millisecond
)

// serveTurns decides when pending blocked clients are served.
type serveTurns struct {
	since time.Duration // monotonic time since which blocked clients are pending; 0: none are
	rest  time.Duration // monotonic time until which other commands go first
	came  time.Duration // monotonic time at which the last batch with other commands began
	alone bool          // no other command may be run in the present batch from here on
}

// pend notes whether blocked clients are pending now.
func (t *serveTurns) pend(pending bool, now time.Duration) {
	switch {
	case !pending:
		t.since, t.alone = 0, false
	case t.since == 0:
		t.since = max(now, 1)
		t.alone = true
	default:
		t.alone = now-t.since < servePatience
	}
}

// served notes that a batch has served blocked clients: other commands now have as much time as that batch took.
func (t *serveTurns) served(took, now time.Duration) { t.rest = now + took }

// serves reports whether the next batch serves pending blocked clients.
func (s *sequencer) serves() bool {
	if !s.blockedClients.pending() {
		return false
	}
	now := s.node.cfg.Time.Monotonic()
	t := &s.serveTurns
	return t.since == 0 || now-t.since < servePatience || now >= t.rest || now-t.came > serveFor
}

// serveReady serves the blocked clients of keys that the last command has made ready, in the order of Redis's
// handleClientsBlockedOnKeys.
func (s *sequencer) serveReady(txn *store.Txn) {
	s.blockedClients.sweep()
	s.sendAway(txn.TakeDeletedUsers())
	keys, swapped := txn.TakeReady()
	if len(keys) == 0 && !swapped {
		return
	}
	l, t := &s.blockedClients.ready, s.serveTurns
	pending := *l
	*l = readyList{}
	if swapped && pending.listed[anyKey] {
		swapped, pending.round.again = false, true // if the round began anew each time, it would never reach the last keys
	}
	l.add(s.blockedClients, keys, swapped)
	s.serve(txn)
	if len(pending.keys) == 0 {
		return
	}
	// Blocked clients of an earlier command are still pending. They are served after those of this command.
	l.follow(s.blockedClients, pending)
	if s.serveTurns = t; !s.blockedClients.pending() {
		s.serveTurns.since = 0
	}
}

// serve serves the blocked clients of ready keys, up to serveBytes and serveKeys and for serveTime. The clients
// that are left are pending.
func (s *sequencer) serve(txn *store.Txn) {
	l := &s.blockedClients.ready
	if len(l.keys) == 0 {
		return
	}
	room := serving{bytes: serveBytes, keys: serveKeys, until: s.node.cfg.Time.Monotonic() + serveTime}
	for ; len(l.keys) > 0 && !room.over && room.keys > 0; room.keys-- {
		if k, ok := l.take(s.blockedClients); ok {
			s.serveKey(txn, k, &room)
		}
	}
	s.serveTurns.pend(len(l.keys) > 0, s.node.cfg.Time.Monotonic())
}

// serving is what one entry has left for serving blocked clients.
type serving struct {
	bytes int           // bytes of writes and replies that the entry has room for
	keys  int           // number of keys that may still be looked at
	until time.Duration // monotonic time at which serving ends
	over  bool          // no bytes or no time are left
}

// served charges the user of a blocked client for the time of serving, unless largeWrites reports the command.
func (s *sequencer) served(w *blockedClient, reply store.Reply, wrote int, began time.Duration, room *serving) {
	now := s.node.cfg.Time.Monotonic()
	if w.req.wroteBytes, w.req.used = wrote, now-began; wrote <= HeavyBytes {
		s.users.Note(w.req, w.req.used, now)
	}
	room.bytes -= wrote + fair.Extent([]store.Reply{reply})
	room.over = room.bytes <= 0 || now >= room.until
}

// serveKey serves the blocked clients of one key while the key has elements.
func (s *sequencer) serveKey(txn *store.Txn, k waitKey, room *serving) {
	if k.free {
		s.serveLock(txn, k, room)
		return
	}
	ws := s.blockedClients
	key := []byte(k.key)
	if len(ws.many) > 0 && servable(txn.LookupWrite(k.db, key)) {
		ws.place(k)
	}
	q := ws.queues[k]
	if q == nil {
		return // its clients have been served with elements of other keys, or have stopped waiting
	}
	q.sort()
	for n := q.n; n > 0 && q.head != nil; n-- {
		if room.over {
			ws.ready.putBack(k)
			return
		}
		e := txn.LookupWrite(k.db, key)
		if !servable(e) {
			return
		}
		p := q.head
		w := p.w
		if w.wait.Type != e.Type() {
			// As in Redis, a blocked client that waits for another type goes to the end of the queue.
			q.remove(p)
			p.order = ws.nextOrder(ws.nextPlace(), s.node.cfg.Time.Monotonic())
			q.push(p)
			continue
		}
		if s.serveFirst(txn, p, key, room) {
			return
		}
	}
}

// serveFirst serves the client of a place, unless it has been cancelled. It reports whether the client waits on.
func (s *sequencer) serveFirst(txn *store.Txn, p *place, key []byte, room *serving) (waits bool) {
	ws, w := s.blockedClients, p.w
	if !ws.take(w) {
		ws.giveUp(p)
		return false
	}
	began, size := s.node.cfg.Time.Monotonic(), txn.Writes().Size()
	reply, wait := s.tryServe(txn, w, key)
	if wait != nil {
		w.release()
		return true
	}
	ws.answer(w, reply)
	if len(w.req.spans) > 0 {
		ws.handOn(p.queue.key)
	}
	keys, _ := txn.TakeReady()
	ws.ready.add(ws, keys, false)
	s.served(w, reply, txn.Writes().Size()-size, began, room)
	return false
}

// servable reports whether an entry is of a type for whose elements clients may wait.
func servable(e *store.Entry) bool {
	return e != nil && (e.Type() == store.TypeList || e.Type() == store.TypeSortedSet)
}

// claim is the request of a node that has a new link, or that claims its link again (blockRegistry.claim). From its evaluation on, the
// leader accepts writes and blocking commands of the node by this link only. A link that is new in this term gets a new token, which
// no request sent before the answer can hold.
type claim struct {
	origin uint64 // boot number of the node
	token  uint64 // token of the link, 0 for a new link; evaluateClaim sets the token that is valid from then on
}

func (s *sequencer) evaluateClaim(c *claim) {
	if c.origin == s.node.boot {
		return
	}
	if c.token == 0 || s.blockedClients.tokens[c.origin] != c.token {
		c.token = s.node.cfg.random() | 1
	}
	s.blockedClients.tokens[c.origin] = c.token
	s.blockedClients.drop(func(w *blockedClient) bool { return w.origin == c.origin && w.token != c.token })
}
