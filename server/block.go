package server

import (
	"io"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/store"
)

// The server watches the connection of a session that waits, because no command may be served after its client has left.

// blocks reports whether a command may have to wait at the leader.
func (srv *Server) blocks(cmd *store.Command, args [][]byte) bool {
	return cmd.Is(store.Blocking) && srv.handlers[cmd] == nil && store.Waits(cmd, args)
}

// block begins a blocking command, or returns nil. The caller must then flush the backend, and call endBlock after done, which any
// goroutine may call.
func (s *session) block(cmd *store.Command, args [][]byte, done func(store.Reply)) *cluster.Blocked {
	size := cluster.BlockedSize(args) // the leader keeps the command, and this node may be the leader
	if !s.mayHold(size) {
		s.closeAfterReply()
		return nil
	}
	s.command.Store(cmd)
	s.display(cmd, args)
	b := &cluster.Blocked{Call: s.call(cmd, args), Client: s.client, Done: done, Caller: s.caller}
	if store.TakesTicket(cmd, args) {
		s.ticket(b, size)
	}
	if s.tracking.Load() != nil {
		s.track(&b.Call)
		s.used(cmd)
	}
	s.srv.stats.blocked.Add(1)
	s.blocks.Store(size)
	s.holds(size)
	s.blocked.Store(b)
	s.srv.backend.Block(b)
	if s.isDraining() || s.isClosing() {
		s.unblock()
	}
	return b
}

// endBlock ends a blocking command with its reply. Until the reply is in the output, s.blocked makes tracker.send hold back messages.
func (s *session) endBlock(cmd *store.Command, reply store.Reply) {
	s.holds(-s.blocks.Swap(0))
	s.srv.stats.blocked.Add(-1)
	s.srv.stats.waited(cmd)
	if b := s.blocked.Load(); b != nil && cmd == s.srv.acquireCmd {
		s.noteLock(cmd, b.Call.Args, b.Call.DB, reply)
	}
	if reply.Kind == store.None {
		s.closeAfterReply() // a client would take the next command's reply for this one's
	}
	s.grants = s.grants || s.srv.grants[cmd]
	s.reply(cmd, s.settle(reply))
	s.blocked.Store(nil)
	if s.tracking.Load() != nil {
		s.srv.hub.tracker.release(s)
	}
	s.finish()
}

// abandon ends the session's blocking command or pause, because its client has left.
func (s *session) abandon() {
	if b := s.blocked.Swap(nil); b != nil {
		s.srv.stats.blocked.Add(-1)
		s.srv.backend.Abandon(b)
		s.holds(-s.blocks.Swap(0))
	}
	if s.parked.CompareAndSwap(true, false) {
		s.srv.pause.forget(s)
	}
}

// unblock ends the session's blocking command without a reply, unless it is served first.
func (s *session) unblock() {
	if b := s.blocked.Load(); b != nil {
		s.srv.backend.Unblock(b, store.Reply{Kind: store.None}, nil)
	}
}

// waits reports whether CLIENT LIST shows the session as blocked.
func (s *session) waits() bool {
	return s.blocked.Load() != nil || s.parked.Load() || s.replicas.Load() != nil
}

// waitsForLock reports whether the session waits for a lock. If its client has hung up, it has left, even if it may still read: a lock that
// nobody knows of would keep others waiting.
func (s *session) waitsForLock() bool {
	b := s.blocked.Load()
	return b != nil && store.TakesLock(b.Call.Cmd)
}

// blockHere runs a blocking command on the session's own goroutine, until the command ends or the client leaves.
func (s *session) blockHere(cmd *store.Command, args [][]byte) {
	s.submit()
	s.out.flush()
	done, gone := make(chan store.Reply, 1), make(chan struct{})
	if s.block(cmd, args, func(r store.Reply) { done <- r }) == nil {
		return
	}
	s.srv.backend.Flush()
	stop := s.conn.watch(func() { close(gone) })
	select {
	case r := <-done:
		stop()
		s.endBlock(cmd, r)
	case <-gone:
		stop()
		if s.conn.aheadEnd == io.EOF && !s.waitsForLock() {
			s.unblock() // the client may still read the reply, if the leader has one already
			s.endBlock(cmd, <-done)
			return
		}
		s.abandon()
		s.closeAfterReply()
	}
}

// parkHere waits until the pause is over. It reports false if the client has left before that.
func (s *session) parkHere() bool {
	s.submit()
	s.out.flush()
	over, gone := make(chan struct{}), make(chan struct{})
	if !s.park(func() { close(over) }) {
		return true
	}
	stop := s.conn.watch(func() { close(gone) })
	defer stop()
	select {
	case <-over:
		return true
	case <-gone:
		s.abandon()
		s.closeAfterReply()
		return false
	}
}

// park arranges that resume is called after the pause. It returns false, and resume is not called, if the pause is over.
func (s *session) park(resume func()) bool {
	s.parked.Store(true)
	if !s.srv.pause.await(s, func() {
		s.parked.Store(false)
		resume()
	}) {
		s.parked.Store(false)
		return false
	}
	if s.isDraining() || s.isClosing() {
		s.out.abort()
	}
	return true
}
