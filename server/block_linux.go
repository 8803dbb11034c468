package server

import "github.com/lockstep-io/lockstep/store"

// pause lets a connection wait for the end of CLIENT PAUSE. It returns false if the pause has just ended.
func (l *loop) pause(c *loopConn) bool {
	if !c.s.park(func() { l.tell(c, newsResumed) }) {
		return false
	}
	c.state = connBlocked
	l.waits(c)
	return true
}

// block begins a command that may have to wait. The caller must have answered all earlier commands of the client.
func (l *loop) block(c *loopConn, cmd *store.Command, args [][]byte) {
	c.state = connBlocked
	c.next++
	if c.s.block(cmd, args, func(r store.Reply) {
		c.reply = r
		l.tell(c, newsUnblocked)
	}) == nil {
		c.state = connRunning
		l.answered = append(l.answered, c)
		return
	}
	l.submitted = true
	l.waits(c)
}

// waits sends the replies of earlier commands when a client begins to wait. If the client has hung up, its wait ends at once.
func (l *loop) waits(c *loopConn) {
	c.s.out.sendPushed()
	if !c.hungUp {
		return
	}
	// The client sends no more. It may still read its replies, but must not wait.
	if c.s.parked.Load() {
		c.s.out.abort()
	} else {
		c.s.unblock()
	}
}

// hearBlocked handles the news about a connection that waits.
func (l *loop) hearBlocked(c *loopConn, n news) {
	s := c.s
	switch {
	case n&newsClosed != 0:
		l.retire(c)
	case n&newsUnblocked != 0:
		cmd := s.command.Load()
		reply := c.reply
		c.reply = store.Reply{}
		s.endBlock(cmd, reply)
		if c.hungUp && reply.Kind == store.None {
			l.retire(c)
			return
		}
		l.step(c)
	case n&newsResumed != 0:
		l.step(c)
	}
}

// returned continues a pipeline after a goroutine has run part of it.
func (l *loop) returned(c *loopConn) {
	c.s.away = false
	if c.next < len(c.guard.ends) && !c.s.isClosing() && !c.shut.Load() {
		l.step(c)
		return
	}
	l.finish(c)
}
