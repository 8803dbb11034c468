package server

import (
	"sync"
	"time"

	"lockstep/store"
)

// sharedLook has strangers who were not let in share the question to the leader whether
// there is news of the users. They decide how often they knock.
type sharedLook struct {
	turn sync.Mutex // one at a time
	mu   sync.Mutex
	next *look // that has not begun
}

type look struct {
	done    chan struct{}
	learned bool // something that was not known here
	known   bool // what the leader knew is known here now
}

// look begins to ask the leader, with all others who ask.
func (srv *Server) look() *look {
	s := &srv.looks
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.next
	if l != nil {
		return l
	}
	l = &look{done: make(chan struct{})}
	s.next = l
	go func() {
		s.turn.Lock()
		defer s.turn.Unlock()
		s.mu.Lock()
		s.next = nil // who comes from now on must not rely on this one
		s.mu.Unlock()
		var refusal store.Error
		l.learned, refusal = srv.catchUpOr()
		l.known = refusal == ""
		close(l.done)
	}()
	return l
}

// lookAgain is catchUp for somebody who was not let in. While a script keeps the leader from
// answering, what is known counts.
func (srv *Server) lookAgain() (learned bool) {
	if srv.backend.Busy() {
		return false
	}
	l := srv.look()
	<-l.done
	return l.learned
}

// upToDate reports whether this node knows what the leader knows of the users, if it can be told soon.
func (srv *Server) upToDate() bool {
	if srv.backend.Busy() || !srv.backend.Reaches() {
		return false
	}
	l := srv.look()
	timer := time.NewTimer(catchUpTimeout)
	defer timer.Stop()
	select {
	case <-l.done:
		return l.known
	case <-timer.C:
		return false
	}
}

// Verdict is what a server says to somebody who is no client.
type Verdict int

const (
	Permitted Verdict = iota
	Unknown           // no such user, or another password
	Forbidden         // the user may not do it
)

// Permits tells whether a user may run a command, for those who come by another way than
// the Redis protocol. The name "" is for those who name nobody: the default user's, if it
// needs no password.
func (srv *Server) Permits(name, password, command string) Verdict {
	anonymous := name == ""
	if anonymous {
		name, password = store.DefaultUser, ""
	}
	try := func() Verdict {
		acc := srv.hub.accounts.get(name)
		if acc == nil {
			return Unknown
		}
		u := acc.user.Load()
		// A node that has just started does not know yet whether there is a password.
		if anonymous && !(srv.hub.accounts.current.Load() && u.Open()) || !srv.hub.accounts.admits(acc, []byte(password)) {
			return Unknown
		}
		cmd := srv.table.Lookup([]byte(command))
		if cmd == nil {
			return Forbidden
		}
		if why, _ := u.Check(cmd, [][]byte{[]byte(command)}); why != store.Allowed {
			return Forbidden
		}
		return Permitted
	}
	if cmd := srv.table.Lookup([]byte(command)); cmd != nil && cmd.Is(store.Admin) {
		srv.upToDate() // the rights may have been taken from the user at another node
	}
	verdict := try()
	if verdict != Permitted && !(anonymous && srv.hub.accounts.current.Load()) {
		srv.lookAgain()
		verdict = try()
	}
	return verdict
}

// HasPassword reports whether a user is there and cannot be had for any password.
func (srv *Server) HasPassword(name string) bool {
	acc := srv.hub.accounts.get(name)
	return acc != nil && !acc.user.Load().NoPass
}
