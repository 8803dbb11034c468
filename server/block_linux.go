package server

import "lockstep/store"

// blocks begins a command that may have to wait, and reports whether cmd is such a command. All earlier
// commands of the client have been answered.
func (l *loop) blocks(c *loopConn, cmd *store.Command, args [][]byte) bool {
	switch {
	case c.s.paused(cmd, args):
		if !c.s.park(func() { l.tell(c, newsResumed) }) {
			return l.blocks(c, cmd, args) // the pause has just ended
		}
		c.state = connBlocked
	case l.srv.blocks(cmd) && !c.s.queues(cmd):
		c.state = connBlocked
		c.next++
		if c.s.block(cmd, args, func(r store.Reply) {
			c.reply = r
			l.tell(c, newsUnblocked)
		}) == nil {
			c.state = connRunning
			l.answered = append(l.answered, c)
			return true
		}
		l.submitted = true
	default:
		return false
	}
	c.s.out.sendPushed() // the replies of earlier commands
	if c.hungUp {
		// The client may still read its replies, but must not wait.
		if c.s.parked.Load() {
			c.s.out.abort()
		} else {
			c.s.unblock()
		}
	}
	return true
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
