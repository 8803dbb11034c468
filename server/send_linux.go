package server

// sendTogether is the smallest number of connections whose output a loop sends by one system call.
const sendTogether = 4

// sendAnswered sends the replies of all pipelines that finished in this round.
func (l *loop) sendAnswered() {
	l.sendMany(l.answered)
	for i, c := range l.answered {
		l.answered[i] = nil
		l.send(c)
	}
	l.answered = l.answered[:0]
}

// send sends the replies of a finished pipeline. If the socket is full, a goroutine sends the rest, and gives the connection back
// (newsReturned).
func (l *loop) send(c *loopConn) {
	if c.s.out.flushNow(l.now) {
		l.finish(c)
		return
	}
	c.state = connAway
	go func() {
		c.s.out.flush()
		l.tell(c, newsReturned)
	}()
}

// sendPushed sends the messages that wait in the outboxes of some connections of the argument queue: those for which newsPushed has
// come.
func (l *loop) sendPushed(queue []*loopConn) {
	for _, c := range queue {
		if c.heard&newsPushed != 0 && c.state != connGone {
			l.pushed = append(l.pushed, c)
		}
	}
	l.sendMany(l.pushed)
	for i, c := range l.pushed {
		l.pushed[i] = nil
		c.s.out.sendPushed()
	}
	l.pushed = l.pushed[:0]
}

// sendMany sends output of many connections, a batch per system call. Its callers send what is left, one by one.
func (l *loop) sendMany(conns []*loopConn) {
	for len(conns) >= sendTogether && l.uring != nil {
		n := min(len(conns), uringEntries)
		l.sendSome(conns[:n])
		conns = conns[n:]
	}
}

// sendSome sends the output of one batch of connections, uringEntries at most. It skips TLS connections, and
// connections for which outbox.lend returns nil.
func (l *loop) sendSome(conns []*loopConn) {
	for _, c := range conns {
		if c.tls != nil {
			continue
		}
		if out := c.s.out.lend(l.now); out != nil {
			l.uring.add(c.fd, out)
			l.sending = append(l.sending, c)
		}
	}
	err := l.uring.run()
	for i, c := range l.sending {
		l.sending[i] = nil
		c.s.out.settle(l.uring.result(i))
	}
	l.sending = l.sending[:0]
	if err != nil {
		l.srv.cfg.Log.Warn("each reply is sent by a system call of its own from now on", "error", err)
		l.uring.close()
		l.uring = nil
	}
}
