package server

import (
	"bytes"
	"sync"
	"sync/atomic"

	"lockstep/cluster"
	"lockstep/store"
)

// Tickets (LOCK.ACQUIRE … QUEUE). The connection of a client that has to wait is not busy: the client gets a ticket at once, and stands in the
// queue as if it waited. When it gets the lock, the entry that grants the lock has a message for it. LOCK.RELEASE ends an owner's tickets on
// the leader, in its order with the grants. The end of the connection ends the others.

// lockTicket is a ticket of a session.
type lockTicket struct {
	s     *session
	b     *cluster.Blocked
	bytes int64
	over  bool // it has ended; lockTickets.mu guards it
}

const (
	// ticketCost is about how many bytes a ticket takes on its client's node, without its arguments.
	ticketCost = 400
	// mostTickets is how many tickets a connection may have: when it ends, the leader takes them out of their queues.
	mostTickets = 1000
)

// lockTickets has the tickets of all sessions of the server.
type lockTickets struct {
	mu sync.Mutex
	of map[*session]map[*lockTicket]struct{}
}

// tooManyTickets reports whether a command would give the session one ticket too many.
func (s *session) tooManyTickets(cmd *store.Command, args [][]byte) bool {
	return cmd == s.srv.acquireCmd && s.tickets.Load() >= mostTickets && store.TakesTicket(cmd, args)
}

// ticket lets a LOCK.ACQUIRE with QUEUE end with a ticket as soon as it waits. size is what the command takes while it waits.
func (s *session) ticket(b *cluster.Blocked, size int64) {
	args := make([][]byte, len(b.Call.Args))
	for i, arg := range b.Call.Args {
		args[i] = bytes.Clone(arg) // the session goes on, and uses the memory again
	}
	b.Call.Args = args
	account, authed := s.account.Load(), s.authed.Load()
	b.Caller = func() (string, uint64) { // the session may log in as another user
		return s.callerAs(account, authed, s.srv.hub.accounts.version.Load())
	}
	t := &lockTicket{s: s, b: b, bytes: ticketCost + size}
	done := b.Done
	var answered atomic.Bool
	b.Waits = func() {
		if answered.CompareAndSwap(false, true) {
			s.srv.tickets.add(t)
			done(store.Ticket(args))
		}
	}
	b.Done = func(r store.Reply) {
		if answered.CompareAndSwap(false, true) {
			done(r)
			return
		}
		if s.srv.tickets.drop(t) && r.IsError() {
			go t.failed(store.Error(r.Str))
		}
	}
}

// failed publishes that the ticket has ended with an error.
func (t *lockTicket) failed(e store.Error) {
	c := t.b.Call
	channel, message := store.TicketEnded(c.DB, string(c.Args[1]), string(c.Args[2]), e)
	publish := t.s.srv.table.Lookup([]byte("publish"))
	t.s.srv.backend.Submit([]cluster.Call{{Cmd: publish, RESP: 2, User: store.SystemUser, Args: [][]byte{[]byte("PUBLISH"), []byte(channel), []byte(message)}}}, nil)
}

// add notes that a session has a ticket, which has perhaps ended already. If the session has ended, add abandons the ticket.
func (l *lockTickets) add(t *lockTicket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case t.over:
	case t.s.ticketless:
		t.over = true
		go t.s.srv.backend.Abandon(t.b)
	default:
		if l.of == nil {
			l.of = map[*session]map[*lockTicket]struct{}{}
		}
		if l.of[t.s] == nil {
			l.of[t.s] = map[*lockTicket]struct{}{}
		}
		l.of[t.s][t] = struct{}{}
		t.s.tickets.Add(1)
		t.s.holds(t.bytes)
	}
}

// drop forgets a ticket that has ended, and reports whether it had not been forgotten yet.
func (l *lockTickets) drop(t *lockTicket) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.of[t.s]
	_, there := list[t]
	t.over = true
	if there {
		t.s.tickets.Add(-1)
		t.s.holds(-t.bytes)
		if delete(list, t); len(list) == 0 {
			delete(l.of, t.s)
		}
	}
	return there
}

// end ends the tickets of a session that has ended.
func (l *lockTickets) end(s *session) {
	l.mu.Lock()
	s.ticketless = true
	list := l.of[s]
	delete(l.of, s)
	for t := range list {
		t.over = true
		s.holds(-t.bytes)
	}
	l.mu.Unlock()
	for t := range list {
		s.srv.backend.Abandon(t.b)
	}
}
