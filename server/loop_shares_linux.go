package server

import (
	"container/list"
	"sync/atomic"
	"time"
)

// Strangers, senders of large commands, and connections that are to be closed get only a share of a loop's time: in each round, the loop
// serves all other clients first. The rest of their input stays with the operating system, which slows the senders down.
//
// Strangers have not authenticated, or send lines that make no command. If hundreds of them had a turn in every round, all other clients
// would wait.
//
// A loop reads a command with many arguments in parts, at most one part in a round, because it takes tens of milliseconds to read a
// hundred thousand arguments.
//
// Complete commands stay in memory until they run. While a user's large commands take much memory (clientMemory.crowded), the loop reads
// further ones of that user slowly (choose). While memory is scarce, it reads none (yields).

const (
	// When strangersTurn has passed since the start of a round, a loop serves no further stranger in that round.
	strangersTurn = 500 * time.Microsecond
	// When slowTurn has passed, a loop serves no further slow connection in that round.
	slowTurn = 200 * time.Microsecond
	// After a round that served clients of one kind, that kind rests for shareRest times the duration of the round, but for shareWait at
	// most.
	shareRest = 3
	shareWait = 50 * time.Millisecond
	// While all users of large commands are crowded, the loop looks again each crowdLook. After crowdLooks looks, it reads a part all the
	// same.
	crowdLook  = 5 * time.Millisecond
	crowdLooks = 10
	// With manyArguments arguments or more, the time to read a large command depends more on the number of its arguments
	// than on their bytes.
	manyArguments = 1 << 10
	// When a loop has served no light client (loop.lightAt) for aloneAfter, it reads large commands without the pauses of shareRest.
	aloneAfter = 200 * time.Millisecond
)

// share is a queue of idle connections with unread input; only the loop's owner uses it. Ended connections leave at once (loop.retire), so
// they cannot fill the memory.
type share struct {
	loop  *loop
	queue list.List   // of *loopConn, in the order of their arrival; but see incoming.add
	near  list.List   // of *loopConn: strangers from familiar addresses …
	turn  bool        // … who have every second turn: the next one is theirs
	last  list.List   // of *loopConn: strangers that have hung up, served when the other two lists are empty
	due   time.Time   // when the next connections may be served
	since time.Time   // the start of the present round, if the share must rest after the round (served); else zero
	timer *time.Timer // wakes the loop at the time in the field due
	late  atomic.Bool // the timer has fired: connections may be served, whatever the clock says
}

func (s *share) stop() {
	if s.timer != nil {
		s.timer.Stop()
	}
}

// begins starts the share's turn in this round if connections wait and are due. It reports whether the turn has started.
func (s *share) begins() bool {
	if s.isEmpty() || s.loop.now.Before(s.due) && !s.late.Load() {
		return false
	}
	s.stop()
	s.late.Store(false)
	s.since = s.loop.now
	return true
}

func (s *share) isEmpty() bool { return s.queue.Len()+s.near.Len()+s.last.Len() == 0 }

// nextStranger serves a stranger. Every second one is from a familiar address. Those that have hung up come last, because nobody waits for
// their replies.
func (s *share) nextStranger() {
	for s.queue.Len()+s.near.Len() > 0 {
		next := &s.queue
		if s.near.Len() > 0 && (s.turn || s.queue.Len() == 0) {
			next = &s.near
		}
		c := next.Front().Value.(*loopConn)
		if !c.hungUp {
			s.turn = next == &s.queue
			s.serve(c)
			return
		}
		c.waitIn(&s.last)
	}
	s.serve(s.last.Front().Value.(*loopConn))
}

// waitIn moves a connection to the end of a share's list. It removes the connection from its earlier list, if there is one.
func (c *loopConn) waitIn(waiting *list.List) {
	c.leaveShare()
	c.share, c.place = waiting, waiting.PushBack(c)
}

// leaveShare removes a connection from the list of its share, if it is in one.
func (c *loopConn) leaveShare() {
	if c.share != nil {
		c.share.Remove(c.place)
		c.share, c.place = nil, nil
	}
}

// serve reads from a connection of the share.
func (s *share) serve(c *loopConn) {
	c.leaveShare()
	c.ready = false
	if c.state == connIdle {
		s.loop.advance(c)
	}
	if c.state == connIdle {
		s.loop.srv.hears(c.s) // it has sent no complete command
	}
}

// served ends a round. The share's next turn comes after rest times the duration of the round, but after shareWait at most.
func (s *share) served(rest int) {
	if s.since.IsZero() {
		return
	}
	now := s.loop.srv.cfg.Clock()
	s.due = now.Add(min(time.Duration(rest)*now.Sub(s.since), shareWait))
	s.since = time.Time{}
}

// wakes sets a timer for the time when the waiting connections are due. It returns false if they may be served now. The caller holds
// loop.mu.
func (s *share) wakes() bool {
	if s.isEmpty() {
		return true
	}
	left := min(s.due.Sub(s.loop.srv.cfg.Clock()), shareWait)
	switch {
	case left <= 0 || s.late.Load():
		return false
	case s.timer == nil:
		s.timer = time.AfterFunc(left, func() {
			l := s.loop
			l.mu.Lock()
			defer l.mu.Unlock()
			s.late.Store(true)
			if !l.ended {
				l.ring()
			}
		})
	default:
		s.timer.Reset(left)
	}
	return true
}

// turn serves an idle connection with unread input now, or adds it to the queue of its share.
func (l *loop) turn(c *loopConn) {
	switch {
	case c.state != connIdle:
		c.ready = false
	case c.s.needsAuth() && c.s.familiar:
		c.waitIn(&l.strangers.near)
	case c.s.needsAuth() || c.vain:
		c.waitIn(&l.strangers.queue)
	case l.incoming.has(c):
		l.incoming.add(c)
	case c.isSlow():
		c.waitIn(&l.slow.queue)
	default:
		c.ready = false
		c.part = false
		if l.now.Sub(c.laden) >= aloneAfter {
			l.lightAt = l.now
		}
		l.advance(c)
	}
}

// isSlow reports whether the connection has sent a part of a large command, or is to be closed. It takes tens of milliseconds to read from
// hundreds of the first kind, or to close hundreds of the second.
func (c *loopConn) isSlow() bool { return c.guard.large != nil || c.leaving }

// serveShares serves strangers until strangersTurn has passed in the round, but at least one. It serves slow connections likewise, until
// slowTurn has passed. Then it reads one part of a large command. While memory is scarce, it serves neither strangers nor large commands.
func (l *loop) serveShares() {
	if s := &l.strangers; s.begins() && !l.yieldStrangers() {
		for !s.isEmpty() {
			s.nextStranger()
			if l.srv.cfg.Clock().Sub(s.since) >= strangersTurn {
				break
			}
		}
	}
	if s := &l.slow; s.begins() {
		l.serveSlow()
	}
	if s := &l.incoming; s.begins() {
		if s.yields() {
			s.waits()
		} else {
			s.nextPart()
		}
	}
}

// serveSlow serves slow connections. If some are left, and light clients send something, the others get as much time next.
func (l *loop) serveSlow() {
	s := &l.slow
	from := l.srv.cfg.Clock()
	now := from
	for !s.isEmpty() && now.Sub(from) < slowTurn {
		c := s.queue.Front().Value.(*loopConn)
		if c.part, c.laden = false, l.now; l.incoming.has(c) {
			l.incoming.add(c)
			continue
		}
		s.serve(c)
		now = l.srv.cfg.Clock()
		l.yields = true
	}
	s.since = time.Time{}
	if !s.isEmpty() && l.now.Sub(l.lightAt) < aloneAfter {
		s.due = now.Add(min(now.Sub(from), shareWait))
	}
}

// yieldStrangers reports whether no stranger is to be served in this round, because memory is scarce.
func (l *loop) yieldStrangers() bool {
	if !l.yielding.must(&l.srv.garbage, l.now) {
		return false
	}
	s := &l.strangers
	s.due, s.since = l.now.Add(shareWait), time.Time{}
	return true
}

// incoming is the share of connections with a large command that has many arguments or a crowded user (clientMemory.crowded), or comes
// while memory is scarce.
type incoming struct {
	share
	looks    int // how often choose has passed over crowded users since it last chose one of them
	yielding yielding
	rest     time.Time // no part is read before this time: see yields
}

// has reports whether a connection belongs to the share, so that the next part of its input has to wait for a turn of the share.
func (s *incoming) has(c *loopConn) bool {
	g := c.guard
	return g.large != nil && (len(g.large) >= manyArguments || s.crowded(c) || s.yields())
}

// yields reports whether no part of a large command is to be read now. After a garbage collection, light clients come first for a while.
func (s *incoming) yields() bool {
	l := s.loop
	since := s.yielding.since
	if s.yielding.must(&l.srv.largeGarbage, l.now) {
		return true
	}
	if !since.IsZero() && l.now.Sub(l.lightAt) < aloneAfter {
		s.rest = l.now.Add(min(shareRest*l.now.Sub(since), yieldMost))
	}
	return l.now.Before(s.rest)
}

// waits makes the loop look again after crowdLook.
func (s *incoming) waits() { s.due, s.since = s.loop.now.Add(crowdLook), time.Time{} }

func (s *incoming) crowded(c *loopConn) bool {
	return s.loop.srv.clientMemory.crowded(c.s.userMemory())
}

// add queues a connection whose command is partly in memory at the front, and any other at the end.
func (s *incoming) add(c *loopConn) {
	if c.waitIn(&s.queue); c.part {
		s.queue.MoveToFront(c.place)
	}
}

// choose returns the next connection to read from. It belongs to the user whose latest turn is the longest ago, among users that are not
// crowded. After crowdLooks calls that passed over crowded users, choose chooses among these, because their complete commands may block
// forever.
func (s *incoming) choose() *loopConn {
	m := &s.loop.srv.clientMemory
	var best, crowded *loopConn
	var turn, crowdTurn uint64
	for e := s.queue.Front(); e != nil; e = e.Next() {
		c := e.Value.(*loopConn)
		u := c.s.userMemory()
		t := u.turn.Load()
		switch {
		case m.crowded(u):
			if crowded == nil || t < crowdTurn {
				crowded, crowdTurn = c, t
			}
		case best == nil || t < turn:
			best, turn = c, t
		}
	}
	if crowded == nil {
		return best
	}
	if s.looks++; s.looks > crowdLooks {
		s.looks = 0
		return crowded
	}
	return best
}

// nextPart reads the next part of the large command that choose has chosen. If it has chosen none, the loop looks again after
// crowdLook.
func (s *incoming) nextPart() {
	c := s.choose()
	if c == nil {
		s.waits()
		return
	}
	c.s.userMemory().turn.Store(s.loop.srv.clientMemory.turns.Add(1))
	if c.part = true; len(c.guard.large) >= manyArguments {
		c.laden = s.loop.now
	} else {
		s.since = time.Time{} // no rest is needed: a part of a command with few arguments takes hardly any time
	}
	s.serve(c)
}

// sharesServed is called at the end of a round and sets when the shares have their next turns.
func (l *loop) sharesServed() {
	l.strangers.served(shareRest)
	rest := shareRest
	if l.now.Sub(l.lightAt) >= aloneAfter {
		rest = 0
	}
	l.incoming.served(rest)
}
