package server

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// sharedLook lets goroutines share one question to the leader: have the users changed? Strangers can cause it as often as they like.
type sharedLook struct {
	turn sync.Mutex // held while a look asks the leader, so only one look asks at a time
	mu   sync.Mutex
	next *look // the look that has not begun to ask yet; nil if there is none

	waiting atomic.Int32 // goroutines that wait for an answer
}

// look is a question to the leader (sharedLook), and its result.
type look struct {
	done  chan struct{} // closed when the result is there
	known bool          // this node has applied all changes of users that the leader knew when it answered
}

// look returns the look that will ask the leader next, so that the answer is newer than the call.
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
		s.next = nil // later callers get another look, with a newer answer
		s.mu.Unlock()
		_, refusal := srv.catchUpOr()
		l.known = refusal == ""
		close(l.done)
	}()
	return l
}

// knowledge says how recent the users are that a node knows.
type knowledge int

const (
	knowsAll  knowledge = iota // all users that the leader knows; also if the server has no users (hasUsers)
	knowsPast                  // the process was stopped for a while, and has not caught up with the leader since
	knowsSelf                  // only what this node has applied: it finds no leader, catches up too slowly, or runs a long script as leader
)

const (
	// A node whose process was stopped searches for a leader for at least stoppedTimes × Server.patience, before it concludes that
	// there is none.
	stoppedTimes = 5
	// clusterTimes × Server.patience bounds the search for a leader (but see Config.FailoverWait) and the wait for its answer, in
	// checkOperator and session.sure.
	clusterTimes = 5
)

// asksOnce returns a function that says how recent this node's users are, and asks the leader at its first call only.
func (srv *Server) asksOnce() func() knowledge {
	return sync.OnceValue(func() knowledge { return srv.upToDate(0, srv.patience()) })
}

// asksOnce is Server.asksOnce, except that all commands of a transaction share one question.
func (s *session) asksOnce() func() knowledge {
	if s.executing != nil {
		return s.executing.known
	}
	return s.asksAnew()
}

// asksAnew is Server.asksOnce for a command of the session. The time until the leader
// answers does not count as work of this node (idle).
func (s *session) asksAnew() func() knowledge {
	ask := s.srv.asksOnce()
	return func() knowledge {
		defer s.idle()()
		return ask()
	}
}

// upToDate tries to learn the users from the leader, and returns how far it succeeded. search bounds the time to find a leader (longer
// after a suspension), patience the wait for its answer.
func (srv *Server) upToDate(search, patience time.Duration) knowledge {
	switch {
	case !srv.hasUsers():
		return knowsAll
	case srv.backend.Busy():
		return knowsSelf
	}
	stopped := srv.pulse.stopped(srv.cfg.Clock())
	if stopped {
		search = max(search, stoppedTimes*srv.patience())
	}
	timer := time.NewTimer(search)
	defer timer.Stop()
	for !srv.backend.Reaches() {
		if srv.backend.Removed() {
			return knowsSelf // the cluster has removed this node, so no leader will bring it up to date
		}
		select {
		case <-timer.C:
			srv.pulse.missed.Store(false) // the search has found no leader
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

// pulse detects that the process was stopped for a while, so that the node may have missed changes of the users.
type pulse struct {
	last   atomic.Int64 // time of the last pulse, Unix ns
	missed atomic.Bool  // a pulse came too late, and since then upToDate has neither caught up with a leader nor found that there is none
}

const (
	pulseEvery = 50 * time.Millisecond
	pulseLate  = 500 * time.Millisecond
)

// stopped returns p.missed. Before that, it sets p.missed if the last pulse is more than pulseLate ago.
func (p *pulse) stopped(now time.Time) bool {
	if last := p.last.Load(); last != 0 && now.UnixNano()-last > int64(pulseLate) {
		p.missed.Store(true)
	}
	return p.missed.Load()
}

// feelPulse stores the time every pulseEvery, as a sign that the process runs.
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

// Verdict says whether a user may run a command: see Server.Permits.
type Verdict int

const (
	Permitted Verdict = iota
	Unknown           // there is no such user, the password is wrong, or this node cannot tell because its users may be out of date
	Forbidden         // the user does not have the right to the command, or there is no such command
)

// Permits says whether a user may run a command, for other protocols such as HTTP. The empty name is the default user without a password.
func (srv *Server) Permits(name, password, command string) Verdict {
	anonymous := name == ""
	if anonymous {
		name, password = store.DefaultUser, ""
	}
	hashed := store.HashPassword([]byte(password))
	try := func() Verdict {
		acc := srv.hub.accounts.get(name)
		if acc == nil {
			return Unknown
		}
		u := acc.user.Load()
		// A node that has just started does not know yet whether the default user has a password.
		if anonymous && !(srv.hub.accounts.current.Load() && u.Open()) || !srv.hub.accounts.admits(acc, hashed) {
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
		if srv.upToDate(srv.patience(), srv.patience()) == knowsPast { // another node may have changed the user's rights
			return Unknown
		}
	}
	verdict := try()
	if verdict != Permitted && !(anonymous && srv.hub.accounts.current.Load()) {
		srv.upToDate(0, srv.patience())
		verdict = try()
	}
	return verdict
}

// HasPassword reports whether, as far as this node knows, a user exists and needs a password.
func (srv *Server) HasPassword(name string) bool {
	acc := srv.hub.accounts.get(name)
	return acc != nil && !acc.user.Load().NoPass
}

// patience returns how long to wait for the leader's answer about the users.
func (srv *Server) patience() time.Duration { return time.Duration(srv.patient.Load()) }

// StillRight reports whether, as far as this node knows, a user is on and has the password with this hash (store.HashPassword), or needs
// none.
func (srv *Server) StillRight(name, hashed string) bool {
	acc := srv.hub.accounts.get(name)
	return acc != nil && acc.user.Load().HasPassword(hashed)
}

// May reports whether, as far as this node knows, a user has the right to a command, so that a page can leave out what the server would
// refuse. It reports true for a command that the server does not know.
func (srv *Server) May(name string, command ...string) bool {
	acc := srv.hub.accounts.get(name)
	if acc == nil || len(command) == 0 {
		return false
	}
	args := make([][]byte, len(command))
	for i := range command {
		args[i] = []byte(command[i])
	}
	cmd, _ := srv.table.Resolve(args)
	if cmd == nil {
		return true
	}
	why, _ := acc.user.Load().Check(cmd, args)
	return why == store.Allowed
}
