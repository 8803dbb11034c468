package cluster

import (
	"encoding/binary"
	"slices"

	"lockstep/store"
)

// evaluateBlocking runs a blocking command for the first time. It returns
// whether there is a reply.
func (s *sequencer) evaluateBlocking(txn *store.Txn, r *request) bool {
	w, ws := r.sleeper, s.sleepers
	ws.sweep()
	if !w.state.CompareAndSwap(sleeperAsked, sleeperTaken) {
		return false // cancelled on its way
	}
	// In case that the batch is evaluated again.
	ws.joined = append(ws.joined, w)
	switch {
	case w.token != 0 && ws.tokens[w.origin] != w.token:
		// It came by a link that its origin has given up since, or this is
		// another term of leadership.
		w.state.Store(sleeperCancelled)
		r.complete(errStale)
		return false
	case w.quit.Load() >= quitNow:
		w.state.Store(sleeperCancelled)
		w.cancelled()
		return false
	}
	if !ws.any() {
		txn.TakeReady() // nobody has waited for these
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

// tryServe runs the command of a sleeper, again if it is for a key that has
// become ready. wait is set if there is nothing for it.
func (s *sequencer) tryServe(txn *store.Txn, w *sleeper, ready []byte) (reply store.Reply, wait *store.Wait) {
	c := &w.req.calls[0]
	ctx := store.Ctx{Txn: txn, Cmd: c.Cmd, Args: c.Args, DB: c.DB, RESP: c.RESP, Ready: ready}
	if ready == nil {
		// Who waits already has had the right to.
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
		// If the leader or the link is lost now, only the log can tell.
		txn.Note(noteName(w.origin), string(store.AppendReply(binary.AppendUvarint(nil, w.id), reply)))
	}
	return reply, ctx.Wait
}

// noteName is how notes in the log name the node that they are for.
func noteName(boot uint64) string { return string(binary.BigEndian.AppendUint64(nil, boot)) }

// sendAway refuses the blocked clients of users that the last command has deleted. Their connections end only when
// their nodes have applied that. Until then, and on a node that is stopped, they would take elements from others.
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

// serveReady serves those who wait for keys that the last command has made
// ready, in the order of Redis's handleClientsBlockedOnKeys: the keys as they
// became ready, for each key who came first; then the keys that serving made
// ready.
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

// serveKey serves those who wait for one key, while it lasts.
func (s *sequencer) serveKey(txn *store.Txn, k waitKey, l *readyList) {
	ws := s.sleepers
	q := ws.queues[k]
	if q == nil {
		return // they have been served by other keys
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
			// As in Redis, it loses its place.
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

// claim is the request of a node whose link is new. It makes the link the one
// whose writes and blocking commands count, and sends blocked ones of earlier
// links back.
//
// The leader gives the token, so nothing that was sent before its answer, on
// whatever link and in whatever term, can hold it.
type claim struct {
	origin uint64 // boot number of the node
	token  uint64 // of the link, once the claim has been evaluated
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
