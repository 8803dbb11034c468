package server

import (
	"sync/atomic"
	"time"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/store"
)

// Commands that a node answers itself (CLIENT LIST, AUTH, PING …) never reach the leader, which makes users take turns. So a few
// connections could take all processors, and a leader without processor time loses its leadership.
//
// So when a client's commands of this kind have taken ownSlice within a second, the client gives way to requests for the leader
// (fair.Gate.Rest).

// Many clients below ownSlice could take all processors, too. So beyond ownAtOnce for all clients within a second, each client has only
// ownSlice/ownCrowd.

const (
	// ownSlice is how long a node works for a client by itself before the client gives way …
	ownSlice = time.Millisecond
	// … and ownMemory is the time after which the node counts this work from 0 again.
	ownMemory = time.Second
	// ownAtOnce is how long a node works for all clients in a second before each of them has only ownSlice/ownCrowd.
	ownAtOnce = 100 * time.Millisecond
	ownCrowd  = 10
	// A client's work is added to the work for all clients (allOwnWork) when more than ownStep of it has not been added yet.
	ownStep = 20 * time.Microsecond
	// queueTakes is the cost of queueing one command after MULTI. The client is charged for it only if the transaction does not run.
	queueTakes = 500 * time.Nanosecond
	// emptyTakes is the cost of a line without a command. Each emptyBytes bytes of the line cost the same amount in addition.
	emptyTakes = 50 * time.Nanosecond
	emptyBytes = 64
	// plumbingTakes is the fixed charge for a command of isPlumbing. A client gives way before such a command only beyond plumbingSlices
	// times ownSlice.
	plumbingTakes  = time.Microsecond
	plumbingSlices = 5
	// byteTakes is the time for reading a byte, or for encoding and sending one.
	byteTakes = 10 * time.Nanosecond
)

// ownWork counts the time that a node has worked by itself for a client.
type ownWork struct {
	all   *allOwnWork
	took  time.Duration // the work so far in the present count
	told  time.Duration // the part of took that has been added to all
	since time.Time     // when the present count began
	paid  time.Duration // how much time of the next command is free of charge, because the client has given way for it already

	waited time.Duration // how long the present command has waited (session.idle)
}

// allOwnWork counts how long a node has worked by itself for all its clients. After ownMemory, add counts anew.
type allOwnWork struct {
	took  atomic.Int64 // the work so far, in nanoseconds
	since atomic.Int64 // when the present count began: Unix time in ns
}

func (w *allOwnWork) add(now time.Time, took time.Duration) {
	if since := w.since.Load(); now.UnixNano()-since > int64(ownMemory) && w.since.CompareAndSwap(since, now.UnixNano()) {
		w.took.Store(0)
	}
	w.took.Add(int64(took))
}

// isMuch reports whether each client has only ownSlice/ownCrowd. Without a look at the clock, it may stay true until add counts anew.
func (w *allOwnWork) isMuch() bool { return w.took.Load() > int64(ownAtOnce) }

// add charges the client for the time that work took, without what was paid or waited already, and for the bytes of arguments and reply.
func (w *ownWork) add(cmd *store.Command, now time.Time, took time.Duration, bytes int) {
	if now.Sub(w.since) > ownMemory {
		w.took, w.told, w.since = 0, 0, now
	}
	if isPlumbing(cmd) {
		took = plumbingTakes
	}
	took, w.paid, w.waited = max(took-w.paid-w.waited, 0), 0, 0
	w.took += took + time.Duration(max(bytes, 0))*byteTakes
	if untold := w.took - w.told; untold > ownStep {
		w.all.add(now, untold)
		w.told = w.took
	}
}

// idle begins a wait that does not count as work of this node. The caller must call the result when the wait is over.
func (s *session) idle() (over func()) {
	began := s.srv.cfg.Clock()
	return func() { s.own.waited += s.srv.cfg.Clock().Sub(began) }
}

// askLeader has the leader run a call that a command of this node needs, and returns the reply.
func (s *session) askLeader(c cluster.Call) store.Reply {
	defer s.idle()()
	return s.srv.backend.Submit([]cluster.Call{c}, nil)[0]
}

// rested resets the count and returns the time that the work had taken: the client is about to give way for that time.
func (w *ownWork) rested(now time.Time) (took time.Duration) {
	took = w.took
	w.took, w.told, w.since = 0, 0, now
	return took
}

// exceeds reports whether the node has worked for the client for more than limit within a second (isMuch: limit/ownCrowd).
func (w *ownWork) exceeds(limit time.Duration, clock func() time.Time) bool {
	if w.took <= limit/ownCrowd || w.took <= limit && !w.all.isMuch() {
		return false
	}
	return clock().Sub(w.since) <= ownMemory
}

// wouldExceed reports what exceeds would report after one more command of the given duration.
func (w *ownWork) wouldExceed(limit, takes time.Duration, now time.Time) bool {
	if now.Sub(w.since) <= ownMemory {
		takes += w.took
	}
	return takes > limit || takes > limit/ownCrowd && w.all.isMuch()
}

func argumentBytes(args [][]byte) (n int) {
	for _, arg := range args {
		n += len(arg)
	}
	return n
}

// isPlumbing reports whether a command is one for subscriptions or transactions, of which lock libraries use many.
func isPlumbing(cmd *store.Command) bool {
	if cmd == nil {
		return false
	}
	switch cmd.FullName() {
	case "subscribe", "unsubscribe", "psubscribe", "punsubscribe", "ssubscribe", "sunsubscribe", "multi", "exec", "watch":
		return true
	}
	return false
}

// fewNames is the most subscriptions or tracking prefixes that a loop itself begins or ends for one command.
const fewNames = 200

// namesIn returns how many subscriptions and tracking prefixes a command begins or ends at most, or 0 if they are certainly few.
func (s *session) namesIn(cmd *store.Command, args [][]byte) int {
	has := s.listensTo()
	if cmd == nil || has+len(args) <= fewNames && s.multi == nil {
		return 0
	}
	switch cmd.FullName() {
	case "subscribe", "psubscribe", "ssubscribe":
		return len(args) - 1
	case "unsubscribe", "punsubscribe", "sunsubscribe":
		if len(args) > 1 {
			return len(args) - 1
		}
		return has
	case "client|tracking":
		return has + len(args)
	case "reset":
		return has
	}
	return 0
}

// fewChecks is how many steps of checking a user's rights for a command are free. Beyond fewChecks, all steps cost checkTakes each.
const (
	fewChecks  = 256
	checkTakes = 20 * time.Nanosecond
)

// countChecks charges for checks of rights. It must be called after the command or just before it is collected: charged earlier, the
// client would give way and be checked again.
func (s *session) countChecks() {
	if n := s.checked; n > fewChecks {
		paid := s.own.paid
		s.own.paid = 0
		s.own.add(nil, s.srv.cfg.Clock(), time.Duration(n)*checkTakes, 0)
		s.own.paid = paid
	}
	s.checked = 0
}

// checksMuch reports whether the client has to give way before its command is collected, because the checks of its rights took many steps.
func (s *session) checksMuch() bool {
	return s.checked > fewChecks && s.own.exceeds(ownSlice, s.srv.cfg.Clock) && !s.needsAuth()
}

// listensTo returns how many subscriptions and prefixes for CLIENT TRACKING the session has.
func (s *session) listensTo() int { return int(s.subbed.Load()) + len(s.tracking.Load().listens()) }

// namesTake returns how long a command will take for many names. The client gives way before it, because hundreds of clients may each send
// one.
func (s *session) namesTake(cmd *store.Command, args [][]byte) time.Duration {
	if n := s.namesIn(cmd, args); n > fewNames {
		return time.Duration(n) * plumbingTakes
	}
	return 0
}

// named charges the client for the n names of a command, except for the first, which the cost of the command itself covers.
func (s *session) named(n int) {
	if n > 1 {
		s.own.add(nil, s.srv.cfg.Clock(), time.Duration(n-1)*plumbingTakes, 0)
	}
}

// mustRest reports whether the client has to give way before this node itself answers a command of the client.
func (s *session) mustRest(cmd *store.Command, args [][]byte) bool {
	if s.srv.kills[cmd] {
		return false // otherwise the client would give way to requests that may wait for the very script that this command ends
	}
	limit := ownSlice
	if isPlumbing(cmd) {
		limit *= plumbingSlices
	}
	if s.own.exceeds(limit, s.srv.cfg.Clock) {
		return !s.needsAuth()
	}
	takes := s.namesTake(cmd, args)
	return takes > 0 && s.own.paid == 0 && s.own.wouldExceed(plumbingSlices*ownSlice, takes, s.srv.cfg.Clock()) && !s.needsAuth()
}

// rest makes the client give way if it has to. On a loop it does nothing: the loop hands such a client to a goroutine first.
func (s *session) rest(cmd *store.Command, args [][]byte) (waited bool) {
	if !s.mustRest(cmd, args) || !s.mayWait() {
		return false
	}
	s.out.flush() // earlier replies need not wait
	takes := s.namesTake(cmd, args)
	s.srv.backend.Rest(s.client, s.own.rested(s.srv.cfg.Clock())+takes)
	s.own.paid = takes
	return true
}
