package server

import (
	"sync/atomic"
	"time"
)

// Two kinds of clients, strangers and senders of many arguments, get only a share of a loop's time, and are served one after the
// other; all other clients go first. Input beyond the share stays with the operating system, which slows the senders down.
//
// Strangers have not authenticated, or send lines that make no command. If a few hundred of them sent as fast as they can, all
// other clients of the loop would wait for a turn of each of them.
//
// A hundred thousand arguments take the loop tens of milliseconds, and several times as long while the garbage collector runs all the
// time. So a loop reads a command with many arguments in parts, one part after the other. A command that has arrived stays in
// memory until its turn to run. While many commands of a user wait for their turn, the loop reads further ones of that user
// slowly (choose).

const (
	// strangersTurn is for how long a loop reads the input of strangers in a round.
	strangersTurn = 500 * time.Microsecond
	// After a round with clients of one kind, the loop serves none of that kind for shareRest times the duration of the round, but
	// for shareWait at most.
	shareRest = 3
	shareWait = 50 * time.Millisecond
	// crowdLook is how long a loop waits before it looks again whether there is room for large commands. After crowdLooks looks
	// without room, it reads a part all the same.
	crowdLook  = 5 * time.Millisecond
	crowdLooks = 10
	// A large command with manyArguments arguments or more takes more time for the arguments than for their bytes.
	manyArguments = 1 << 10
	// aloneAfter is how long the other clients must have sent nothing before a loop reads many arguments without pauses
	// (shareRest).
	aloneAfter = 200 * time.Millisecond
)

// share is a queue of idle connections with unread input that get only a share of the loop's time. Only the owner of the loop
// uses the queue.
type share struct {
	loop  *loop
	queue []*loopConn // in the order of their arrival; but see incoming.add
	last  []*loopConn // strangers that have hung up, served when queue is empty
	due   time.Time   // when the next connections may be served
	since time.Time   // the start of the present round, if the share has its turn in the round; else zero
	timer *time.Timer // wakes the loop at due
	late  atomic.Bool // the timer has fired: connections may be served, whatever the clock says
}

func (s *share) stop() {
	if s.timer != nil {
		s.timer.Stop()
	}
}

// begins starts the share's turn in this round, if connections wait and are due, and reports whether it has.
func (s *share) begins() bool {
	if s.isEmpty() || s.loop.now.Before(s.due) && !s.late.Load() {
		return false
	}
	s.stop()
	s.late.Store(false)
	s.since = s.loop.now
	return true
}

func (s *share) isEmpty() bool { return len(s.queue)+len(s.last) == 0 }

// next serves the first connection of the queue.
func (s *share) next() { s.serve(pop(&s.queue)) }

// nextStranger is next, but strangers that have hung up go behind all others: nobody waits for the replies, and many such
// strangers could come in the time in which one is served.
func (s *share) nextStranger() {
	for len(s.queue) > 0 {
		c := pop(&s.queue)
		if !c.hungUp {
			s.serve(c)
			return
		}
		s.last = append(s.last, c)
	}
	s.serve(pop(&s.last))
}

func pop(queue *[]*loopConn) *loopConn {
	c := (*queue)[0]
	(*queue)[0] = nil
	*queue = (*queue)[1:]
	return c
}

func (s *share) serve(c *loopConn) {
	c.ready = false
	if c.state == connIdle {
		s.loop.advance(c)
	}
}

// served ends a round. If the round served connections of the share, the share's next turn comes rest × d later, where d is the
// duration of the round with the sending of replies, but after shareWait at the latest.
func (s *share) served(rest int) {
	if s.since.IsZero() {
		return
	}
	now := s.loop.srv.cfg.Clock()
	s.due = now.Add(min(time.Duration(rest)*now.Sub(s.since), shareWait))
	s.since = time.Time{}
}

// wakes makes the loop wake when connections that wait are due. It returns false if they are due now. The caller holds
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
	case c.s.needsAuth() || c.vain:
		l.strangers.queue = append(l.strangers.queue, c)
	case l.incoming.has(c):
		l.incoming.add(c)
	default:
		c.ready = false
		c.part = false
		if l.now.Sub(c.many) >= aloneAfter {
			l.lightAt = l.now
		}
		l.advance(c)
	}
}

// serveShares serves strangers for strangersTurn, and reads one part of a large command.
func (l *loop) serveShares() {
	if s := &l.strangers; s.begins() {
		for !s.isEmpty() {
			s.nextStranger()
			if l.srv.cfg.Clock().Sub(s.since) >= strangersTurn {
				break
			}
		}
	}
	if s := &l.incoming; s.begins() {
		s.nextPart()
	}
}

// incoming is the share of connections that are in the middle of a large command, if the command has many arguments or if the
// large commands of their user that wait to run take too much memory (clientMemory.crowded).
type incoming struct {
	share
	looks int // how often choose has met crowded users since it last chose one of them
}

// has reports whether the next part of a connection's input has to wait for its turn.
func (s *incoming) has(c *loopConn) bool {
	g := c.guard
	return g.large != nil && (len(g.large) >= manyArguments || s.crowded(c))
}

func (s *incoming) crowded(c *loopConn) bool {
	return s.loop.srv.clientMemory.crowded(c.s.userMemory())
}

// add queues a connection. A connection whose command has been read in part goes first, because the part takes
// memory.
func (s *incoming) add(c *loopConn) {
	s.queue = append(s.queue, c)
	if c.part {
		copy(s.queue[1:], s.queue)
		s.queue[0] = c
	}
}

// choose returns the index of the connection whose user has waited longest, among the users that are not crowded; -1: the loop
// should read none now. After crowdLooks looks that passed over crowded users, it chooses among these: their complete commands
// may be blocking ones, which may keep their memory forever.
func (s *incoming) choose() int {
	m := &s.loop.srv.clientMemory
	best, crowded := -1, -1
	var turn, crowdTurn uint64
	for i, c := range s.queue {
		u := c.s.userMemory()
		t := u.turn.Load()
		switch {
		case m.crowded(u):
			if crowded < 0 || t < crowdTurn {
				crowded, crowdTurn = i, t
			}
		case best < 0 || t < turn:
			best, turn = i, t
		}
	}
	if crowded < 0 {
		return best
	}
	if s.looks++; s.looks > crowdLooks {
		s.looks = 0
		return crowded
	}
	return best
}

// nextPart reads the next part of a large command.
func (s *incoming) nextPart() {
	i := s.choose()
	if i < 0 {
		s.due = s.loop.now.Add(crowdLook)
		s.since = time.Time{}
		return
	}
	c := s.queue[i]
	copy(s.queue[1:i+1], s.queue[:i])
	s.queue[0] = c
	c.s.userMemory().turn.Store(s.loop.srv.clientMemory.turns.Add(1))
	if c.part = true; len(c.guard.large) >= manyArguments {
		c.many = s.loop.now
	} else {
		s.since = time.Time{} // a part with few arguments takes hardly any time
	}
	s.next()
}

// sharesServed ends a round.
func (l *loop) sharesServed() {
	l.strangers.served(shareRest)
	rest := shareRest
	if l.now.Sub(l.lightAt) >= aloneAfter {
		rest = 0
	}
	l.incoming.served(rest)
}
