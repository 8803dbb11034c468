package server

import (
	"container/list"
	"time"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/cluster/brake"
	"github.com/lockstep-io/lockstep/store"
)

// loopConn is a connection that a loop serves. Its pipeline goes through these states:
//
//	idle → running → waiting → running → … → idle
//	            ↘ away (a goroutine has it) ↗
//	            ↘ blocked (by a command or CLIENT PAUSE) ↗
//
// The loop reads only idle connections, so a client's commands run in order. Only the loop uses a loopConn, except where a comment says
// otherwise; a goroutine that has it uses s, guard and next.
type loopConn struct {
	fdConn
	tls     *tlsConn // nil without TLS
	loop    *loop
	s       *session
	guard   *guard
	state   connState
	ready   bool      // in loop.ready, or in the queue of a share (loop_shares_linux.go)
	vain    bool      // the last result of inVain
	laden   time.Time // when a share last served the connection for a large command
	leaving bool      // its input has ended: the next turn of loop.slow closes it
	part    bool      // incoming.nextPart has read a part of this connection's present command

	share *list.List    // the list of a share in which the connection waits; nil: it waits in none …
	place *list.Element // … and its place there

	next  int       // the next command of the pipeline to run
	since time.Time // when the present submission began
	sub   cluster.Submission
	reply store.Reply // the reply to the blocked command; any goroutine may set it, before newsUnblocked

	heard  news // news that the loop is handling
	news   news // news that the loop has not begun to handle; guarded by loop.mu
	queued bool // in loop.queue; guarded by loop.mu
}

type connState uint8

const (
	connNew connState = iota
	connIdle
	connRunning
	connWaiting
	connAway
	connBlocked
	connGone
)

// news is what other goroutines tell the loop about a connection.
type news uint8

const (
	newsJoined    news = 1 << iota // the connection is new
	newsAnswered                   // its submission has been answered
	newsReturned                   // the goroutine that ran its pipeline is done
	newsPushed                     // a message waits in its outbox
	newsClosed                     // the connection was closed
	newsUnblocked                  // its blocking command has a reply
	newsResumed                    // the pause is over
)

// advance reads and parses the input of an idle connection.
func (l *loop) advance(c *loopConn) {
	// After this many reads, the other clients have their turn, even if the client is in the middle of a huge argument.
	const reads = 4
	g := c.guard
	for i := range reads {
		if c.shut.Load() {
			l.retire(c)
			return
		}
		g.parse()
		vain := l.inVain(c)
		switch {
		case len(g.ends) > 0:
			l.begin(c)
			return
		case g.failure != "":
			l.protocolError(c)
			return
		case g.end != nil && c.hungUp && !c.leaving && g.large == nil && !c.s.needsAuth():
			c.leaving = true // it takes long to close hundreds of sockets, so a later turn does it (loopConn.isSlow)
			l.srv.hungUp(c.s)
			l.again(c)
			return
		case g.end != nil:
			l.retire(c)
			return
		case !c.hasInput():
			return
		case vain || i > 0 && l.incoming.has(c):
			l.again(c) // loop.turn then puts the connection into the queue of its share
			return
		}
		g.fill()
	}
	l.again(c)
}

// inVain charges a client for lines without a command, and reports whether a client that sends such lines has exceeded ownSlice.
func (l *loop) inVain(c *loopConn) bool {
	if n := c.guard.vain; n > 0 {
		c.guard.vain = 0
		c.s.own.add(nil, l.srv.cfg.Clock(), time.Duration(n)*emptyTakes, 0)
		c.vain = true
	}
	c.vain = c.vain && c.s.own.exceeds(ownSlice, l.srv.cfg.Clock)
	return c.vain
}

// hasInput reports whether a read may return input.
func (c *loopConn) hasInput() bool { return c.readable || c.tls != nil && c.tls.more }

// writable handles the event that the socket has room.
func (c *loopConn) writable() {
	if c.tls != nil {
		c.tls.writable()
		return
	}
	c.fdConn.writable()
}

// again gives an idle connection its turn in the next round (loop.turn).
func (l *loop) again(c *loopConn) {
	if !c.ready {
		c.ready = true
		l.ready = append(l.ready, c)
	}
}

// begin starts the pipeline that the guard has parsed.
func (l *loop) begin(c *loopConn) {
	if !c.s.begin() {
		l.retire(c)
		return
	}
	c.s.active.Store(l.now.UnixMilli())
	c.s.wasBusy = false
	c.next = 0
	l.step(c)
}

// step runs commands as session.dispatch does, but never waits: a command that may wait goes to a goroutine (newsReturned).
func (l *loop) step(c *loopConn) {
	c.state = connRunning
	s, g := c.s, c.guard
	for ; c.next < len(g.ends) && !s.isClosing(); c.next++ {
		args := g.command(c.next)
		d := s.decide(args)
		if d.action == actCollect && !d.paused && s.unsure == "" && !s.readsMuch(d.cmd, args) && !s.checksMuch() {
			s.collect(d.cmd, args)
			if len(s.calls) >= l.srv.callsAtOnce() {
				c.next++
				l.submit(c)
				return
			}
			continue
		}
		if len(s.calls) > 0 {
			l.submit(c) // this command runs after the answers
			return
		}
		for d.paused {
			if l.pause(c) {
				return
			}
			d = s.decide(args)
		}
		switch {
		case d.action == actHTTP:
		case s.unsure != "" || d.action == actHere && l.mayWait(c, d.cmd, args) || d.action == actRefuse && s.mustRest(d.cmd, nil):
			l.sendAway(c, func() {})
			return
		case d.action == actBlock:
			l.block(c, d.cmd, args)
			return
		case d.action == actCollect && (s.readsMuch(d.cmd, args) || s.checksMuch()):
			l.sendAway(c, func() {})
			return
		case queuedSize(args) > cluster.HeavyBytes:
			l.sendAway(c, func() {}) // because session.giveWay may have to wait
			return
		case d.action == actHere:
			if t := s.ask(d.cmd, args); t != nil {
				s.command.Store(d.cmd)
				s.calls = append(s.calls, s.transaction(d.cmd, args, t))
				c.next++
				l.submit(c)
				return
			}
		}
		if !s.handle(d, args) {
			c.next-- // a pause has begun, and handle has not run the command: try it again
		}
	}
	if len(s.calls) > 0 {
		l.submit(c)
		return
	}
	l.answered = append(l.answered, c)
}

// mayWait reports whether a command that this node answers itself may have to wait for something, or takes long.
func (l *loop) mayWait(c *loopConn, cmd *store.Command, args [][]byte) bool {
	s := c.s
	return !l.srv.inPlace[cmd] || cmd == l.srv.execCmd && s.execWaits(s.multi) || s.namesIn(cmd, args) > fewNames || s.mustRest(cmd, args)
}

// submit passes the collected commands to the backend. Later in the round, the loop flushes the backend for all connections
// together.
func (l *loop) submit(c *loopConn) {
	c.state = connWaiting
	c.since = l.now
	c.s.sendGrants()
	c.sub.Client = c.s.client
	c.sub.Calls, c.sub.Replies = c.s.calls, c.s.replies[:0]
	l.submitted = true
	l.srv.submitted.Add(int64(len(c.sub.Calls)))
	if c.hungUp {
		l.srv.hungUp(c.s)
	}
	l.srv.backend.SubmitAsync(&c.sub)
}

// resume continues a pipeline after the answer to its submission.
func (l *loop) resume(c *loopConn) {
	s := c.s
	s.replies = c.sub.Replies
	c.sub.Forget()
	took := l.now.Sub(c.since)
	waits := store.Extent(s.replies, largeOutput)
	more := len(s.replies) < len(s.calls) || c.next < len(c.guard.ends)
	if more {
		waits += s.out.size()
	}
	if waits > largeOutput || more && took >= slowPart || waits > keepOutput && brake.Scarce(waits) {
		l.sendAway(c, func() { s.answer(took, true) })
		return
	}
	s.answer(took, false)
	if len(s.calls) > 0 {
		l.submit(c) // the backend has answered only some of the calls: submit the others
		return
	}
	l.step(c)
}

// sendAway leaves the connection to a goroutine, which runs first() and the pipeline up to a command that blocks or is paused.
func (l *loop) sendAway(c *loopConn, first func()) {
	c.state, c.s.away = connAway, true
	if c.hungUp {
		c.s.left.Store(true)
		l.srv.hungUp(c.s)
	}
	go func() {
		first()
		s, g := c.s, c.guard
		for ; c.next < len(g.ends) && !s.isClosing(); c.next++ {
			args := g.command(c.next)
			d := s.decide(args)
			if d.action == actBlock && !d.paused {
				if refusal := s.sure(d.cmd, args); refusal != "" {
					s.reject(d.cmd, args, refusal)
					continue
				}
			}
			if d.action == actBlock || d.paused || !s.handle(d, args) {
				break // the loop itself can wait for such a command, without a goroutine
			}
		}
		s.submit()
		s.out.flush()
		l.tell(c, newsReturned)
	}()
}

// finish ends a pipeline after its replies have been sent.
func (l *loop) finish(c *loopConn) {
	if c.s.end() || c.shut.Load() {
		l.retire(c)
		return
	}
	c.guard.recycle()
	c.state = connIdle
	l.srv.hears(c.s)
	if c.hasInput() || c.guard.r < c.guard.w || c.guard.end != nil {
		l.again(c)
	}
}

// protocolError sends the guard's error to the client and ends the connection.
func (l *loop) protocolError(c *loopConn) {
	c.state = connRunning
	c.s.complain("Protocol error: " + c.guard.failure)
	c.s.closeAfterReply()
	l.answered = append(l.answered, c)
}

// retire ends a connection. No goroutine may be running its commands, and all of its submissions must be answered.
func (l *loop) retire(c *loopConn) {
	c.state = connGone
	c.leaveShare()
	c.s.abandon()
	l.conns[c.fd] = nil
	l.count--
	c.s.out.abort()
	if c.s.listensTo() > fewNames {
		go l.srv.takeLeave(c.s)
	} else {
		l.srv.takeLeave(c.s)
	}
	c.release()
}
