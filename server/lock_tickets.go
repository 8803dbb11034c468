package server

import (
	"bytes"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/store"
)

// Tickets (LOCK.ACQUIRE … QUEUE). The connection of a client that has to wait is not busy: the client gets a ticket at once, and stands in the
// queue as if it waited. When it gets the lock, the entry that grants the lock has a message for it.
//
// LOCK.RELEASE ends an owner's tickets on the leader, in its order with the grants. The leader may not know a ticket, while it changes or a
// link is broken: so the client's node ends those of the same connection, too, and releases the lock if one is granted nevertheless. The end
// of the connection ends all its tickets.

// lockTicket is a ticket of a session.
type lockTicket struct {
	s     *session
	b     *cluster.Blocked
	name  lockName
	bytes int64

	// lockTickets.mu guards the fields below.
	over  bool        // it has ended
	given bool        // its owner has given it up
	err   store.Error // it has ended with this error before its session knew of it
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
		s.srv.tickets.ended(t, r)
	}
}

// ended handles the end of a ticket, by the reply to its command.
func (l *lockTickets) ended(t *lockTicket, r store.Reply) {
	known, given := l.drop(t, r)
	switch {
	case r.IsError() && known:
		go t.failed(store.Error(r.Str))
	case r.Kind == store.Array && given: // it has become a lock that its owner does not want any more
		user, users := t.b.Caller()
		release := cluster.Call{Cmd: t.s.srv.releaseCmd, DB: t.name.db, RESP: 2, User: user, Users: users, Args: [][]byte{
			[]byte("LOCK.RELEASE"), t.b.Call.Args[1], t.b.Call.Args[2], []byte("TOKEN"), strconv.AppendInt(nil, r.Elems[0].Int, 10)}}
		go t.s.srv.backend.Submit([]cluster.Call{release}, nil)
	}
}

// giveUp ends the tickets of a session for a lock and an owner.
func (l *lockTickets) giveUp(s *session, name lockName) {
	if s.tickets.Load() == 0 {
		return
	}
	l.mu.Lock()
	var list []*lockTicket
	for t := range l.of[s] {
		if t.name == name {
			t.given = true
			list = append(list, t)
		}
	}
	l.mu.Unlock()
	for _, t := range list {
		s.srv.backend.Unblock(t.b, store.WaitTimedOut, nil)
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
	case t.over && t.err != "":
		go t.failed(t.err)
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

// drop forgets a ticket that has ended with a reply. known means that its session has it, and given that its owner has given it up.
func (l *lockTickets) drop(t *lockTicket, r store.Reply) (known, given bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.of[t.s]
	_, known = list[t]
	if t.over = true; r.IsError() && !known {
		t.err = store.Error(r.Str)
	}
	if known {
		t.s.tickets.Add(-1)
		t.s.holds(-t.bytes)
		if delete(list, t); len(list) == 0 {
			delete(l.of, t.s)
		}
	}
	return known, t.given
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
