package server

import (
	"sync"
	"sync/atomic"
	"time"

	"lockstep/store"
)

// sharedLook has strangers who were not let in share the question to the leader whether
// there is news of the users. They decide how often they knock.
type sharedLook struct {
	turn sync.Mutex // one at a time
	mu   sync.Mutex
	next *look // that has not begun

	waiting atomic.Int32 // who wait for an answer
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
	srv.looks.waiting.Add(1)
	defer srv.looks.waiting.Add(-1)
	<-l.done
	return l.learned
}

// knowledge is what a node knows of the users.
type knowledge int

const (
	knowsAll  knowledge = iota // what the leader knows
	knowsPast                  // this process has been stopped, and its leader has not told it since then
	knowsSelf                  // what it was told, by and by: there is no leader, or it does not answer in time
)

const (
	// stoppedTimes is how many times as long a node that has been stopped looks for its leader before it takes itself
	// to be without one.
	stoppedTimes = 5
	// clusterTimes is how many times as long a leader that is busy has for commands that cannot do without its word.
	clusterTimes = 5
)

// upToDate has this node learn what the leader knows of the users. It looks for a leader for as long as search, and
// waits for its word for as long as patience. A node that has been stopped for a while may find its leader, or
// its link to it, in a moment.
func (srv *Server) upToDate(search, patience time.Duration) knowledge {
	switch {
	case !srv.hasUsers():
		return knowsAll
	case srv.backend.Busy():
		return knowsSelf
	}
	stopped := srv.pulse.stopped(srv.cfg.Clock())
	if stopped {
		search = max(search, stoppedTimes*srv.patience)
	}
	timer := time.NewTimer(search)
	defer timer.Stop()
	for !srv.backend.Reaches() {
		select {
		case <-timer.C:
			srv.pulse.missed.Store(false) // there really is none
			return knowsSelf
		case <-srv.stop:
			return knowsSelf
		case <-time.After(learnPause):
		}
	}
	timer.Reset(patience)
	l := srv.look()
	srv.looks.waiting.Add(1)
	defer srv.looks.waiting.Add(-1)
	select {
	case <-l.done:
		if l.known {
			srv.pulse.missed.Store(false)
			return knowsAll
		}
	case <-timer.C:
	}
	if stopped {
		return knowsPast
	}
	return knowsSelf
}

// pulse tells whether the process has been stopped for a while. What is known may be as old as that, however
// fresh it looks.
type pulse struct {
	last   atomic.Int64 // when it was felt, ns
	missed atomic.Bool
}

const (
	pulseEvery = 50 * time.Millisecond
	pulseLate  = 500 * time.Millisecond
)

// stopped reports whether a pulse has been missed since missed was cleared.
func (p *pulse) stopped(now time.Time) bool {
	if last := p.last.Load(); last != 0 && now.UnixNano()-last > int64(pulseLate) {
		p.missed.Store(true)
	}
	return p.missed.Load()
}

// feelPulse notes that the process runs.
func (srv *Server) feelPulse() {
	tick := time.NewTicker(pulseEvery)
	defer tick.Stop()
	for {
		now := srv.cfg.Clock()
		srv.pulse.stopped(now)
		srv.pulse.last.Store(now.UnixNano())
		select {
		case <-tick.C:
		case <-srv.stop:
			return
		}
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
		if srv.upToDate(srv.patience, srv.patience) == knowsPast { // the rights may have been taken from the user at another node
			return Unknown
		}
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
