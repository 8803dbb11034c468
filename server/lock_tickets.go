package server

import (
	"bytes"
	"sync"
	"sync/atomic"

	"lockstep/cluster"
	"lockstep/store"
)

// Tickets (LOCK.ACQUIRE … QUEUE). The connection of a client that has to wait is not busy: the client gets a ticket at once, and stands in the
// queue as if it waited. When it gets the lock, the entry that grants the lock has a message for it. The ticket ends with the connection, as a
// wait does.

// lockTicket is a ticket of a session.
type lockTicket struct {
	s     *session
	b     *cluster.Blocked
	name  lockName
	bytes int64
	over  bool // it has ended; lockTickets.mu guards it
}

// ticketCost is about how many bytes a ticket takes on its client's node, without its arguments.
const ticketCost = 400

// lockTickets has the tickets of all sessions of the server.
type lockTickets struct {
	mu sync.Mutex
	of map[*session]map[*lockTicket]struct{}
}

// ticket lets a LOCK.ACQUIRE with QUEUE end with a ticket as soon as it waits. size is what the command takes while it waits.
func (s *session) ticket(b *cluster.Blocked, size int64) {
	args := make([][]byte, len(b.Call.Args))
	for i, arg := range b.Call.Args {
		args[i] = bytes.Clone(arg) // the session goes on, and uses the memory again
	}
	b.Call.Args = args
	t := &lockTicket{s: s, b: b, name: lockName{b.Call.DB, string(args[1]), string(args[2])}, bytes: ticketCost + size}
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
		s.srv.tickets.drop(t)
	}
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
		t.s.holds(t.bytes)
	}
}

// drop forgets a ticket that has ended.
func (l *lockTickets) drop(t *lockTicket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(t)
}

// forget is drop for a caller that holds mu.
func (l *lockTickets) forget(t *lockTicket) {
	t.over = true
	list := l.of[t.s]
	if _, there := list[t]; !there {
		return
	}
	t.s.holds(-t.bytes)
	if delete(list, t); len(list) == 0 {
		delete(l.of, t.s)
	}
}

// giveUp ends the tickets that a session has for a lock and an owner.
func (l *lockTickets) giveUp(s *session, name lockName) {
	l.abandon(s, func(t *lockTicket) bool { return t.name == name })
}

// end ends the tickets of a session that has ended.
func (l *lockTickets) end(s *session) {
	l.mu.Lock()
	s.ticketless = true
	l.mu.Unlock()
	l.abandon(s, func(*lockTicket) bool { return true })
}

// abandon ends those tickets of a session for which the function which returns true.
func (l *lockTickets) abandon(s *session, which func(*lockTicket) bool) {
	l.mu.Lock()
	var list []*lockTicket
	for t := range l.of[s] {
		if which(t) {
			list = append(list, t)
		}
	}
	for _, t := range list {
		l.forget(t)
	}
	l.mu.Unlock()
	for _, t := range list {
		s.srv.backend.Abandon(t.b)
	}
}
