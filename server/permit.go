package server

import (
	"sync"
	"sync/atomic"
	"time"

	"lockstep/store"
)

// sharedLook lets strangers share one question to the leader (have the users changed?), because strangers
// decide how often they try to log in.
type sharedLook struct {
	turn sync.Mutex // one at a time
	mu   sync.Mutex
	next *look // the look that has not begun yet

	waiting atomic.Int32 // goroutines that wait for an answer
}

type look struct {
	done    chan struct{}
	learned bool // this node has learned something new
	known   bool // this node knows what the leader knew
}

// look returns a question to the leader that has not begun yet. All callers that come before it begins share it.
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
		s.next = nil // later callers must not rely on this look
		s.mu.Unlock()
		var refusal store.Error
		l.learned, refusal = srv.catchUpOr()
		l.known = refusal == ""
		close(l.done)
	}()
	return l
}

// lookAgain is catchUp after a failed login. While a script keeps the leader from answering, this node
// decides by what it knows.
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

// knowledge is how much a node knows of the users.
type knowledge int

const (
	knowsAll  knowledge = iota // what the leader knows
	knowsPast                  // the process was stopped for a while, and the leader has not answered since
	knowsSelf                  // only what it has applied: there is no leader, or the leader does not answer in time
)

const (
	// stoppedTimes is the factor by which a node that was stopped searches longer for its leader,
	// before it concludes that there is none.
	stoppedTimes = 5
	// clusterTimes is the factor by which commands that need the leader's answer wait longer for a busy
	// leader.
	clusterTimes = 5
)

// asksOnce returns a function that says what this node knows of the passwords, which another node may have changed. The first
// call of the function asks the leader, and later calls return the same.
func (srv *Server) asksOnce() func() knowledge {
	return sync.OnceValue(func() knowledge { return srv.upToDate(0, srv.patience) })
}

// asksOnce is Server.asksOnce, except that all commands of a transaction share one question.
func (s *session) asksOnce() func() knowledge {
	if s.executing != nil {
		return s.executing.known
	}
	return s.asksAnew()
}

// asksAnew is Server.asksOnce for a command of the session. It adds the time until the leader answers to own.waited, so
// that this time does not count as work that this node does for the client.
func (s *session) asksAnew() func() knowledge {
	ask := s.srv.asksOnce()
	return func() knowledge {
		began := s.srv.cfg.Clock()
		defer func() { s.own.waited += s.srv.cfg.Clock().Sub(began) }()
		return ask()
	}
}

// upToDate makes this node learn what the leader knows of the users. search bounds its search for a
// leader, and patience bounds its wait for the leader's answer. A node that was stopped for a while
// searches longer, because it may find its leader or its link to the leader in a moment.
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
			srv.pulse.missed.Store(false) // there is no leader
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

// pulse detects that the process was stopped for a while. The node's knowledge may then be as old as
// the stop was long, even if it looks fresh.
type pulse struct {
	last   atomic.Int64 // time of the last pulse, Unix ns
	missed atomic.Bool
}

const (
	pulseEvery = 50 * time.Millisecond
	pulseLate  = 500 * time.Millisecond
)

// stopped reports whether a pulse has been missed since missed was last cleared.
func (p *pulse) stopped(now time.Time) bool {
	if last := p.last.Load(); last != 0 && now.UnixNano()-last > int64(pulseLate) {
		p.missed.Store(true)
	}
	return p.missed.Load()
}

// feelPulse records regularly that the process runs.
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

// Verdict is the server's answer about a user that does not come as a Redis client.
type Verdict int

const (
	Permitted Verdict = iota
	Unknown           // no such user, or a wrong password
	Forbidden         // the user does not have the right
)

// Permits reports whether a user may run a command, for clients of protocols other than Redis. The
// empty name stands for the default user without a password.
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
		// A node that has just started does not know yet whether the default user has a password.
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
		if srv.upToDate(srv.patience, srv.patience) == knowsPast { // another node may have changed the user's rights
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

// HasPassword reports whether a user exists and needs a password.
func (srv *Server) HasPassword(name string) bool {
	acc := srv.hub.accounts.get(name)
	return acc != nil && !acc.user.Load().NoPass
}
