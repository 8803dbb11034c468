package server

import (
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// runEarly runs a queued command before the leader runs the transaction. If runQueued refuses the command now, answerExec tries it
// again.
func (s *session) runEarly(q *queued) {
	if r, ran, _ := s.runQueued(q); ran {
		q.done = &r
	}
}

// runQueued runs a queued command on this node, unless runEarly has. ran is false if the command may not run or the client has left.
func (s *session) runQueued(q *queued) (r store.Reply, ran bool, took time.Duration) {
	if q.done != nil {
		return *q.done, true, 0
	}
	if refusal := s.checkOperator(q.cmd, q.args); refusal != "" { // before session.alone, as in handleHere
		return store.Err(refusal), false, 0
	}
	leave, ok := s.alone(q.cmd)
	if !ok {
		return store.Err(errLeft), false, 0
	}
	defer leave()
	if refusal := s.mayRunAtExec(q); refusal != "" {
		return store.Err(refusal), false, 0
	}
	start := s.srv.cfg.Clock()
	r = s.run(q.do, q.args)
	took = s.srv.cfg.Clock().Sub(start)
	s.ran(q.cmd, q.args, took)
	return r, true, took
}

// tracksLate reports whether an EXEC reads keys that the client may cache, before this node runs CLIENT TRACKING and the tracker knows
// of it.
func (s *session) tracksLate(t *transaction) bool {
	how := s.tracking.Load()
	if how == nil || how.bcast || how.optin && !s.caching {
		return false
	}
	late := false
	for i := range t.commands {
		q := &t.commands[i]
		if q.cmd == s.srv.trackingCmd && q.done == nil {
			on, _ := onOff(q.args[2])
			late = late || on
		}
		if late && q.do == nil && mayRead(q.cmd) {
			return true
		}
	}
	return false
}
