package cluster

import (
	"encoding/binary"
	"slices"

	"lockstep/cluster/internal/forward"
	"lockstep/store"
)

// evaluateBlocking runs a blocking command for the first time. It reports whether there is a reply.
func (s *sequencer) evaluateBlocking(txn *store.Txn, r *request) bool {
	w, ws := r.sleeper, s.sleepers
	ws.sweep()
	if !w.state.CompareAndSwap(sleeperAsked, sleeperTaken) {
		return false // cancelled on its way
	}
	// rollback needs it if the batch is evaluated again.
	ws.joined = append(ws.joined, w)
	switch {
	case w.token != 0 && ws.tokens[w.origin] != w.token:
		// The command came by a link that its origin has given up since, or in an earlier term of leadership.
		w.state.Store(sleeperCancelled)
		r.complete(forward.ErrStale)
		return false
	case w.quit.Load() >= quitNow:
		w.state.Store(sleeperCancelled)
		w.cancelled()
		return false
	}
	if !ws.any() {
		txn.TakeReady() // no client waits for these keys
		txn.TakeDeletedUsers()
	}
	reply, wait := s.tryServe(txn, w, nil)
	if wait == nil {
		r.replies = append(r.replies, reply)
		return true
	}
	ws.join(w, wait)
	w.release()
	return false
}

// tryServe runs the command of a sleeper: for the first time, or again for a key that has become ready. wait is
// set if the command found no element.
func (s *sequencer) tryServe(txn *store.Txn, w *sleeper, ready []byte) (reply store.Reply, wait *store.Wait) {
	c := &w.req.calls[0]
	ctx := store.Ctx{Txn: txn, Cmd: c.Cmd, Args: c.Args, DB: c.DB, RESP: c.RESP, Ready: ready}
	if ready == nil {
		// A client that waits already was authorized at the first run.
		if refusal, ok := ctx.Authorize(c.User, c.Users); !ok {
			return txn.AttachDenials(refusal), nil
		}
		if refusal, denied := ctx.NoRoom(); denied {
			return refusal, nil
		}
	}
	before := txn.Writes().Len()
	txn.SetOrigin(c.Origin)
	reply = c.Cmd.Run(&ctx)
	if ctx.Wait == nil && txn.Writes().Len() > before && !s.node.cfg.Ephemeral {
		// If the leader or the link is lost now, only the log tells the origin the reply.
		txn.Note(noteName(w.origin), string(store.AppendReply(binary.AppendUvarint(nil, w.id), reply)))
	}
	return reply, ctx.Wait
}

// noteName returns the name by which notes in the log address a node.
func noteName(boot uint64) string { return string(binary.BigEndian.AppendUint64(nil, boot)) }

// sendAway refuses the blocked clients of users that the last command has deleted. Their nodes end the
// connections only after applying the deletion. Until then, and for a suspended node much longer, they would
// take elements from others.
func (s *sequencer) sendAway(users []string) {
	if len(users) == 0 {
		return
	}
	ws := s.sleepers
	for _, w := range ws.inOrder(func(w *sleeper) bool { return slices.Contains(users, w.req.calls[0].User) }) {
		if ws.take(w) {
			refusal := store.ErrNoPermCommand(w.req.calls[0].Cmd.FullName())
			ws.answer(w, store.Err(refusal))
		}
	}
}

// serveReady serves the sleepers of keys that the last command has made ready, in the order of Redis's
// handleClientsBlockedOnKeys: key by key as the keys became ready, and for each key in order of arrival; then
// the keys that serving made ready.
func (s *sequencer) serveReady(txn *store.Txn) {
	s.sleepers.sweep()
	s.sendAway(txn.TakeDeletedUsers())
	var l readyList
	l.add(s.sleepers, txn)
	for len(l.keys) > 0 {
		k := l.keys[0]
		l.keys = l.keys[1:]
		delete(l.listed, k)
		s.serveKey(txn, k, &l)
	}
}

// serveKey serves the sleepers of one key while the key has elements.
func (s *sequencer) serveKey(txn *store.Txn, k waitKey, l *readyList) {
	ws := s.sleepers
	q := ws.queues[k]
	if q == nil {
		return // other keys have served them
	}
	key := []byte(k.key)
	for n := q.n; n > 0 && q.head != nil; n-- {
		e := txn.LookupWrite(k.db, key)
		if e == nil || e.Type() != store.TypeList && e.Type() != store.TypeSortedSet {
			return
		}
		p := q.head
		w := p.w
		if w.wait.Type != e.Type() {
			// As in Redis, a sleeper that waits for another type loses its place.
			q.remove(p)
			ws.order++
			p.order = ws.order
			q.push(p)
			continue
		}
		if !ws.take(w) {
			continue
		}
		reply, wait := s.tryServe(txn, w, key)
		if wait != nil {
			w.release()
			return
		}
		ws.answer(w, reply)
		l.add(ws, txn)
	}
}

// claim is the request of a node that has a new link. From then on the leader accepts writes and
// blocking commands of the node by this link only, and sends back the blocking commands of earlier
// links.
//
// The leader makes up the token, so no request that was sent before the answer, on any link and in any term,
// can hold it.
type claim struct {
	origin uint64 // boot number of the node
	token  uint64 // token of the link, after the claim has been evaluated
}

func (s *sequencer) evaluateClaim(c *claim) {
	if c.origin == s.node.boot {
		return
	}
	if c.token == 0 || s.sleepers.tokens[c.origin] != c.token {
		c.token = s.node.cfg.random() | 1
	}
	s.sleepers.tokens[c.origin] = c.token
	s.sleepers.drop(func(w *sleeper) bool { return w.origin == c.origin && w.token != c.token })
}
